#include "engine/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "engine/formats/crc32c.h"

namespace dtrain::engine {

namespace fs = std::filesystem;

namespace {

// Damaged files stay damaged, and locked ones locked, however often a training starts.
Error refused(Error error) {
  if (error.code == Code::DataLoss || error.code == Code::PermissionDenied) error.code = Code::InvalidArgument;
  return error;
}

Result<ImageFiles> read_in_memory(const fs::path& folder, Part part) {
  try {
    return read_image_files(folder, part);
  } catch (const std::bad_alloc&) {
    return Error{Code::ResourceExhausted, fmt::format("{}: its images are more than there is memory for", folder.native()),
                 "images of uint8 instead of floats, or fewer of them"};
  }
}

uint32_t checksum_of(const ImageFiles& files) {
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  return crc32c(bytes(files.labels), crc32c(bytes(files.floats), crc32c(bytes(files.bytes))));
}

void prefetch(const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(from) + at);
}

}  // namespace

Result<Dataset> Dataset::read(const fs::path& path, const DatasetOptions& options) {
  Dataset set;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) {
    return Error{Code::NotFound, fmt::format("{}: {}", path.native(), error.message()),
                 "data: names a folder of images or a file of tokens"};
  }
  const bool folder = fs::is_directory(status);
  if (folder && options.context > 0) {
    return Error{Code::InvalidArgument,
                 fmt::format("{} is a folder, and the model reads tokens", path.native()),
                 "name a file of text or tokens"};
  }
  if (!folder && options.context == 0) {
    return Error{Code::InvalidArgument,
                 fmt::format("{} is a file, and the model reads images", path.native()),
                 "name the folder that holds the files of images and labels"};
  }
  if (folder) {
    auto files = read_in_memory(path, options.part);
    if (!files.ok()) return refused(std::move(files).error());
    set.files_ = std::move(*files);
    set.size_ = set.files_.count;
    set.checksum_ = checksum_of(set.files_);
    set.classes_ = std::max(2, *std::ranges::max_element(set.files_.labels) + 1);
  } else {
    auto tokens = TokenFile::open(path, options.vocabulary);
    if (!tokens.ok()) return refused(std::move(tokens).error());
    set.checksum_ = tokens->checksum();
    set.context_ = options.context;
    set.size_ = (tokens->size() - 1) / options.context;
    if (set.size_ == 0) {
      return Error{Code::InvalidArgument,
                   fmt::format("{}: {} tokens, and a context of {} takes {}", path.native(),
                               tokens->size(), options.context, options.context + 1),
                   "a smaller context, or more text"};
    }
    set.tokens_ = std::make_unique<TokenFile>(std::move(*tokens));
  }
  if (set.size_ > std::numeric_limits<uint32_t>::max()) {
    return Error{Code::InvalidArgument, fmt::format("{}: {} samples are more than 4294967295", path.native(), set.size_),
                 set.tokens_ ? "a larger context makes fewer" : ""};
  }
  return set;
}

Result<Dataset> Dataset::open(const fs::path& path, const DatasetOptions& options) {
  TRY(Dataset set, read(path, options));
  if (set.kind() == Kind::Images) set.measure();
  return set;
}

Result<Dataset> Dataset::open_like(const Dataset& training, const fs::path& path) {
  TRY(Dataset set, read(path, {.part = Part::Test,
                               .context = training.context(),
                               .vocabulary = training.vocabulary()}));
  if (set.kind() == Kind::Tokens) {
    if (set.tokens_->is_text() == training.tokens_->is_text()) return set;
    const auto form = [](const TokenFile& tokens) {
      return tokens.is_text() ? "text, a byte a token" : "tokens of 16 bits";
    };
    return Error{Code::InvalidArgument,
                 fmt::format("{} is {}, and what is trained on is {}", path.native(), form(*set.tokens_),
                             form(*training.tokens_)),
                 "a test set of the same form"};
  }
  TRY(set.check_like(training));
  set.classes_ = training.classes_;
  set.mean_ = training.mean_;
  set.deviation_ = training.deviation_;
  set.common_ = training.common_;
  return set;
}

Status Dataset::check_like(const Dataset& training) const {
  const auto bad = [](const std::string& path, std::string what) {
    return Error{Code::InvalidArgument, fmt::format("{}: {}", path, what), ""};
  };
  if (files_.shape != training.files_.shape ||
      files_.bytes.empty() != training.files_.bytes.empty()) {
    return bad(files_.images_path,
               fmt::format("images of [{}] {}, and {} has [{}] {}", fmt::join(files_.shape, ", "),
                           files_.bytes.empty() ? "numbers" : "bytes", training.files_.images_path,
                           fmt::join(training.files_.shape, ", "),
                           training.files_.bytes.empty() ? "numbers" : "bytes"));
  }
  for (size_t i = 0; i < files_.labels.size(); ++i) {
    if (files_.labels[i] >= training.classes_) {
      return bad(files_.labels_path,
                 fmt::format("label {} at index {}, and training has {} classes", files_.labels[i],
                             i, training.classes_));
    }
  }
  return ok();
}

std::string Dataset::empty_classes() const {
  std::vector<bool> seen(static_cast<size_t>(classes_));
  for (const int32_t label : files_.labels) seen[static_cast<size_t>(label)] = true;
  const auto empty = std::ranges::count(seen, false);
  if (empty == 0) return "";
  const auto largest = std::ranges::max_element(files_.labels);
  return fmt::format("{} of {} classes have no image: the largest label is {}, at index {} of {}", empty, classes_,
                     *largest, largest - files_.labels.begin(), files_.labels_path);
}

void Dataset::measure() {
  // Each value, and how often it is there.
  const auto standardise_by = [this](const auto& each_value) {
    double count = 0, sum = 0, squares = 0, least = INFINITY, most = -INFINITY;   // squares of the differences from the mean
    each_value([&](double value, double times) {
      count += times;
      sum += value * times;
      least = std::min(least, value);
      most = std::max(most, value);
    });
    mean_ = sum / count;
    each_value([&](double value, double times) { squares += times * (value - mean_) * (value - mean_); });
    // Images that are all the same have nothing to divide by; squares may be above 0, for the mean is rounded.
    deviation_ = least == most ? 1 : std::sqrt(squares / count);
  };
  if (!files_.bytes.empty()) {
    std::array<int64_t, 256> found{};
    for (const uint8_t byte : files_.bytes) ++found[byte];
    standardise_by([&](const auto& use) {
      for (size_t byte = 0; byte < found.size(); ++byte) {
        if (found[byte] > 0) use(static_cast<double>(byte) / 255, static_cast<double>(found[byte]));
      }
    });
    const auto most = std::ranges::max_element(found);
    set_common(static_cast<uint8_t>(most - found.begin()), *most);
  } else {
    standardise_by([&](const auto& use) {
      for (const float value : files_.floats) use(value, 1);
    });
    // A background is black or white.
    const auto [least, most] = std::ranges::minmax(files_.floats);
    const auto blacks = std::ranges::count(files_.floats, least), whites = std::ranges::count(files_.floats, most);
    set_common(blacks > whites ? least : most, std::max(blacks, whites));
  }
}

template <class T>
void Dataset::set_common(T value, int64_t count) {
  standardise(&value, 1, &common_.value);
  common_.share = static_cast<float>(count) / static_cast<float>(size_ * pixels());
}

void Dataset::standardise(const uint8_t* bytes, int64_t count, float* x) const {
  kernels<float>().standardise_bytes(count, bytes, static_cast<float>(mean_ * 255), static_cast<float>(1 / (deviation_ * 255)), x);
}
void Dataset::standardise(const float* numbers, int64_t count, float* x) const {
  kernels<float>().standardise_floats(count, numbers, static_cast<float>(mean_), static_cast<float>(1 / deviation_), x);
}

void Dataset::images(std::span<const uint32_t> ids, float* x, int32_t* labels) const {
  const auto each = static_cast<size_t>(pixels());
  const auto put = [&](const auto* all) {
    for (size_t i = 0; i < ids.size(); ++i, x += each) {
      const uint32_t id = ids[i];
      INVARIANT(id < files_.labels.size(), "the set has that sample");
      // Images lie apart, and the next one is far from the cache.
      if (i + 1 < ids.size()) prefetch(all + each * ids[i + 1], each * sizeof *all);
      standardise(all + each * id, pixels(), x);
      labels[i] = files_.labels[id];
    }
  };
  files_.bytes.empty() ? put(files_.floats.data()) : put(files_.bytes.data());
}

void Dataset::ask_for(std::span<const uint32_t> ids) const {
  for (const uint32_t id : ids) tokens_->ask_for(int64_t{id} * context_, context_ + 1);
}

Status Dataset::tokens(std::span<const uint32_t> ids, int32_t* inputs, int32_t* targets) const {
  const auto each = static_cast<size_t>(context_);
  TRY(tokens_->check());
  for (const uint32_t id : ids) {
    const int64_t begin = int64_t{id} * context_;
    TRY(tokens_->copy(begin, {inputs, each}));
    TRY(tokens_->copy(begin + 1, {targets, each}));
    inputs += each;
    targets += each;
  }
  return ok();
}

}  // namespace dtrain::engine
