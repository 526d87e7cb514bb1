#include "engine/formats/checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/formats/crc32c.h"
#include "schema/engine_spec.h"
#include "schema/random_id.h"

namespace dtrain::engine {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kState = "state.json";
constexpr const char* kManifest = "manifest.json";
constexpr std::string_view kPrefix = kEngineCheckpointPrefix;
constexpr std::string_view kUnfinished = "unfinished-";
constexpr const char* kLock = "writers.lock";

Status check_finite(std::span<const TensorView> tensors) {
  for (const TensorView& tensor : tensors) {
    for (const float value : tensor.values) {
      if (std::isfinite(value)) continue;
      return Error{Code::InvalidArgument, fmt::format("{} is not finite, and is not saved", tensor.name),
                   "a smaller learning rate"};
    }
  }
  return ok();
}

void delete_all(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

std::vector<std::string> names_in(const fs::path& folder, std::error_code& error) {
  std::vector<std::string> names;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  return names;
}

Result<MappedFile> open_file(const fs::path& path) {
  std::optional<MappedFile> file;
  TRY(try_to_read([&]() -> Status {
    TRY(file, MappedFile::open(path));
    return ok();
  }));
  return std::move(*file);
}

Result<std::string> read_text(const fs::path& path) {
  TRY(const MappedFile file, open_file(path));
  std::string text(file.bytes().size(), '\0');
  TRY(try_to_read([&] { return file.read(0, std::as_writable_bytes(std::span(text))); }));
  return text;
}

Result<uint32_t> sum_of(const MappedFile& file) {
  constexpr size_t kPart = 1 << 20;
  uint32_t sum = 0;
  std::vector<std::byte> part;
  for (size_t at = 0, size = file.bytes().size(); at < size; at += part.size()) {
    part.resize(std::min(kPart, size - at));
    TRY(try_to_read([&] { return file.read(at, part); }));
    sum = crc32c(part, sum);
  }
  return sum;
}

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + kPrefix.size(), end, step);
  return read.ec == std::errc() && read.ptr == end ? std::optional(step) : std::nullopt;
}

fs::path path_of(const fs::path& folder, int64_t step) { return folder / fmt::format("{}{:08}", kPrefix, step); }

// Newest first. None where there is no such folder; `error`: it can't be listed.
std::vector<int64_t> steps_in(const fs::path& folder, std::error_code& error) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(folder, error)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  if (error == std::errc::no_such_file_or_directory) error.clear();
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

// The same, tried again where it may pass.
Status list(const fs::path& folder, std::vector<int64_t>& steps) {
  return try_to_read([&]() -> Status {
    std::error_code error;
    steps = steps_in(folder, error);
    if (error) return file_error("list", folder, error.value());
    return ok();
  });
}

// The one of that step was written a moment ago, and is healthy.
void remove_before(const fs::path& folder, int keep, int64_t step) {
  int kept = 0;
  std::error_code ignored;
  for (const int64_t found : steps_in(folder, ignored)) {
    if (found <= step && ++kept > keep) delete_all(path_of(folder, found));
  }
}

// A checkpoint whose content is written, and may not be on the disk yet. Goes unless it is committed.
class Unfinished {
 public:
  static Result<Unfinished> write(const fs::path& folder, int64_t step, const CheckpointContent& content) {
    TRY(const std::string unique, random_id());
    Unfinished made(folder, step, folder / fmt::format("{}{}-{}", kUnfinished, step, unique));
    std::error_code error;
    fs::create_directory(made.place_, error);
    if (error) return file_error("create", made.place_, error.value());
    TRY(made.write_file(kModelFile, [&](FileWriter& file) { return write_safetensors(file, content.model, {}); }));
    TRY(made.write_file(kOptimizerFile, [&](FileWriter& file) { return write_safetensors(file, content.optimizer, {}); }));
    TRY(made.write_file(kState, [&](FileWriter& file) { return file.write(content.state); }));
    return made;
  }
  Unfinished(Unfinished&& other) noexcept
      : folder_(std::move(other.folder_)),
        step_(other.step_),
        place_(std::exchange(other.place_, {})),
        manifest_(std::move(other.manifest_)),
        files_(std::move(other.files_)) {}
  ~Unfinished() {
    if (!place_.empty()) delete_all(place_);
  }

  // Under its name on the disk; then those before it go, but for `keep` with it.
  Status commit(int keep) {
    for (FileWriter& file : files_) TRY(file.finish());
    TRY(FileWriter file, FileWriter::create(place_ / kManifest));
    TRY(file.write(manifest_.dump() + "\n"));
    TRY(file.finish());
    TRY(sync_folder(place_));
    TRY(rename_folder(place_, path_of(folder_, step_)));
    place_.clear();
    remove_before(folder_, keep, step_);
    return ok();
  }

 private:
  Unfinished(fs::path folder, int64_t step, fs::path place) : folder_(std::move(folder)), step_(step), place_(std::move(place)) {}

  // `fill` writes the content.
  template <class Fill>
  Status write_file(const char* name, Fill fill) {
    TRY(FileWriter created, FileWriter::create(place_ / name));
    FileWriter& file = files_.emplace_back(std::move(created));
    TRY(fill(file));
    manifest_[name] = {{"bytes", file.bytes()}, {"crc32c", file.crc32c()}};
    return ok();
  }

  fs::path folder_;
  int64_t step_;
  fs::path place_;  // none: it is committed, or moved from
  Json manifest_ = Json::object();
  std::vector<FileWriter> files_;
};

Status save_in(const fs::path& folder, int keep, int64_t step, const CheckpointContent& content) {
  return try_again([&]() -> Status {
    TRY(Unfinished unfinished, Unfinished::write(folder, step, content));
    return unfinished.commit(keep);
  });
}

}  // namespace

std::optional<int64_t> checkpoint_step(const fs::path& path) {
  const fs::path name = path.filename();
  return step_of((name.empty() ? path.parent_path().filename() : name).native());
}

Result<std::string> check_checkpoint(const fs::path& path) {
  const auto damaged = [&](const std::string& what) {
    return Error{Code::DataLoss, fmt::format("{}: {}", path.native(), what), ""};
  };
  const auto unreadable = [&](const char* name, const Error& error) {
    return damaged(fmt::format("{} can't be read: {}", name, error.message));
  };
  const auto text = read_text(path / kManifest);
  if (!text.ok()) return unreadable(kManifest, text.error());
  const Json manifest = Json::parse(*text, nullptr, false);
  if (!manifest.is_object()) return damaged("its manifest can't be read");
  for (const char* name : {kModelFile, kOptimizerFile, kState}) {
    const auto file = open_file(path / name);
    if (!file.ok()) return unreadable(name, file.error());
    const Json& entry = manifest.contains(name) ? manifest.at(name) : Json::object();
    const bool is_as_large = entry.is_object() && entry.value("bytes", Json()) == file->bytes().size();
    const auto sum = is_as_large ? sum_of(*file) : Result<uint32_t>(uint32_t{0});
    if (!sum.ok()) return unreadable(name, sum.error());
    if (!is_as_large || entry.value("crc32c", Json()) != *sum) return damaged(fmt::format("{} is not what was written", name));
  }
  auto state = read_text(path / kState);
  if (!state.ok()) return unreadable(kState, state.error());
  return state;
}

Status check_listed(const fs::path& folder) {
  std::vector<int64_t> steps;
  return list(folder, steps);
}

std::optional<FoundCheckpoint> newest_checkpoint(const fs::path& folder, std::vector<std::string>* skipped) {
  std::vector<std::string> wrong;
  std::vector<int64_t> before;
  for (;;) {
    std::vector<int64_t> steps;
    const Status listed = list(folder, steps);
    // No folder without checkpoints: there may be some.
    if (!listed.ok()) wrong.push_back(listed.error().message);
    // Where another training writes, what was listed may go while it is looked at, and newer ones come.
    if (steps == before) break;
    wrong.clear();
    for (const int64_t step : steps) {
      const fs::path path = path_of(folder, step);
      auto state = check_checkpoint(path);
      if (state.ok()) {
        if (skipped != nullptr) *skipped = std::move(wrong);
        return FoundCheckpoint{step, path, std::move(*state)};
      }
      wrong.push_back(state.error().message);
    }
    before = steps;
  }
  if (skipped != nullptr) *skipped = std::move(wrong);
  return std::nullopt;
}

Result<Checkpoints> Checkpoints::open(fs::path folder, int keep) {
  std::error_code error;
  if (fs::create_directories(folder, error)) TRY(sync_folder(folder.parent_path()));
  if (error) return file_error("create", folder, error.value());
  Fd lock(::open((folder / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock) return file_error("create", folder / kLock, errno);
  // All to itself: nobody else lives. A file system without locks keeps what is left unfinished.
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
    for (const std::string& name : names_in(folder, error)) {
      if (name.starts_with(kUnfinished)) delete_all(folder / name);
    }
    if (error) return file_error("list", folder, error.value());
  }
  // Who has it to itself at this moment only looks through the folder.
  while (::flock(lock.get(), LOCK_SH) != 0 && errno == EINTR) {}
  return Checkpoints(std::move(folder), std::max(1, keep), std::move(lock));
}

Status Checkpoints::save(int64_t step, const CheckpointContent& content) {
  TRY(check_finite(content.model));
  TRY(check_finite(content.optimizer));
  settle();
  return save_in(folder_, keep_, step, content);
}

Status Checkpoints::save_behind(int64_t step, const CheckpointContent& content) {
  TRY(check_finite(content.model));
  TRY(check_finite(content.optimizer));
  // Where one failed, the next is not left to chance.
  if (!settle()) return save_in(folder_, keep_, step, content);
  try {
    if (content.stays != nullptr) {
      on_its_way_ = std::async(std::launch::async, save_in, folder_, keep_, step, content);
      return ok();
    }
    if (auto written = Unfinished::write(folder_, step, content); written.ok()) {
      on_its_way_ = std::async(std::launch::async, [keep = keep_, unfinished = std::move(*written)]() mutable {
        return unfinished.commit(keep);
      });
      return ok();
    }
  } catch (const std::system_error&) {
    // No thread is to be had.
  }
  return save_in(folder_, keep_, step, content);
}

bool Checkpoints::settle() {
  if (!on_its_way_.valid()) return true;
  const Status saved = on_its_way_.get();
  if (!saved.ok()) lost_ = saved.error().message;
  return saved.ok();
}

Status write_model(const fs::path& path, std::span<const TensorView> tensors, const Metadata& metadata) {
  TRY(check_finite(tensors));
  return replace_file(path, [&](FileWriter& file) { return write_safetensors(file, tensors, metadata); });
}

}  // namespace dtrain::engine
