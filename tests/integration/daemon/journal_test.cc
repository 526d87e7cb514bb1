#include "daemon/journal.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include "tests/support/project.h"

namespace dtrain::daemon {
namespace {

namespace fs = std::filesystem;

pb::LogData output(const std::string& replica, uint64_t offset, const std::string& text,
                   uint64_t dropped = 0) {
  pb::LogData data;
  data.set_replica(replica);
  data.set_attempt(1);
  data.set_offset(offset);
  data.set_time_unix_ms(1'000 + offset);
  data.set_data(text);
  data.set_dropped_bytes(dropped);
  return data;
}

pb::StateEvent event(const std::string& id, const std::string& state) {
  pb::StateEvent event;
  event.set_id(id);
  event.set_state(state);
  return event;
}

JournalReader::Filter everything(const std::string& id) {
  JournalReader::Filter filter;
  filter.pattern = *parse_id_pattern(id);
  return filter;
}

// What a reader of the whole file sees: "4>RUNNING 4.master:a\n ..."
std::string show(const pb::WatchBatch& batch) {
  std::string text;
  for (const auto& item : batch.items()) {
    if (!text.empty()) text += ' ';
    text += item.has_state() ? item.state().id() + ">" + item.state().state()
                             : item.log().replica() + ":" + item.log().data();
  }
  return text;
}

std::string read_all(const fs::path& path, const JournalReader::Filter& filter) {
  auto reader = JournalReader::open(path);
  REQUIRE(reader.ok());
  const uint64_t end = *(*reader)->size();
  std::string text;
  for (uint64_t cursor = 0; cursor < end;) {
    pb::WatchBatch batch;
    const auto next = (*reader)->read(cursor, end, 1, filter, batch);
    REQUIRE(next.ok());
    REQUIRE(*next > cursor);
    cursor = *next;
    if (batch.items_size() > 0) text += (text.empty() ? "" : " ") + show(batch);
  }
  return text;
}

JournalReader::Tail find_tail(JournalReader& reader, uint64_t end, uint64_t lines,
                              const JournalReader::Filter& filter) {
  JournalReader::Tail tail(end, lines);
  while (true) {
    const auto found = reader.find(tail, filter);
    REQUIRE(found.ok());
    if (*found) return tail;
  }
}

TEST_CASE("output and state changes come back in the order they went in") {
  test::TemporaryFolder folder;
  auto journal = Journal::open(folder / "4.journal");
  REQUIRE(journal.ok());
  (*journal)->append(event("4", "RUNNING"));
  CHECK((*journal)->append(output("4.master", 0, "a\n")).ok());
  CHECK((*journal)->append(output("4.ps.1", 0, "b\n")).ok());
  (*journal)->append(event("4", "FINISHED"));
  REQUIRE((*journal)->flush().ok());
  CHECK(read_all(folder / "4.journal", everything("4")) ==
        "4>RUNNING 4.master:a\n 4.ps.1:b\n 4>FINISHED");
  CHECK(read_all(folder / "4.journal", everything("4.ps")) == "4.ps.1:b\n");
  auto states = everything("4");
  states.with_logs = false;
  CHECK(read_all(folder / "4.journal", states) == "4>RUNNING 4>FINISHED");
}

TEST_CASE("repeated output is stored once, missing output is refused") {
  test::TemporaryFolder folder;
  auto journal = Journal::open(folder / "4.journal");
  REQUIRE(journal.ok());
  Journal& log = **journal;
  CHECK(log.append(output("4.train", 0, "abc")).ok());
  CHECK(log.append(output("4.train", 0, "abc")).ok());
  CHECK(log.append(output("4.train", 1, "bcde")).ok());
  const auto gap = log.append(output("4.train", 9, "x"));
  REQUIRE(!gap.ok());
  CHECK(gap.error().code == Code::Aborted);
  CHECK(log.next_offset({"4.train", 1}) == 5);
  // A declared loss is no gap.
  CHECK(log.append(output("4.train", 9, "x", 4)).ok());
  REQUIRE(log.flush().ok());
  CHECK(read_all(folder / "4.journal", everything("4")) ==
        "4.train:abc 4.train:de 4.train:x");
}

TEST_CASE("a sync is told of the replicas that printed, and of those again whose sync has failed") {
  using Offsets = std::map<LogKey, uint64_t>;
  const LogKey first{"4.1.train", 1}, second{"4.2.train", 1};
  test::TemporaryFolder folder;
  auto journal = Journal::open(folder / "4.journal");
  REQUIRE(journal.ok());
  Journal& log = **journal;
  CHECK(log.append(output("4.1.train", 0, "abc")).ok());
  CHECK(log.append(output("4.2.train", 0, "abc")).ok());
  const Offsets both = log.take_grown();
  CHECK(both == Offsets{{first, 3}, {second, 3}});
  CHECK(log.append(output("4.1.train", 0, "abc")).ok());
  CHECK(log.append(output("4.2.train", 3, "de")).ok());
  log.give_back(both);
  CHECK(log.take_grown() == Offsets{{first, 3}, {second, 5}});
  CHECK(log.take_grown().empty());
}

TEST_CASE("a journal cut at any byte opens with every whole record before the cut") {
  test::TemporaryFolder folder;
  const fs::path whole = folder / "whole";
  uint64_t before_last = 0;
  {
    auto journal = Journal::open(whole);
    REQUIRE(journal.ok());
    CHECK((*journal)->append(output("4.train", 0, "first\n")).ok());
    (*journal)->append(event("4", "RUNNING"));
    REQUIRE((*journal)->flush().ok());
    before_last = (*journal)->written();
    CHECK((*journal)->append(output("4.train", 6, "second\n")).ok());
    REQUIRE((*journal)->flush().ok());
  }
  const uint64_t size = fs::file_size(whole);
  for (uint64_t cut = before_last; cut < size; ++cut) {
    const fs::path torn = folder / "torn";
    fs::copy_file(whole, torn, fs::copy_options::overwrite_existing);
    fs::resize_file(torn, cut);
    auto journal = Journal::open(torn);
    REQUIRE(journal.ok());
    CHECK((*journal)->written() == before_last);
    CHECK((*journal)->cut_bytes() == cut - before_last);
    CHECK((*journal)->next_offset({"4.train", 1}) == 6);
    CHECK((*journal)->state_events() == 1);
    CHECK(fs::file_size(torn) == before_last);
    // What was lost comes again and fits.
    CHECK((*journal)->append(output("4.train", 6, "second\n")).ok());
    REQUIRE((*journal)->flush().ok());
    CHECK(read_all(torn, everything("4")) == "4.train:first\n 4>RUNNING 4.train:second\n");
  }
}

TEST_CASE("what is known of a journal is not read again, unless it is another file's") {
  const LogKey train{"4.train", 1};
  test::TemporaryFolder folder;
  const fs::path path = folder / "4.journal";
  pb::JournalPlace place;
  {
    auto journal = Journal::open(path);
    REQUIRE(journal.ok());
    (*journal)->append(event("4", "RUNNING"));
    CHECK((*journal)->append(output("4.train", 0, "abc")).ok());
    REQUIRE((*journal)->flush().ok());
    place.set_bytes((*journal)->written());
    place.set_state_events(1);
    pb::OutputEnd& end = *place.add_ends();
    end.set_replica("4.train");
    end.set_attempt(1);
    end.set_offset(3);
    CHECK((*journal)->append(output("4.train", 3, "de")).ok());
    (*journal)->append(event("4", "FINISHED"));
    REQUIRE((*journal)->flush().ok());
  }
  const auto size = fs::file_size(path);
  // Nobody looks at the beginning: there it may be damaged.
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(20);
    file.put('?');
  }
  {
    auto journal = Journal::open(path, place);
    REQUIRE(journal.ok());
    CHECK((*journal)->written() == size);
    CHECK((*journal)->state_events() == 2);
    CHECK((*journal)->next_offset(train) == 5);
  }
  for (const uint64_t bytes : {place.bytes() - 1, place.bytes() + 1, uint64_t{size + 40}, uint64_t{3}}) {
    CAPTURE(bytes);
    fs::copy_file(path, folder / "other", fs::copy_options::overwrite_existing);
    pb::JournalPlace other = place;
    other.set_bytes(bytes);
    auto journal = Journal::open(folder / "other", other);
    REQUIRE(journal.ok());
    CHECK((*journal)->written() == 0);   // as without a place: up to the damage
    CHECK((*journal)->state_events() == 0);
    CHECK((*journal)->next_offset(train) == 0);
  }
}

TEST_CASE("the tail is exactly the last lines, across chunks") {
  test::TemporaryFolder folder;
  const fs::path path = folder / "4.journal";
  auto journal = Journal::open(path);
  REQUIRE(journal.ok());
  std::string text;
  for (int line = 0; line < 100; ++line) text += "line " + std::to_string(line) + "\n";
  for (size_t at = 0; at < text.size(); at += 70) {
    CHECK((*journal)->append(output("4.train", at, text.substr(at, 70))).ok());
  }
  REQUIRE((*journal)->flush().ok());
  auto reader = JournalReader::open(path);
  REQUIRE(reader.ok());
  const uint64_t end = *(*reader)->size();
  for (const uint64_t lines : {1u, 2u, 9u, 10u, 50u, 99u, 100u, 1000u}) {
    const auto tail = find_tail(**reader, end, lines, everything("4"));
    std::string shown;
    uint64_t skip = tail.skip_bytes;
    for (uint64_t cursor = tail.cursor; cursor < end;) {
      pb::WatchBatch batch;
      cursor = *(*reader)->read(cursor, end, 1 << 20, everything("4"), batch);
      for (const auto& item : batch.items()) {
        shown += item.log().data().substr(skip);
        skip = 0;
      }
    }
    const size_t expected = std::min<uint64_t>(lines, 100);
    CHECK(shown.substr(0, 5) == "line ");
    CHECK(static_cast<size_t>(std::count(shown.begin(), shown.end(), '\n')) == expected);
    CHECK(shown == text.substr(text.size() - shown.size()));
  }
}

TEST_CASE("the tail begins with output, not with the states before it") {
  test::TemporaryFolder folder;
  const fs::path path = folder / "4.journal";
  auto journal = Journal::open(path);
  REQUIRE(journal.ok());
  (*journal)->append(event("4", "PENDING"));
  (*journal)->append(event("4", "RUNNING"));
  REQUIRE((*journal)->flush().ok());
  auto reader = JournalReader::open(path);
  REQUIRE(reader.ok());
  const uint64_t states = *(*reader)->size();
  CHECK(find_tail(**reader, states, 5, everything("4")).cursor == states);
  CHECK((*journal)->append(output("4.train", 0, "alone\n")).ok());
  REQUIRE((*journal)->flush().ok());
  const auto tail = find_tail(**reader, *(*reader)->size(), 5, everything("4"));
  CHECK(tail.cursor == states);
  CHECK(tail.skip_bytes == 0);
}

TEST_CASE("who finds nothing of interest has looked at no more than a stretch") {
  test::TemporaryFolder folder;
  const fs::path path = folder / "4.journal";
  auto journal = Journal::open(path);
  REQUIRE(journal.ok());
  CHECK((*journal)->append(output("4.ps.1", 0, "one\ntwo\n")).ok());
  const std::string chunk(100'000, 'x');
  const uint64_t chunks = 4 * JournalReader::kLookBytes / chunk.size();
  for (uint64_t i = 0; i < chunks; ++i) {
    CHECK((*journal)->append(output("4.train", i * chunk.size(), chunk)).ok());
  }
  REQUIRE((*journal)->flush().ok());
  const uint64_t end = (*journal)->written();
  auto reader = JournalReader::open(path);
  REQUIRE(reader.ok());

  pb::WatchBatch first;
  REQUIRE((*reader)->read(0, end, 1, everything("4.ps.1"), first).ok());
  REQUIRE(first.items_size() == 1);
  uint64_t cursor = first.items(0).cursor();
  int looks = 0;
  while (cursor < end) {
    pb::WatchBatch nothing;
    const auto next = (*reader)->read(cursor, end, 1 << 20, everything("4.ps.1"), nothing);
    REQUIRE(next.ok());
    CHECK(nothing.items().empty());
    CHECK(*next > cursor);
    CHECK(*next - cursor < 2 * JournalReader::kLookBytes);
    cursor = *next;
    ++looks;
  }
  CHECK(looks >= 3);

  JournalReader::Tail tail(end, 1);
  looks = 0;
  while (!*(*reader)->find(tail, everything("4.ps.1"))) ++looks;
  CHECK(looks >= 3);
  CHECK(tail.cursor == 0);
  CHECK(tail.skip_bytes == 4);
}

TEST_CASE("a damaged record in the middle is said, not shown") {
  test::TemporaryFolder folder;
  const fs::path path = folder / "4.journal";
  {
    auto journal = Journal::open(path);
    REQUIRE(journal.ok());
    CHECK((*journal)->append(output("4.train", 0, "good\n")).ok());
    CHECK((*journal)->append(output("4.train", 5, "bad\n")).ok());
    CHECK((*journal)->append(output("4.train", 9, "after\n")).ok());
    REQUIRE((*journal)->flush().ok());
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const size_t at = bytes.find("bad\n");
    REQUIRE(at != std::string::npos);
    file.clear();
    file.seekp(static_cast<std::streamoff>(at));
    file.put('B');
  }
  auto reader = JournalReader::open(path);
  REQUIRE(reader.ok());
  const uint64_t size = *(*reader)->size();
  pb::WatchBatch batch;
  const auto damage = (*reader)->read(0, size, 1 << 20, everything("4"), batch);
  REQUIRE(damage.ok());
  REQUIRE(batch.items_size() == 1);
  CHECK(batch.items(0).log().data() == "good\n");
  const auto next = (*reader)->read(*damage, size, 1 << 20, everything("4"), batch);
  REQUIRE(!next.ok());
  CHECK(next.error().code == Code::DataLoss);
}

}  // namespace
}  // namespace dtrain::daemon
