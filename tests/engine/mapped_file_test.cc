#include "engine/mapped_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "schema/fd.h"
#include "tests/engine/scratch.h"
#include "tests/support/skipped.h"

namespace dtrain::engine {
namespace {

// Whether memory has the page that `at` lies in.
bool is_resident(const std::byte* at) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  REQUIRE(::mincore(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(at) / page * page), 1, &resident) == 0);
  return (resident & 1) != 0;
}

TEST_CASE("what is asked for is in memory before anyone reads it") {
  const CaseFolder folder;
  put(folder / "file", std::string(8 << 20, 'x'));
  const Fd fd(::open((folder / "file").c_str(), O_RDONLY));
  REQUIRE(::fdatasync(fd.get()) == 0);
  REQUIRE(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0);
  const auto file = MappedFile::open(folder / "file");
  REQUIRE(file.ok());
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const std::byte* const asked = file->bytes().data() + 256 * page - 2;  // across the end of a page
  const std::array pages = {asked, asked + 2};
  if (is_resident(pages[0]) || is_resident(pages[1])) {
    return tests::say_skipped("this file system keeps its files in memory");
  }
  file->ask_for(asked, 4);
  for (const std::byte* const at : pages) {
    while (!is_resident(at)) std::this_thread::yield();  // the disk is not waited for
  }
  CHECK(*asked == std::byte{'x'});
}

TEST_CASE("a wish for what is not there is no error") {
  const CaseFolder folder;
  put(folder / "file", "x");
  const auto file = MappedFile::open(folder / "file");
  REQUIRE(file.ok());
  file->ask_for(file->bytes().data(), 1 << 30);
  CHECK(file->bytes().size() == 1);
}

}  // namespace
}  // namespace dtrain::engine
