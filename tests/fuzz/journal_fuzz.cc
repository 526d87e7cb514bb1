// Any bytes as the journal of an experiment. It opens with what is good of it, and what is appended
// then is there when it is opened again; readers of any range of it come to an end.
//
// Steps besides those of steps.h:
//   l bytes    appended once it is open: a pb::LogData
//   s bytes    a pb::StateEvent
#include <google/protobuf/stubs/logging.h>

#include <map>

#include "daemon/journal.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/steps.h"

using namespace dtrain;
using namespace dtrain::daemon;
using namespace dtrain::fuzz;

namespace {

// What is good of a journal, told from its bytes as a whole.
struct Content {
  uint64_t bytes = 0;
  uint64_t state_events = 0;
  std::map<LogKey, uint64_t> offsets;
  bool operator==(const Content&) const = default;
};

Content content_of(std::string_view file) {
  Content content;
  for (const Frame& frame : good_frames(file)) {
    content.bytes += frame.size_bytes;
    if (frame.kind == kJournalState) ++content.state_events;
    pb::LogChunk log;
    if (frame.kind == kJournalLog && log.ParseFromString(std::string(frame.payload))) {
      content.offsets[{log.replica(), log.attempt()}] = log.offset() + log.data().size();
    }
  }
  return content;
}

Content content_of(const Journal& journal) {
  return {journal.written(), journal.state_events(), journal.offsets()};
}

// What a reader hands out between `cursor` and `end`, in small portions.
struct Seen {
  size_t items = 0;
  std::string text;    // of all output
  bool whole = false;  // nothing damaged or torn in between
};

Seen read_from(JournalReader& reader, uint64_t cursor, uint64_t end,
               const JournalReader::Filter& filter) {
  Seen seen;
  while (cursor < end) {
    pb::WatchBatch batch;
    const auto next = reader.read(cursor, end, 64, filter, batch);
    if (!next.ok()) {
      INVARIANT(next.error().code == Code::DataLoss, "all that is wrong is damage");
      return seen;
    }
    INVARIANT(*next >= cursor && *next <= end, "a cursor never goes backwards, nor past the end");
    uint64_t last = cursor;
    for (const auto& item : batch.items()) {
      INVARIANT(item.cursor() > last && item.cursor() <= *next, "items lie in order");
      last = item.cursor();
      ++seen.items;
      if (item.has_log()) seen.text += item.log().data();
    }
    if (*next == cursor) return seen;  // the rest is torn
    cursor = *next;
  }
  seen.whole = true;
  return seen;
}

std::string last_lines(const std::string& text, uint64_t lines) {
  size_t at = text.size();
  if (text.ends_with('\n')) --at;
  while (at > 0) {
    const size_t newline = text.rfind('\n', at - 1);
    if (newline == std::string::npos) break;
    if (--lines == 0) return text.substr(newline + 1);
    at = newline;
  }
  return text;
}

void check_readers(const std::filesystem::path& path, uint64_t end) {
  const auto reader = JournalReader::open(path);
  INVARIANT(reader.ok(), "a journal that is there is read");
  JournalReader::Filter all, some;
  all.pattern.experiment = some.pattern.experiment = {4, 0};
  some.pattern.role = Role::Worker;
  some.attempt = 1;
  some.since_unix_ms = 1000;
  for (const JournalReader::Filter& filter : {all, some}) {
    const Seen everything = read_from(**reader, 0, end, filter);
    for (const uint64_t lines : {uint64_t{1}, uint64_t{3}}) {
      JournalReader::Tail tail(end, lines);
      auto found = (*reader)->find(tail, filter);
      while (found.ok() && !*found) found = (*reader)->find(tail, filter);
      INVARIANT(found.ok() && tail.cursor <= end, "the last lines are found, or none");
      const Seen rest = read_from(**reader, tail.cursor, end, filter);
      INVARIANT(tail.skip_bytes <= rest.text.size(), "they begin in what follows the cursor");
      INVARIANT(!everything.whole ||
                    rest.text.substr(tail.skip_bytes) == last_lines(everything.text, lines),
                "they are as many as there are");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Scratch scratch;
  static const google::protobuf::LogSilencer silence;
  const auto path = scratch.path() / "4.journal";
  const std::vector<Step> steps = steps_of(data, size);
  std::string file;
  for (const Step& step : steps) apply(step, file);
  put(path, file);
  check_readers(path, file.size());

  auto journal = Journal::open(path);
  INVARIANT(journal.ok(), "whatever it holds, it opens");
  INVARIANT(content_of(**journal) == content_of(file), "with all that is good");
  INVARIANT(get(path).size() == (*journal)->written(), "and nothing else");

  for (const Step& step : steps) {
    pb::LogData log;
    pb::StateEvent event;
    const std::string bytes(step.rest);
    if (step.what == 's' && event.ParseFromString(bytes)) (*journal)->append(event);
    if (step.what != 'l' || !log.ParseFromString(bytes)) continue;
    const LogKey key{log.replica(), log.attempt()};
    const uint64_t before = (*journal)->next_offset(key);
    const auto status = (*journal)->append(log);
    const uint64_t after = (*journal)->next_offset(key);
    INVARIANT(after >= before, "offsets never go backwards");
    INVARIANT(status.ok() || after == before, "what is refused changes nothing");
  }
  INVARIANT((*journal)->flush().ok(), "it is written");
  const Content appended = content_of(**journal);
  const std::string bytes = get(path);
  INVARIANT(content_of(bytes) == appended, "all of it");
  journal->reset();
  journal = Journal::open(path);
  INVARIANT(journal.ok() && content_of(**journal) == appended, "what was appended is there again");
  INVARIANT(get(path) == bytes, "opening what is whole changes nothing");
  check_readers(path, bytes.size());
  return 0;
}
