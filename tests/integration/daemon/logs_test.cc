#include "daemon/logs.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/few_descriptors.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain::daemon {
namespace {

using namespace std::chrono_literals;

pb::LogData output(uint64_t offset, const std::string& text) {
  pb::LogData data;
  data.set_replica("4.train");
  data.set_attempt(1);
  data.set_offset(offset);
  data.set_data(text);
  return data;
}

pb::StateEvent change_to(const std::string& state, const std::string& id = "4") {
  pb::StateEvent event;
  event.set_id(id);
  event.set_state(state);
  return event;
}

// The logs of one daemon, on a disk that syncs as `disk` says.
struct Scene {
  explicit Scene(LogsDisk disk) {
    store = std::move(Store::open(folder / "db")).value();
    open(std::move(disk));
  }
  void open(LogsDisk disk) {
    logs = std::make_unique<Logs>(
        loop, folder.path(), *store,
        [this](const LogKey&, uint64_t offset) { durable = offset; }, std::move(disk));
  }

  void until(const std::function<bool()>& done) {
    while (!done()) REQUIRE(loop.run_one_for(10s) == 1);
  }
  std::string text(uint32_t number = 4) {
    auto reader = JournalReader::open(logs->path(number));
    REQUIRE(reader.ok());
    JournalReader::Filter filter;
    filter.pattern = *parse_id_pattern(std::to_string(number));
    pb::WatchBatch batch;
    REQUIRE((*reader)->read(0, *(*reader)->size(), 1 << 20, filter, batch).ok());
    std::string text;
    for (const auto& item : batch.items()) {
      text += item.has_log() ? item.log().data() : item.state().state() + "\n";
    }
    return text;
  }

  test::TemporaryFolder folder;
  boost::asio::io_context loop{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{loop.get_executor()};
  std::unique_ptr<Store> store;
  std::unique_ptr<Logs> logs;
  uint64_t durable = 0;
};

// What Linux does to pages that it could not write: they count as clean, and may be dropped.
int fail_and_drop(int fd) {
  struct stat file = {};
  fstat(fd, &file);
  const std::string zeros(static_cast<size_t>(file.st_size), '\0');
  (void)!pwrite(fd, zeros.data(), zeros.size(), 0);
  return -1;
}

TEST_CASE("output waits where only the room that is not for output is left, events do not") {
  std::atomic<uint64_t> room_bytes = 0;
  Scene scene({fdatasync, 1ms, [&](int) { return room_bytes.load(); }});
  scene.logs->prepare(4);
  scene.logs->append(4, change_to("RUNNING"));
  scene.until([&] { return scene.logs->is_settled(4); });
  CHECK(scene.text() == "RUNNING\n");
  REQUIRE(scene.logs->append(4, output(0, "a word\n")).ok());
  scene.until([&] { return !scene.logs->trouble().empty(); });
  CHECK_MESSAGE(scene.logs->trouble().starts_with("log of experiment 4: no room for "), scene.logs->trouble());
  CHECK_MESSAGE(scene.logs->trouble().ends_with(" B of output on its disk"), scene.logs->trouble());
  CHECK(scene.text() == "RUNNING\n");
  CHECK(scene.durable == 0);
  room_bytes = 1 << 20;
  scene.until([&] { return scene.durable == 7; });
  CHECK(scene.text() == "RUNNING\na word\n");
  scene.until([&] { return scene.logs->trouble().empty(); });
}

TEST_CASE("what a failed sync may have lost is written again before it is acknowledged") {
  std::atomic<int> syncs = 0;
  Scene scene({[&](int fd) { return ++syncs == 1 ? fail_and_drop(fd) : fdatasync(fd); }, 1ms});
  scene.logs->prepare(4);
  scene.logs->append(4, change_to("RUNNING"));
  REQUIRE(scene.logs->append(4, output(0, "hello\n")).ok());
  scene.until([&] { return scene.durable == 6; });
  CHECK(syncs == 2);
  CHECK(scene.text() == "RUNNING\nhello\n");
}

TEST_CASE("a later daemon reads a journal from the place that the store was told of") {
  LogsDisk disk;
  disk.place_bytes = 1;
  Scene scene(disk);
  REQUIRE(scene.store->commit({}, {change_to("RUNNING")}).ok());
  scene.logs->prepare(4);   // copies it
  REQUIRE(scene.logs->append(4, output(0, "one\n")).ok());
  scene.until([&] { return scene.durable == 4; });
  const auto place = scene.store->journal_place(4);
  REQUIRE(place.ok());
  CHECK(place->state_events() == 1);
  REQUIRE(place->ends_size() == 1);
  CHECK(place->ends(0).offset() == 4);
  scene.logs.reset();
  char first = 0;
  {   // what is before it is not looked at
    const Fd file(::open((scene.folder / "4.journal").c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(pread(file.get(), &first, 1, 20) == 1);
    REQUIRE(pwrite(file.get(), "?", 1, 20) == 1);
  }
  scene.open(disk);
  CHECK(scene.logs->durable_offset(4, {"4.train", 1}) == 4);
  REQUIRE(scene.logs->append(4, output(4, "two\n")).ok());
  scene.until([&] { return scene.durable == 8; });
  CHECK(scene.store->journal_place(4)->bytes() > place->bytes());
  CHECK(scene.store->journal_place(4)->state_events() == 1);   // it was not copied again
  const uint64_t kept = scene.store->journal_place(4)->bytes();
  REQUIRE(scene.store->remove_submissions({4}).ok());
  CHECK(scene.store->journal_place(4)->bytes() == 0);
  // Who reads all of it tells of it, too.
  scene.logs.reset();
  {
    const Fd file(::open((scene.folder / "4.journal").c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(pwrite(file.get(), &first, 1, 20) == 1);
  }
  scene.open(disk);
  CHECK(scene.logs->durable_offset(4, {"4.train", 1}) == 8);
  CHECK(scene.store->journal_place(4)->bytes() == kept);
}

TEST_CASE("after a failed sync the disk is left alone for a while") {
  std::atomic<int> syncs = 0;
  Scene scene({[&](int) { return ++syncs, -1; }, 1h});
  REQUIRE(scene.logs->append(4, output(0, "hello\n")).ok());
  scene.until([&] { return syncs == 1 && !scene.logs->is_settled(4); });
  REQUIRE(scene.logs->append(4, output(6, "more\n")).ok());
  scene.loop.poll();
  CHECK(!scene.logs->is_settled(4));
  scene.logs.reset();   // waits for a sync that may be under way
  CHECK(syncs == 1);
  CHECK(scene.durable == 0);
}

TEST_CASE("a journal is closed once all of it is synced, the last state events too") {
  off_t synced_bytes = 0;
  Scene scene({[&](int fd) {
                 struct stat file = {};
                 fstat(fd, &file);
                 synced_bytes = file.st_size;
                 return fdatasync(fd);
               },
               1ms});
  scene.logs->prepare(4);
  REQUIRE(scene.logs->append(4, output(0, "hello\n")).ok());
  scene.until([&] { return scene.durable == 6; });
  scene.logs->append(4, change_to("FINISHED"));
  bool closed = false;
  scene.logs->close(4, [&] { closed = true; });
  CHECK(!closed);
  scene.until([&] { return closed; });
  CHECK(static_cast<uint64_t>(synced_bytes) == std::filesystem::file_size(scene.logs->path(4)));
  CHECK(scene.text() == "hello\nFINISHED\n");
}

TEST_CASE("there may be more journals than descriptors, and each is written to") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  constexpr uint32_t kJournals = 50;
  LogsDisk disk;
  disk.open_max = 4;
  Scene scene(disk);
  const auto all = [&](const std::function<bool(uint32_t)>& is) {
    for (uint32_t number = 1; number <= kJournals; ++number) {
      if (!is(number)) return false;
    }
    return true;
  };
  const test::FewDescriptors few(16);
  for (uint32_t number = 1; number <= kJournals; ++number) {
    scene.logs->prepare(number);
    scene.logs->append(number, change_to("PENDING", std::to_string(number)));
  }
  scene.until([&] { return all([&](uint32_t number) { return scene.logs->is_settled(number); }); });
  for (uint32_t number = 1; number <= kJournals; ++number) {
    pb::LogData data = output(0, "hello\n");
    data.set_replica(fmt::format("{}.train", number));
    REQUIRE(scene.logs->append(number, data).ok());
  }
  scene.until([&] {
    return all([&](uint32_t number) {
      return scene.logs->durable_offset(number, {fmt::format("{}.train", number), 1}) == 6;
    });
  });
  scene.logs.reset();

  // Those of an earlier daemon, and some that lack an event.
  for (uint32_t number = 1; number <= kJournals; number += 2) {
    const std::string id = std::to_string(number);
    REQUIRE(scene.store->commit({}, {change_to("PENDING", id), change_to("STARTING", id)}).ok());
  }
  scene.open(disk);
  for (uint32_t number = 1; number <= kJournals; ++number) scene.logs->prepare(number);
  CHECK(scene.logs->trouble() == "");
  std::set<uint32_t> closed;
  for (uint32_t number = 1; number <= kJournals; ++number) {
    scene.logs->close(number, [&closed, number] { closed.insert(number); });
  }
  scene.until([&] { return closed.size() == kJournals; });
  CHECK(scene.text(5) == "PENDING\nhello\nSTARTING\n");
}

}  // namespace
}  // namespace dtrain::daemon
