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

// Two folders may give their tags the same name: a/b and c, a and b/c.
void add(const std::string& name, const Scalar& found, Scalars& scalars) {
  if (!scalars.contains(name) && scalars.size() >= kScalarTagsMax) return;
  auto [at, is_new] = scalars.emplace(name, found);
  if (is_new) return;
  Scalar& scalar = at->second;
  if (found.last_step >= scalar.last_step) {
    scalar.last = found.last;
    scalar.last_step = found.last_step;
  }
  if (found.minimum < scalar.minimum || std::isnan(scalar.minimum)) scalar.minimum = found.minimum;
  if (found.maximum > scalar.maximum || std::isnan(scalar.maximum)) scalar.maximum = found.maximum;
  scalar.count += found.count;
}

bool read_bytes(std::FILE* file, char* into, size_t size) {
  return std::fread(into, 1, size, file) == size;
}

}  // namespace

FolderReader::FolderReader(std::string_view folder, std::vector<SessionStart> known)
    : folder_(folder), known_(std::move(known)) {
  for (size_t i = known_.size(); i-- > 1;) {
    known_[i - 1].step = std::min(known_[i - 1].step, known_[i].step);
  }
}

// No session yet to come starts at it or before it.
bool FolderReader::counts(int64_t step) {
  while (next_ < known_.size() && known_[next_].at < events_) ++next_;
  return next_ == known_.size() || step < known_[next_].step;
}

void FolderReader::take(std::string_view record, Scalars& scalars) {
  ++events_;
  const auto start = read_event(record, [&](const EventScalar& found) {
    has_values_ = true;
    if (!counts(found.step)) return;
    std::string name = folder_;
    if (!name.empty()) name += '/';
    add(name.append(found.tag), found, scalars);
  });
  if (!start || starts_.size() >= kSessionStartsMax) return;
  had_values_ |= has_values_;
  starts_.push_back({events_, *start});
}

void FolderReader::read(std::FILE* file, Scalars& scalars) {
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
    if (masked_crc32c(record) == sum) take(record, scalars);
  }
}

namespace {

using FileIterator = std::vector<EventFile>::const_iterator;
using OpenEventFile = std::function<EventFilePointer(const std::string& path)>;

// The files of one folder once: the sessions that make a second time needed.
std::vector<SessionStart> read_folder(const OpenEventFile& open, FileIterator begin, FileIterator end,
                                      std::vector<SessionStart> known, Scalars& scalars) {
  FolderReader reader(begin->folder, std::move(known));
  for (auto file = begin; file != end; ++file) {
    if (const auto opened = open((fs::path(file->folder) / file->name).string())) reader.read(opened.get(), scalars);
  }
  return reader.starts();
}

Scalars read_all(std::vector<EventFile> files, const OpenEventFile& open) {
  // Names begin with the time a file was begun.
  std::sort(files.begin(), files.end());
  Scalars scalars;
  for (auto begin = files.cbegin(); begin != files.cend();) {
    const auto end = std::find_if(
        begin, files.cend(), [&](const EventFile& file) { return file.folder != begin->folder; });
    Scalars own;
    if (auto starts = read_folder(open, begin, end, {}, own); !starts.empty()) {
      own.clear();
      (void)read_folder(open, begin, end, std::move(starts), own);
    }
    for (const auto& [name, scalar] : own) add(name, scalar, scalars);
    begin = end;
  }
  return scalars;
}

}  // namespace

Scalars read_event_files(const fs::path& output_dir) {
  return read_all(find_files(output_dir), [&](const std::string& path) {
    return EventFilePointer(std::fopen((output_dir / path).c_str(), "rbe"), std::fclose);
  });
}

Scalars read_event_files(const std::vector<std::string>& paths, const OpenEventFile& open) {
  std::vector<EventFile> files;
  for (const std::string& path : paths) {
    const fs::path at = path;
    if (at.filename().string().starts_with(kFilePrefix)) files.push_back({at.parent_path().string(), at.filename().string()});
  }
  return read_all(std::move(files), open);
}

}  // namespace dtrain::cli
