// Any bytes as an event file, and as one Event in a frame of its own: what is found is bounded, and
// a file whose end is cut off gives no more than the whole.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "cli/event_files.h"
#include "cli/event_wire.h"
#include "schema/result.h"

using namespace dtrain;

namespace {

// `again`: once more, by who knows the sessions.
cli::Scalars read(std::string bytes, bool again = false) {
  cli::Scalars scalars;
  bytes += '\0';  // fmemopen takes no empty buffer
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      fmemopen(bytes.data(), bytes.size(), "rb"), std::fclose);
  INVARIANT(file, "there is memory for a file");
  cli::FolderReader reader("");
  reader.read(file.get(), scalars);
  if (!again) return scalars;
  std::rewind(file.get());
  cli::Scalars later;
  cli::FolderReader("", reader.starts()).read(file.get(), later);
  return later;
}

uint64_t count(const cli::Scalars& scalars) {
  uint64_t sum = 0;
  for (const auto& [tag, scalar] : scalars) sum += scalar.count;
  return sum;
}

std::string framed(const std::string& record) {
  std::string out(8, '\0');
  const uint64_t length = record.size();
  std::memcpy(out.data(), &length, 8);
  for (const uint32_t sum : {cli::masked_crc32c(out), cli::masked_crc32c(record)}) {
    out.append(reinterpret_cast<const char*>(&sum), 4);
    if (out.size() == 12) out += record;
  }
  return out;
}

}  // namespace

// The first byte chooses: a file as it is, or an Event whose checksums are made here.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool whole_file = data[0] == 'f';
  const std::string file = whole_file ? bytes : framed(bytes) + framed(bytes);
  const cli::Scalars scalars = read(file);
  INVARIANT(scalars.size() <= cli::kScalarTagsMax, "tags are bounded");
  for (const auto& [tag, scalar] : scalars) {
    INVARIANT(scalar.count > 0 && !tag.empty(), "a tag is there because something was found");
    INVARIANT(!(scalar.minimum > scalar.maximum), "the minimum is not above the maximum");
  }
  INVARIANT(count(read(file.substr(0, file.size() / 2))) <= count(scalars), "less holds no more");
  INVARIANT(count(read(file, true)) <= count(scalars), "sessions only drop values");
  if (whole_file) return 0;
  uint64_t found = 0;
  cli::read_event(bytes, [&](const cli::EventScalar&) { ++found; });
  INVARIANT(size > cli::kEventMaxBytes || found * 2 >= count(scalars),
            "both times the same is found");
  return 0;
}
