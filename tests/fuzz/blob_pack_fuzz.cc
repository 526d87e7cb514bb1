// Any bytes as a pack of blobs, and any parts of a blob on their way into one. What is said to be
// there can be read and is what its name says, or is refused; what is added to it is there
// afterwards.
//
// Steps besides those of steps.h:
//   e <n>      the frame that ends the table: it begins where the file is now less n bytes
//   a bytes    a part of a blob, as a client sends it
#include <cstring>

#include "daemon/blobs.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/steps.h"

using namespace dtrain;
using namespace dtrain::daemon;
using namespace dtrain::fuzz;

namespace {

constexpr uint64_t kReadMax = 1 << 20;

// Rows of the tables in `file`, by their names: whatever a pack may claim to hold.
std::vector<Sha256> names_in(std::string_view file) {
  std::vector<Sha256> names;
  for (size_t at = 0; at + sizeof(Sha256) <= file.size(); ++at) {
    Sha256 name;
    std::memcpy(&name, file.data() + at, sizeof name);
    names.push_back(name);
  }
  return names;
}

void check_blobs(const Blobs& blobs, std::string_view file) {
  size_t found = 0;
  for (const Sha256& name : names_in(file)) {
    if (!blobs.has(name)) continue;
    ++found;
    const auto stored = blobs.find(name);
    INVARIANT(stored.ok(), "what is there is found");
    INVARIANT(stored->offset <= file.size() && stored->stored_bytes <= file.size() - stored->offset,
              "and lies within its pack");
    const auto bytes = blobs.read(name, kReadMax);
    if (bytes.ok()) {
      INVARIANT(sha256(*bytes) == name, "a blob is what its name says");
    } else {
      INVARIANT(
          bytes.error().code == Code::DataLoss || bytes.error().code == Code::ResourceExhausted,
          "or is refused");
    }
  }
  INVARIANT(found > 0 || blobs.count() == 0, "names come from the table");
}

// A blob of the client's as its parts come; then one that is whole, in the same or another pack.
void check_adding(const std::filesystem::path& folder, Blobs& blobs,
                  const std::vector<Step>& steps) {
  auto writer = blobs.begin();
  INVARIANT(writer.ok(), "a pack is begun");
  bool good = true;
  for (const Step& step : steps) {
    if (step.what != 'a' || !good) continue;
    const std::string_view content = "what the blob is meant to be";
    good = (*writer)->add(sha256(content), content.size(), step.rest, step.number() % 2 == 0).ok();
  }
  const std::string text = "a blob that comes whole";
  const Sha256 name = sha256(text);
  const auto frame = compress_blob(text);
  INVARIANT(frame.ok(), "it is compressed");
  if (!good || !(*writer)->add(name, text.size(), *frame, true).ok()) {
    INVARIANT(!(*writer)->commit().ok(), "a spoiled pack is not committed");
    writer = blobs.begin();
    INVARIANT((*writer)->add(name, text.size(), *frame, true).ok(),
              "the next one is as good as new");
  }
  INVARIANT((*writer)->commit().ok(), "it is committed");
  const auto again = Blobs::open(folder);
  INVARIANT(again.ok() && (*again)->has(name), "what was committed is there again");
  const auto read = (*again)->read(name, kReadMax);
  INVARIANT(read.ok() && *read == text, "and can be read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Scratch scratch;
  const std::vector<Step> steps = steps_of(data, size);
  std::string file;
  uint64_t rows = 0;
  for (const Step& step : steps) {
    if (step.what == 'f' && (step.number() & 0x0f) == 1) rows += step.text().size() / 64;
    const uint64_t end[2] = {file.size() - std::min<size_t>(step.number(), file.size()), rows};
    apply(step, file);
    if (step.what == 'e') {
      append_frame(file, 2, {reinterpret_cast<const char*>(end), sizeof end}, {});
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
    ::unlink(entry.path().c_str());
  }
  put(scratch.path() / "7.pack", file);
  auto blobs = Blobs::open(scratch.path());
  INVARIANT(blobs.ok(), "whatever it holds, the folder opens");
  INVARIANT((*blobs)->notices().size() <= 1, "damage is told once");
  check_blobs(**blobs, file);
  check_adding(scratch.path(), **blobs, steps);
  return 0;
}
