#include "schema/lock_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/support/project.h"

namespace dtrain {
namespace {

TEST_CASE("one holder at a time, known by its pid, until it lets go") {
  test::TemporaryFolder folder;
  const auto path = folder / "lock";
  CHECK(!is_held(path));
  CHECK(!lock_holder(path));
  auto held = hold_lock(path);
  REQUIRE(held.ok());
  CHECK(is_held(path));
  CHECK(lock_holder(path) == getpid());
  const auto second = hold_lock(path);
  REQUIRE(!second.ok());
  CHECK(second.error().code == Code::FailedPrecondition);
  CHECK(second.error().message.find("pid " + std::to_string(getpid())) != std::string::npos);
  held->reset();
  CHECK(!is_held(path));
  CHECK(!lock_holder(path));
  CHECK(hold_lock(path).ok());
}

TEST_CASE("what is no file is not waited for") {
  test::TemporaryFolder folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  std::filesystem::create_symlink(folder / "pipe", folder / "link");
  for (const char* name : {"pipe", "link"}) {
    CHECK(!is_held(folder / name));
    CHECK(!lock_holder(folder / name));
  }
  CHECK(!hold_lock(folder / "link").ok());
}

// It took the lock for a moment to find out, and a daemon that started just then gave up.
TEST_CASE("asking whether it is held never keeps anyone from taking it") {
  test::TemporaryFolder folder;
  const auto path = folder / "lock";
  REQUIRE(hold_lock(path).ok());
  std::atomic<bool> asking = false;
  std::atomic<bool> done = false;
  std::thread asker([&] {
    while (!done) {
      (void)is_held(path);
      (void)lock_holder(path);
      asking = true;
    }
  });
  while (!asking) std::this_thread::yield();
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) refused += !hold_lock(path).ok();
  done = true;
  asker.join();
  CHECK(refused == 0);
}

}  // namespace
}  // namespace dtrain
