#include "engine/server/shard_state.h"

#include <doctest/doctest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/engine/server/servers.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain::engine {
namespace {

struct StateFolder : test::TemporaryFolder {
  std::string file() const { return *this / "state"; }
};

const ShardState::Shape kShape{.job = 7, .elements = 2 * kBlock + 100, .states = 1, .writers = 3};

std::unique_ptr<ShardState> open(const StateFolder& folder, const ShardState::Shape& shape = kShape) {
  return required(ShardState::open(folder.file(), shape, Deadline::after(0)));
}

void add(ShardState& state, int64_t block, float value) {
  const Range range = state.block(block);
  for (int64_t i = range.begin; i < range.end; ++i) state.arena(0)[i] += value;
}

TEST_CASE("what was committed is there again, with its books") {
  const StateFolder folder;
  {
    const auto state = open(folder);
    CHECK_FALSE(state->filled());
    state->begin_filling(11, 2);
    state->arena(1)[kShape.elements - 1] = 5;
    state->set_filled(40, 30);
    state->set_applied({.step = 9, .gradient_scale = 0.5, .samples = 32});
    state->begin_change(2);
    add(*state, 2, 3);
    state->commit_change(1, 9);
  }
  const auto state = open(folder);
  CHECK(state->filled());
  CHECK(state->generation() == 11);
  CHECK(state->attempt() == 2);
  CHECK(state->arena(0)[2 * kBlock + 99] == 3);
  CHECK(state->arena(1)[kShape.elements - 1] == 5);
  CHECK(state->updates(2) == 41);
  CHECK(state->begun_at() == 30);
  CHECK(state->updates(1) == 40);
  CHECK(state->progress(1).sequence == 9);
  CHECK(state->progress(1).next_block == 3);
  CHECK(state->progress(0).sequence == 0);
  CHECK(state->applied().step == 9);
  CHECK(state->applied().gradient_scale == 0.5);
  CHECK(state->applied().samples == 32);
}

TEST_CASE("numbers are dealt in order, each once, whoever opens the file between") {
  const StateFolder folder;
  {
    const auto state = open(folder);
    state->begin_filling(1, 1);
    state->set_filled(0, 0);
    CHECK(state->deal(2) == 0);
    CHECK(state->deal(0) == 1);
    CHECK(state->deal(2) == 0);
    state->deal_next(2, 0);
    CHECK(state->deal(2) == 2);
    state->deal_next(2, 0);  // as before
    CHECK(state->deal(2) == 2);
  }
  const auto state = open(folder);
  state->deal_next(0, 1);
  CHECK(state->deal(0) == 3);
  CHECK(state->deal(1) == 4);
  CHECK(state->deal(2) == 2);
  state->set_filled(0, 0);
  CHECK(state->deal(1) == 0);
}

TEST_CASE("a change that was not committed is undone") {
  const StateFolder folder;
  {
    const auto state = open(folder);
    state->begin_filling(1, 1);
    state->set_filled(0, 0);
    state->begin_change(1);
    add(*state, 1, 3);
    state->arena(1)[kBlock] = 8;
  }
  const auto state = open(folder);
  CHECK(state->filled());
  CHECK(state->arena(0)[kBlock] == 0);
  CHECK(state->arena(1)[kBlock] == 0);
  CHECK(state->updates(1) == 0);
}

TEST_CASE("after any instruction of a change, a kill leaves the old block or the new one") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return tests::say_skipped("a sanitizer's instructions, one by one, take minutes");
#endif
  const StateFolder folder;
  const ShardState::Shape shape{.job = 7, .elements = 48, .states = 1, .writers = 2};
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto state = ShardState::open(folder.file(), shape, Deadline::after(0));
    if (!state.ok() || ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
    (*state)->begin_filling(1, 1);
    (*state)->set_filled(3, 3);
    ::raise(SIGSTOP);
    (*state)->begin_change(0);
    for (int i = 0; i < 48; ++i) {
      (*state)->arena(0)[i] = 1;
      (*state)->arena(1)[i] = 2;
    }
    (*state)->commit_change(1, 5);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0, stops = 0, looks = 0, undone = 0;
  std::string seen;
  while (::waitpid(child, &status, 0) == child && WIFSTOPPED(status) && stops < 2) {
    stops += WSTOPSIG(status) == SIGSTOP ? 1 : 0;
    if (std::string now = test::content_of(folder.file()); now != seen) {
      seen = std::move(now);
      std::ofstream(folder / "copy", std::ios::binary) << seen;
      const auto state =
          required(ShardState::open(folder / "copy", shape, Deadline::after(0)));
      const bool done = state->progress(1).sequence == 5;
      bool whole = state->filled() && state->progress(1).next_block == (done ? 1 : 0) &&
                   state->updates(0) == (done ? 4 : 3) && state->progress(0).sequence == 0;
      for (int i = 0; i < 48; ++i) {
        whole &= state->arena(0)[i] == (done ? 1 : 0) && state->arena(1)[i] == (done ? 2 : 0);
      }
      CHECK(whole);
      undone += done ? 0 : 1;
      ++looks;
    }
    ::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  // Where a process may not be traced there is nothing to see.
  if (stops == 2) {
    CHECK(looks > 20);
    CHECK(undone < looks);
  }
}

TEST_CASE("another shape, another job, another boot or a torn file begin empty") {
  const StateFolder folder;
  const auto fill = [&] {
    const auto state = open(folder);
    state->begin_filling(1, 1);
    state->set_filled(0, 0);
  };
  fill();
  CHECK_FALSE(
      open(folder, {.job = 8, .elements = kShape.elements, .states = 1, .writers = 3})->filled());
  fill();
  CHECK_FALSE(open(folder, {.job = 7, .elements = kBlock, .states = 1, .writers = 3})->filled());
  fill();
  CHECK_FALSE(open(folder, {.job = 7, .elements = kShape.elements, .states = 1, .writers = 3, .boot = 2})->filled());
  fill();
  std::filesystem::resize_file(folder.file(), 5000);
  CHECK_FALSE(open(folder)->filled());
}

TEST_CASE("a file whose books name what is not there begins empty") {
  const StateFolder folder;
  {
    const auto state = open(folder);
    state->begin_filling(1, 1);
    state->set_filled(0, 0);
    state->begin_change(0);
  }
  {
    std::fstream file(folder.file(), std::ios::in | std::ios::out | std::ios::binary);
    const int64_t block = int64_t{1} << 40;
    file.seekp(64);  // behind what is being done to it
    file.write(reinterpret_cast<const char*>(&block), sizeof(block));
  }
  CHECK_FALSE(open(folder)->filled());
}

TEST_CASE("two processes never have one state") {
  const StateFolder folder;
  const auto state = open(folder);
  const auto second = ShardState::open(folder.file(), kShape, Deadline::after(0));
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().code == Code::DeadlineExceeded);
}

TEST_CASE("a removed state is empty next time") {
  const StateFolder folder;
  {
    const auto state = open(folder);
    state->begin_filling(1, 1);
    state->set_filled(0, 0);
    state->remove();
  }
  CHECK_FALSE(open(folder)->filled());
}

TEST_CASE("no room is an error, not a death") {
  const auto state = ShardState::open("/dev/full/state", kShape, Deadline::after(0));
  CHECK_FALSE(state.ok());
}

}  // namespace
}  // namespace dtrain::engine
