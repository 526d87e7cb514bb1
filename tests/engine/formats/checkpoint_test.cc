#include "engine/formats/checkpoint.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain::engine {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

// Everything in it says which step it is of.
struct Content {
  explicit Content(int64_t step, size_t size = 1000)
      : values(size, static_cast<float>(step)), model{{"w", {static_cast<int64_t>(size)}, values}},
        optimizer{{"state0.w", {static_cast<int64_t>(size)}, values}}, state(std::to_string(step)) {}
  CheckpointContent content() const { return {model, optimizer, state}; }
  std::vector<float> values;
  std::vector<TensorView> model, optimizer;
  std::string state;
};

Checkpoints open(const fs::path& folder, int keep = 3) {
  auto checkpoints = Checkpoints::open(folder, keep);
  REQUIRE(checkpoints.ok());
  return std::move(*checkpoints);
}

// Of checkpoints, whole or not.
size_t entries(const fs::path& folder) {
  size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(folder)) folders += entry.is_directory() ? 1 : 0;
  return folders;
}

TEST_CASE("the newest checkpoints stay, and the newest is found") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c", 2);
  CHECK(!checkpoints.newest_healthy());
  for (const int64_t step : {10, 20, 100}) REQUIRE(checkpoints.save(step, Content(step).content()).ok());
  CHECK(!fs::exists(folder / "c/step-00000010"));
  CHECK(fs::exists(folder / "c/step-00000020"));
  const auto newest = checkpoints.newest_healthy();
  REQUIRE(newest);
  CHECK(newest->step == 100);
  CHECK(newest->state == "100");
  const auto model = SafetensorsFile::open(newest->path / "model.safetensors");
  REQUIRE(model.ok());
  std::vector<float> values(1000);
  REQUIRE(model->read("w", std::vector<int64_t>{1000}, values).ok());
  CHECK(values == std::vector<float>(1000, 100));
  // Saving the same step anew is no error.
  CHECK(checkpoints.save(100, Content(100).content()).ok());
  CHECK(entries(folder / "c") == 2);
}

TEST_CASE("what is saved behind the training's back is what it was at the call") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c");
  Content content(1, 200'000);
  REQUIRE(checkpoints.save_behind(1, content.content()).ok());
  std::ranges::fill(content.values, 7);
  CHECK(checkpoints.settle());
  CHECK(checkpoints.newest_healthy()->step == 1);
  const auto value = [&](int64_t step) {
    const auto model = SafetensorsFile::open(folder / fmt::format("c/step-{:08}/model.safetensors", step));
    std::vector<float> values(content.values.size());
    REQUIRE(model->read("w", std::vector<int64_t>{static_cast<int64_t>(values.size())}, values).ok());
    return values.back();
  };
  CHECK(value(1) == 1);
  // Of what stays as it is, there need not be a copy anywhere.
  const auto kept = std::make_shared<Content>(2, 200'000);
  CheckpointContent stays = kept->content();
  stays.stays = kept;
  REQUIRE(checkpoints.save_behind(2, stays).ok());
  REQUIRE(checkpoints.save_behind(3, content.content()).ok());
  checkpoints.settle();
  CHECK(value(2) == 2);
  CHECK(value(3) == 7);
  CHECK(checkpoints.take_lost().empty());
}

TEST_CASE("a checkpoint that is lost on its way is told of, and the next is there on return") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c");
  test::write_file(folder / "c/step-00000002", "no folder");
  REQUIRE(checkpoints.save_behind(2, Content(2).content()).ok());
  REQUIRE(checkpoints.save_behind(3, Content(3).content()).ok());
  CHECK(checkpoints.newest_healthy()->step == 3);
  const std::string lost = checkpoints.take_lost();
  CHECK_MESSAGE(lost.find("step-00000002") != std::string::npos, lost);
  CHECK(checkpoints.take_lost().empty());
  CHECK(entries(folder / "c") == 1);  // nothing unfinished
  // And the one after it goes behind again.
  REQUIRE(checkpoints.save_behind(4, Content(4).content()).ok());
  CHECK(checkpoints.settle());
  CHECK(checkpoints.newest_healthy()->step == 4);
}

TEST_CASE("a damaged checkpoint is passed over, and said") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c");
  for (const int64_t step : {1, 2}) REQUIRE(checkpoints.save(step, Content(step).content()).ok());
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}) {
    CAPTURE(name);
    const fs::path path = folder / "c/step-00000002" / name;
    const std::string whole = test::read_file(path);
    std::string broken = whole;
    broken[broken.size() / 2] ^= 4;
    for (const std::string& damaged : {broken, whole.substr(0, whole.size() / 2), std::string()}) {
      test::write_file(path, damaged);
      std::vector<std::string> skipped;
      const auto newest = checkpoints.newest_healthy(&skipped);
      REQUIRE(newest);
      CHECK(newest->step == 1);
      REQUIRE(skipped.size() == 1);
      CHECK(skipped[0].find("step-00000002") != std::string::npos);
    }
    test::write_file(path, whole);
    CHECK(checkpoints.newest_healthy()->step == 2);
  }
}

TEST_CASE("a file of the newest that is cut anywhere gives the one before") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c");
  for (const int64_t step : {1, 2}) REQUIRE(checkpoints.save(step, Content(step, 5).content()).ok());
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}) {
    CAPTURE(std::string(name));
    const fs::path path = folder / "c/step-00000002" / name;
    const std::string whole = test::read_file(path);
    const size_t content = whole.find_last_not_of('\n') + 1;
    for (size_t length = 0; length < content; ++length) {
      test::write_file(path, whole.substr(0, length));
      const auto newest = checkpoints.newest_healthy();
      REQUIRE(newest);
      CHECK(newest->step == 1);
    }
    fs::remove(path);
    CHECK(checkpoints.newest_healthy()->step == 1);
    test::write_file(path, whole);
  }
}

TEST_CASE("what may not be read is said so, and is no folder without checkpoints") {
  const TemporaryFolder folder;
  REQUIRE(open(folder / "c").save(1, Content(1).content()).ok());
  fs::permissions(folder.path(), fs::perms::all);
  const auto look = [&](const fs::path& locked) {
    std::vector<std::string> skipped;
    const fs::perms before = fs::status(locked).permissions();
    fs::permissions(locked, fs::perms::none);
    const int user = ::setfsuid(65534);  // whom permissions hold for, if this is root
    const auto newest = newest_checkpoint(folder / "c", &skipped);
    ::setfsuid(static_cast<uid_t>(user));
    fs::permissions(locked, before);
    CHECK(!newest);
    REQUIRE(skipped.size() == 1);
    CHECK_MESSAGE(skipped[0].find(locked.native()) != std::string::npos, skipped[0]);
    CHECK_MESSAGE(skipped[0].find("Permission denied") != std::string::npos, skipped[0]);
  };
  look(folder / "c");
  look(folder / "c/step-00000001/model.safetensors");
  look(folder / "c/step-00000001/manifest.json");
  std::vector<std::string> skipped;
  CHECK(!newest_checkpoint(folder / "nothing", &skipped));
  CHECK(skipped.empty());
}

// By the process that holds it, when somebody else wants to open the file.
Fd leased;
void give_lease_back(int) { ::fcntl(leased.get(), F_SETLEASE, F_UNLCK); }

TEST_CASE("a file that can't be opened for a moment is not damaged") {
  const TemporaryFolder folder;
  REQUIRE(open(folder / "c").save(1, Content(1).content()).ok());
  for (const char* name : {"manifest.json", "model.safetensors"}) {
    CAPTURE(std::string(name));
    leased = Fd(::open((folder / "c/step-00000001" / name).c_str(), O_RDWR | O_CLOEXEC));
    const auto handler = std::signal(SIGIO, give_lease_back);
    // Who opens it without waiting gets EAGAIN.
    if (::fcntl(leased.get(), F_SETLEASE, F_WRLCK) != 0) return tests::say_skipped("files can't be leased here");
    std::vector<std::string> skipped;
    CHECK(newest_checkpoint(folder / "c", &skipped));
    CHECK(skipped.empty());
    std::signal(SIGIO, handler);
    leased = Fd();
  }
}

TEST_CASE("a training that goes on from before a damaged checkpoint keeps what it saves") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c", 1);
  REQUIRE(checkpoints.save(5, Content(5).content()).ok());
  REQUIRE(checkpoints.save(9, Content(9).content()).ok());
  test::write_file(folder / "c/step-00000009/state.json", "");
  // 5 is gone, 9 is no good: it begins anew, and is killed before it comes to 9.
  for (const int64_t step : {4, 8}) {
    REQUIRE(checkpoints.save(step, Content(step).content()).ok());
    const auto newest = checkpoints.newest_healthy();
    REQUIRE(newest);
    CHECK(newest->step == step);
  }
  REQUIRE(checkpoints.save(9, Content(9).content()).ok());  // in place of the damaged one
  CHECK(checkpoints.newest_healthy()->step == 9);
  CHECK(entries(folder / "c") == 1);
}

TEST_CASE("what a dead writer left goes, what a living one writes stays") {
  const TemporaryFolder folder;
  const fs::path left = folder / "c/unfinished-7-dead";
  std::optional<Checkpoints> living = open(folder / "c");
  test::write_file(left / "model.safetensors", "half");
  REQUIRE(living->save(1, Content(1).content()).ok());
  (void)open(folder / "c");
  CHECK(fs::exists(left));  // it may be of the one that lives
  living.reset();
  (void)open(folder / "c");
  CHECK(!fs::exists(left));
  CHECK(entries(folder / "c") == 1);
}

TEST_CASE("a writer that opens while another one looks for what is left counts as living, too") {
  const TemporaryFolder folder;
  (void)open(folder / "c");
  Fd looking(::open((folder / "c/writers.lock").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(looking.get(), LOCK_EX | LOCK_NB) == 0);
  std::optional<Checkpoints> opened;
  std::atomic<bool> is_open = false;
  std::thread writer([&] {
    auto checkpoints = Checkpoints::open(folder / "c", 1);
    if (checkpoints.ok()) opened = std::move(*checkpoints);
    is_open = true;
  });
  // Until it waits for the lock, or has not waited.
  const std::string waiting = fmt::format("-> FLOCK  ADVISORY  READ {} ", ::getpid());
  const auto waits = [&] {
    std::ifstream locks("/proc/locks");
    const std::string all{std::istreambuf_iterator<char>(locks), {}};
    return all.empty() || all.find(waiting) != std::string::npos;
  };
  while (!is_open && !waits()) {}
  CHECK(!is_open);
  REQUIRE(::flock(looking.get(), LOCK_UN) == 0);
  writer.join();
  REQUIRE(opened);
  CHECK(::flock(looking.get(), LOCK_EX | LOCK_NB) != 0);
}

// Where a sync is quick, if there is such a place.
fs::path memory() {
  return ::access("/dev/shm", W_OK | X_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
}

TEST_CASE("the newest is found while another training writes, and keeps no more than that one") {
  const TemporaryFolder folder(memory());
  Checkpoints checkpoints = open(folder / "c", 1);
  REQUIRE(checkpoints.save(1, Content(1, 50).content()).ok());
  constexpr int kSaves = 50;
  std::atomic<bool> over = false, failed = false;
  std::atomic<int> saved = 0;
  std::thread writer([&] {
    for (int64_t step = 2; !over && !failed; ++step) checkpoints.save(step, Content(step, 50).content()).ok() ? void(++saved) : void(failed = true);
  });
  int missed = 0;
  for (int look = 0; (look < 1000 || saved < kSaves) && !failed; ++look) missed += newest_checkpoint(folder / "c") ? 0 : 1;
  over = true;
  writer.join();
  CHECK(!failed);
  CHECK(missed == 0);
}

// A child that saves, of which each system call is seen before and after it is done.
class TracedSave {
 public:
  // `step`, over what is in the folder.
  TracedSave(const fs::path& folder, int64_t step) {
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      auto checkpoints = Checkpoints::open(folder, 1);
      if (!checkpoints.ok() || ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(100);
      ::raise(SIGSTOP);
      ::_exit(checkpoints->save(step, Content(step, 50).content()).ok() ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child_, &status, 0) == child_);
    allowed_ = WIFSTOPPED(status);
    if (!allowed_) child_ = 0;
  }
  ~TracedSave() {
    if (child_ > 0) ::kill(child_, SIGKILL);
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
  }
  bool allowed() const { return allowed_; }
  pid_t child() const { return child_; }
  // To the next entry into a system call, or exit from one; false: it has ended.
  bool next() {
    int status = 0;
    if (::ptrace(PTRACE_SYSCALL, child_, nullptr, nullptr) != 0) return false;
    if (::waitpid(child_, &status, 0) != child_) return false;
    if (WIFSTOPPED(status)) return true;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    child_ = 0;
    return false;
  }
  int exit_code() const { return exit_code_; }

 private:
  pid_t child_ = 0;
  bool allowed_ = false;
  int exit_code_ = -1;
};

TEST_CASE("a writer killed before or after any of its system calls leaves a healthy newest") {
  const TemporaryFolder folder(memory());
  int rounds = 0, saw_old = 0, saw_new = 0;
  // The same step anew, and the next: each time one stop further.
  for (const int64_t step : {1, 2}) {
    for (int stop = 1;; ++stop) {
      fs::remove_all(folder / "c");
      REQUIRE(open(folder / "c", 1).save(1, Content(1, 50).content()).ok());
      bool ended = false;
      {
        TracedSave save(folder / "c", step);
        if (!save.allowed()) return tests::say_skipped("processes may not be traced here");
        for (int i = 0; i < stop && !ended; ++i) ended = !save.next();
        if (ended) CHECK(save.exit_code() == 0);
      }
      std::vector<std::string> skipped;
      const auto newest = open(folder / "c", 1).newest_healthy(&skipped);
      REQUIRE(newest);
      CHECK(skipped.empty());
      CHECK(newest->state == std::to_string(newest->step));
      (newest->step == 1 ? saw_old : saw_new) += 1;
      CHECK(entries(folder / "c") <= 2);
      ++rounds;
      if (ended) break;
    }
  }
  CHECK(rounds > 100);
  CHECK(saw_old > 0);
  CHECK(saw_new > 0);
}

TEST_CASE("a system call that fails once is tried again, or the checkpoint before stays") {
#if !defined(__x86_64__)
  return tests::say_skipped("system calls are made to fail on x86-64 only");
#else
  const TemporaryFolder folder(memory());
  int failed = 0, saved = 0;
  for (int call = 0;; ++call) {
    fs::remove_all(folder / "c");
    REQUIRE(open(folder / "c", 1).save(1, Content(1, 50).content()).ok());
    TracedSave save(folder / "c", 2);
    if (!save.allowed()) return tests::say_skipped("processes may not be traced here");
    // The n-th of the calls that change something on the disk gets EIO.
    int seen = 0;
    bool hit = false, enters = true;
    while (save.next()) {
      user_regs_struct registers{};
      if (!std::exchange(enters, !enters) || hit) continue;
      if (::ptrace(PTRACE_GETREGS, save.child(), nullptr, &registers) != 0) break;
      const long number = static_cast<long>(registers.orig_rax);
      const bool writes = number == SYS_write || number == SYS_fsync || number == SYS_rename ||
                          number == SYS_mkdir || number == SYS_close ||
                          (number == SYS_openat && (registers.rdx & (O_WRONLY | O_CREAT)) != 0);
      if (!writes || seen++ != call) continue;
      hit = true;
      registers.orig_rax = static_cast<unsigned long long>(-1);  // no call at all
      REQUIRE(::ptrace(PTRACE_SETREGS, save.child(), nullptr, &registers) == 0);
      if (!save.next()) break;
      REQUIRE(::ptrace(PTRACE_GETREGS, save.child(), nullptr, &registers) == 0);
      registers.rax = static_cast<unsigned long long>(-EIO);
      REQUIRE(::ptrace(PTRACE_SETREGS, save.child(), nullptr, &registers) == 0);
      enters = true;
    }
    if (!hit) break;
    ++failed;
    CAPTURE(call);
    const auto newest = open(folder / "c", 1).newest_healthy();
    REQUIRE(newest);
    CHECK(newest->step == (save.exit_code() == 0 ? 2 : 1));
    saved += save.exit_code() == 0 ? 1 : 0;
  }
  CHECK(failed > 20);
  CHECK(saved == failed);  // each passes, and none is the end of a training
#endif
}

TEST_CASE("what is not finite is not saved") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c");
  REQUIRE(checkpoints.save(1, Content(1).content()).ok());
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Content content(2);
    content.values[7] = bad;
    const Status saved = checkpoints.save(2, content.content());
    REQUIRE(!saved.ok());
    CHECK(saved.error().code == Code::InvalidArgument);
    CHECK(entries(folder / "c") == 1);
  }
}

TEST_CASE("a writer that is killed leaves the newest that was whole") {
  bool behind = false;
  SUBCASE("that waits for the disk") {}
  SUBCASE("that does not") { behind = true; }
  const TemporaryFolder folder;
  int64_t survived = 0;
  for (int round = 0; round < 60; ++round) {
    int told[2];
    REQUIRE(::pipe(told) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      auto checkpoints = Checkpoints::open(folder / "c", 2);
      if (!checkpoints.ok()) ::_exit(1);
      for (int64_t step = survived + 1;; ++step) {
        const Content content(step, 20'000);
        if (!(behind ? checkpoints->save_behind(step, content.content()) : checkpoints->save(step, content.content())).ok()) ::_exit(1);
        if (::write(told[1], &step, sizeof step) != sizeof step) ::_exit(1);
      }
    }
    ::close(told[1]);
    int64_t step = 0, saved = survived;
    // So many, and then somewhere in the next.
    for (int i = 0; i < 1 + round % 3; ++i) {
      REQUIRE(::read(told[0], &step, sizeof step) == sizeof step);
      saved = step;
    }
    [[maybe_unused]] volatile int busy = 0;  // another moment each time
    for (int i = 0; i < round * 20'000; ++i) busy = i;
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    while (::read(told[0], &step, sizeof step) == sizeof step) saved = step;
    ::close(told[0]);

    std::vector<std::string> skipped;
    const auto newest = open(folder / "c", 2).newest_healthy(&skipped);
    if (!newest) {
      CHECK((behind && saved <= 1));
      continue;
    }
    CHECK(newest->step >= std::max(survived, saved - (behind ? 1 : 0)));
    CHECK(skipped.empty());
    survived = newest->step;
    CHECK(entries(folder / "c") <= 3);  // an old one may not be gone yet
  }
}

TEST_CASE("a full disk is said, and the checkpoint before stays") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c");
  REQUIRE(checkpoints.save(1, Content(1).content()).ok());
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit little{2048, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &little) == 0);
  const Status saved = checkpoints.save(2, Content(2).content());
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  REQUIRE(!saved.ok());
  CHECK(saved.error().code == Code::ResourceExhausted);
  CHECK(checkpoints.newest_healthy()->step == 1);
  CHECK(entries(folder / "c") == 1);
}

}  // namespace
}  // namespace dtrain::engine
