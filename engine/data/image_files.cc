#include "engine/data/image_files.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/data/idx.h"
#include "engine/data/npy.h"

namespace dtrain::engine {

namespace {

namespace fs = std::filesystem;

constexpr const char* kExpected =
    "a folder for images holds train-images-idx3-ubyte and train-labels-idx1-ubyte (t10k-... for a "
    "test set; .gz too), or images.npy and labels.npy";

// "train-" of train-images-idx3-ubyte.gz, when that is what `kind` files are called.
std::optional<std::string> prefix_of(std::string name, std::string_view kind, char dimensions) {
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  for (const char between : {'-', '.'}) {
    const std::string suffix = fmt::format("{}{}idx{}-ubyte", kind, between, dimensions);
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return std::nullopt;
}

bool is_of(Part part, const std::string& prefix) {
  if (part == Part::Train) return prefix.starts_with("train");
  return prefix.starts_with("t10k") || prefix.starts_with("test");
}

// The file of that kind in the folder; of several, the one of that part.
Result<fs::path> choose(const fs::path& folder, Part part, std::string_view kind, char dimensions) {
  std::vector<fs::path> all, of_part;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const auto prefix = prefix_of(at->path().filename().string(), kind, dimensions);
    // Some archives of MNIST unpack to a folder of each name, too.
    std::error_code ignored;
    if (!prefix || !at->is_regular_file(ignored)) continue;
    // The same again, as torchvision leaves what it has fetched and unpacked.
    if (at->path().extension() == ".gz" && fs::is_regular_file(fs::path(at->path()).replace_extension(), ignored)) continue;
    all.push_back(at->path());
    if (is_of(part, *prefix)) of_part.push_back(at->path());
  }
  if (error) {
    return Error{Code::NotFound, fmt::format("{}: {}", folder.native(), error.message()),
                 kExpected};
  }
  // One alone is taken whatever it is called, but that a test set that is missing is not the training set.
  const bool is_other = part == Part::Test && all.size() == 1 &&
                        is_of(Part::Train, *prefix_of(all.front().filename().string(), kind, dimensions));
  auto& chosen = all.size() == 1 && !is_other ? all : of_part;
  if (chosen.size() == 1) return chosen.front();
  if (all.empty()) {
    return Error{Code::NotFound, fmt::format("{}: no file of {}", folder.native(), kind),
                 kExpected};
  }
  std::vector<std::string> names;
  for (const fs::path& path : all) names.push_back(path.filename().string());
  std::sort(names.begin(), names.end());
  return Error{
      Code::InvalidArgument,
      fmt::format("{}: {} files of {} for {} among {}", folder.native(), chosen.size(), kind,
                  part == Part::Train ? "training" : "testing", fmt::join(names, ", ")),
      kExpected};
}

Error bad(const std::string& path, std::string what) {
  return {Code::InvalidArgument, fmt::format("{}: {}", path, what), ""};
}

Status take_labels(ImageFiles& files, const std::vector<int64_t>& labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= kMostClasses) {
      return bad(files.labels_path, fmt::format("label {} at index {} is not in 0 to {}", labels[i],
                                                i, kMostClasses - 1));
    }
  }
  files.labels.assign(labels.begin(), labels.end());
  return ok();
}

Status read_idx_pair(ImageFiles& files) {
  TRY(Idx images, read_idx(files.images_path, kIdxImages));
  TRY(const Idx labels, read_idx(files.labels_path, kIdxLabels));
  files.count = images.shape[0];
  files.shape = {1, images.shape[1], images.shape[2]};
  files.bytes = std::move(images.bytes);
  return take_labels(files, {labels.bytes.begin(), labels.bytes.end()});
}

Status read_npy_pair(ImageFiles& files) {
  TRY(const Npy images, read_npy(files.images_path));
  TRY(const Npy labels, read_npy(files.labels_path));
  const auto& shape = images.shape;
  if (shape.size() < 2 || shape.size() > 4) {
    return bad(files.images_path, fmt::format("shape ({}), expected [count][features], "
                                              "[count][height][width] or [count][channels][height]"
                                              "[width]",
                                              fmt::join(shape, ", ")));
  }
  files.count = shape[0];
  files.shape = {1, 1, 1};
  std::copy(shape.begin() + 1, shape.end(),
            files.shape.end() - static_cast<long>(shape.size() - 1));
  if (images.type == NpyType::U8) {
    const auto* first = reinterpret_cast<const uint8_t*>(images.bytes.data());
    files.bytes.assign(first, first + images.bytes.size());
  } else {
    files.floats = images.floats();
    const auto found = std::find_if(files.floats.begin(), files.floats.end(),
                                    [](float value) { return !std::isfinite(value); });
    if (found != files.floats.end()) {
      const auto each =
          static_cast<int64_t>(files.floats.size()) / std::max<int64_t>(files.count, 1);
      return bad(files.images_path, fmt::format("image {} holds a number that is not finite as float32",
                                                (found - files.floats.begin()) / each));
    }
  }
  if (labels.shape.size() != 1) {
    return bad(files.labels_path, fmt::format("shape ({}), expected one number an image",
                                              fmt::join(labels.shape, ", ")));
  }
  auto numbers = labels.integers();
  if (!numbers.ok()) return std::move(numbers).error().with_context(files.labels_path);
  return take_labels(files, *numbers);
}

}  // namespace

Result<ImageFiles> read_image_files(const fs::path& folder, Part part) {
  ImageFiles files;
  std::error_code ignored;
  if (fs::exists(folder / "images.npy", ignored)) {
    files.images_path = folder / "images.npy";
    files.labels_path = folder / "labels.npy";
    TRY(read_npy_pair(files));
  } else {
    TRY(const fs::path images, choose(folder, part, "images", '3'));
    TRY(const fs::path labels, choose(folder, part, "labels", '1'));
    files.images_path = images;
    files.labels_path = labels;
    TRY(read_idx_pair(files));
  }
  const auto labels = static_cast<int64_t>(files.labels.size());
  if (files.count != labels) {
    return bad(files.labels_path, fmt::format("{} labels, and {} has {} images", labels,
                                              files.images_path, files.count));
  }
  if (files.count == 0) return bad(files.images_path, "no images");
  if (std::ranges::count(files.shape, 0) > 0) {
    return bad(files.images_path, "images without pixels");
  }
  return files;
}

}  // namespace dtrain::engine
