#include "cli/event_files.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cli/event_wire.h"

namespace dtrain::cli {

namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "TFRecord is little-endian");

constexpr std::string_view kFilePrefix = "events.out.tfevents.";
// A tree beyond these is no place that TensorBoard would read either.
constexpr int kDepthMax = 16;
constexpr size_t kEntriesMax = 100'000;
constexpr size_t kNameMaxBytes = 200;

struct EventFile {
  std::string folder;  // below the output directory; empty: itself
  std::string name;
  auto operator<=>(const EventFile&) const = default;
};

std::vector<EventFile> find_files(const fs::path& root) {
  std::vector<EventFile> files;
  std::error_code failed;
  fs::recursive_directory_iterator at(root, fs::directory_options::skip_permission_denied, failed);
  for (size_t seen = 0; !failed && at != fs::recursive_directory_iterator() && seen < kEntriesMax;
       ++seen, at.increment(failed)) {
    if (at.depth() >= kDepthMax) at.disable_recursion_pending();
    const std::string name = at->path().filename().native();
    std::error_code unknown;
    if (!name.starts_with(kFilePrefix) || !at->is_regular_file(unknown)) continue;
    const fs::path folder = at->path().parent_path().lexically_relative(root);
    files.push_back({folder == "." ? "" : folder.generic_string(), name});
  }
  // Names begin with the time a file was begun.
  std::sort(files.begin(), files.end());
  return files;
}

void add(std::string name, const EventScalar& found, Scalars& scalars) {
  if (name.size() > kNameMaxBytes) return;
  auto at = scalars.find(name);
  if (at == scalars.end()) {
    if (scalars.size() >= kScalarTagsMax) return;
    const Scalar first{found.value, found.step, found.value, found.value, 0};
    at = scalars.emplace(std::move(name), first).first;
  }
  Scalar& scalar = at->second;
  ++scalar.count;
  if (found.step >= scalar.last_step) {
    scalar.last = found.value;
    scalar.last_step = found.step;
  }
  // Not a number is neither less nor more than anything.
  if (found.value < scalar.minimum || std::isnan(scalar.minimum)) scalar.minimum = found.value;
  if (found.value > scalar.maximum || std::isnan(scalar.maximum)) scalar.maximum = found.value;
}

bool read_bytes(std::FILE* file, char* into, size_t size) {
  return std::fread(into, 1, size, file) == size;
}

}  // namespace

void read_event_file(std::FILE* file, std::string_view folder, Scalars& scalars) {
  std::string record;
  while (true) {
    char head[12];
    if (!read_bytes(file, head, sizeof head)) return;
    uint64_t length = 0;
    uint32_t sum = 0;
    std::memcpy(&length, head, sizeof length);
    std::memcpy(&sum, head + sizeof length, sizeof sum);
    // Without a length that is sure nobody knows where the next record begins.
    if (masked_crc32c({head, sizeof length}) != sum) return;
    if (length > kEventMaxBytes) {
      constexpr auto kFileMaxBytes = static_cast<uint64_t>(INT64_MAX) / 2;
      if (length > kFileMaxBytes) return;
      if (fseeko(file, static_cast<off_t>(length + sizeof sum), SEEK_CUR) != 0) return;
      continue;
    }
    record.resize(length);
    if (!read_bytes(file, record.data(), length)) return;
    char tail[sizeof sum];
    if (!read_bytes(file, tail, sizeof tail)) return;
    std::memcpy(&sum, tail, sizeof sum);
    if (masked_crc32c(record) != sum) continue;
    read_event(record, [&](const EventScalar& found) {
      std::string name(folder);
      if (!name.empty()) name += '/';
      add(name.append(found.tag), found, scalars);
    });
  }
}

Scalars read_event_files(const fs::path& output_dir) {
  Scalars scalars;
  for (const EventFile& file : find_files(output_dir)) {
    const fs::path path = output_dir / file.folder / file.name;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> open(std::fopen(path.c_str(), "rbe"),
                                                               std::fclose);
    if (open) read_event_file(open.get(), file.folder, scalars);
  }
  return scalars;
}

}  // namespace dtrain::cli
