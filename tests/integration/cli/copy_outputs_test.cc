#include "cli/copy_outputs.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "tests/support/project.h"
#include "tests/support/skipped.h"
#include "tests/support/tiny_disk.h"

namespace dtrain::cli {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::write_file;

TEST_CASE("files, folders and links are copied as they are, and what is none of these is left out") {
  const test::TemporaryFolder folder;
  const fs::path out = folder / "out", here = folder / "here";
  fs::create_directories(out / "ckpt");
  fs::create_directories(here);
  const std::string large(3 << 20, 'x');
  write_file(out / "ckpt/large", large);
  write_file(out / "model", "weights");
  fs::permissions(out / "model", fs::perms::owner_all);
  fs::create_symlink("model", out / "link");
  REQUIRE(::mkfifo((out / "ckpt/pipe").c_str(), 0600) == 0);
  const std::vector<fs::path> all{out / "ckpt", out / "link", out / "model"};
  const auto copied = copy_outputs(all, here, false);
  REQUIRE(copied.ok());
  CHECK(copied->items == 3);
  CHECK(copied->left_out == std::vector<std::string>{"pipe (a socket, fifo or device)"});
  CHECK(read_file(here / "ckpt/large") == large);
  CHECK(read_file(here / "model") == "weights");
  CHECK(fs::status(here / "model").permissions() == fs::perms::owner_all);
  CHECK(fs::read_symlink(here / "link") == "model");

  write_file(out / "model", "others");
  CHECK(copy_outputs(all, here, false).error().code == Code::AlreadyExists);
  CHECK(read_file(here / "model") == "weights");
  REQUIRE(copy_outputs(all, here, true).ok());
  CHECK(read_file(here / "model") == "others");
}

TEST_CASE("a file of a host's own is left out, and stops nothing") {
  const test::TemporaryFolder folder;
  write_file(folder / "out/.dtrain-x", "");
  write_file(folder / "out/model", "weights");
  fs::create_directories(folder / "here");
  const auto copied = copy_outputs({folder / "out/.dtrain-x", folder / "out/model"}, folder / "here", false);
  REQUIRE(copied.ok());
  CHECK(copied->left_out == std::vector<std::string>{"'.dtrain-x' is a name of dtrain's own"});
  CHECK(read_file(folder / "here/model") == "weights");
  CHECK_FALSE(fs::exists(folder / "here/.dtrain-x"));
}

TEST_CASE("a file does not take the place of a directory") {
  const test::TemporaryFolder folder;
  write_file(folder / "out/model", "weights");
  fs::create_directories(folder / "here/model");
  const auto copied = copy_outputs({folder / "out/model"}, folder / "here", true);
  REQUIRE(!copied.ok());
  CHECK(copied.error().message.ends_with("Is a directory"));
  CHECK(fs::is_directory(folder / "here/model"));
}

TEST_CASE("of a file that has no room nothing is left, and it is said which") {
  const test::TemporaryFolder folder;
  write_file(folder / "out/a", "small");
  write_file(folder / "out/large", std::string(3 << 20, 'x'));
  const test::TinyDisk disk(folder / "here", "size=1m");
  if (!disk.mounted) return tests::say_skipped("mounting a small file system needs root");
  const auto copied = copy_outputs({folder / "out/a", folder / "out/large"}, disk.at, false);
  REQUIRE(!copied.ok());
  CHECK(copied.error().message.starts_with("copying " + (folder / "out/large").string() + " to " + (disk.at / "large").string() + ": "));
  CHECK(copied.error().message.ends_with("No space left on device"));
  CHECK(read_file(disk.at / "a") == "small");
  CHECK(std::distance(fs::directory_iterator(disk.at), {}) == 1);
}

}  // namespace
}  // namespace dtrain::cli
