#include "schema/needed_glibc.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdio>

namespace dtrain {
namespace {

// Of the first that is told, the executable itself.
int look(dl_phdr_info* program, size_t, void* minor) {
  const char* names = nullptr;
  const char* needs = nullptr;
  size_t count = 0;
  for (int i = 0; i < program->dlpi_phnum; ++i) {
    const auto& header = program->dlpi_phdr[i];
    if (header.p_type != PT_DYNAMIC) continue;
    for (auto* entry = reinterpret_cast<const ElfW(Dyn)*>(program->dlpi_addr + header.p_vaddr); entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_VERNEED) needs = reinterpret_cast<const char*>(program->dlpi_addr + entry->d_un.d_ptr);
      if (entry->d_tag == DT_VERNEEDNUM) count = entry->d_un.d_val;
    }
  }
  for (; names != nullptr && count > 0; --count) {
    const auto* library = reinterpret_cast<const ElfW(Verneed)*>(needs);
    const char* at = needs + library->vn_aux;
    for (int i = 0; i < library->vn_cnt; ++i) {
      const auto* version = reinterpret_cast<const ElfW(Vernaux)*>(at);
      int found = 0;
      const bool may_lack = (version->vna_flags & VER_FLG_WEAK) != 0;
      if (!may_lack && std::sscanf(names + version->vna_name, "GLIBC_2.%d", &found) == 1) {
        *static_cast<int*>(minor) = std::max(*static_cast<int*>(minor), found);
      }
      at += version->vna_next;
    }
    needs += library->vn_next;
  }
  return 1;
}

}  // namespace

std::string needed_glibc() {
  int minor = 0;
  ::dl_iterate_phdr(look, &minor);
  return fmt::format("2.{}", minor);
}

}  // namespace dtrain
