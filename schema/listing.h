// The names in one directory, in byte order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace dtrain {

// Reused from directory to directory: after the first ones listing allocates nothing.
class Listing {
 public:
  // Reads the open directory from its start.
  Status read(int directory_fd);

  size_t size() const { return names_.size(); }
  // Ends in a NUL; valid until the next read().
  const char* name(size_t i) const { return text_.data() + names_[i].start; }
  std::string_view view(size_t i) const { return {name(i), names_[i].bytes}; }
  // As the directory itself has it: DT_LNK and so on, DT_UNKNOWN on some file systems.
  unsigned char type(size_t i) const { return names_[i].type; }
  bool contains(std::string_view name) const;

 private:
  struct Name {
    uint32_t start;
    uint32_t bytes;
    unsigned char type;
  };
  std::string text_;
  std::vector<Name> names_;
};

}  // namespace dtrain
