// A Dataset is what is learned from or tested on: images with a label each, or a row of tokens cut
// into windows. It is checked as a whole when it is opened; later nothing can be wrong with it, but with tokens if
// somebody changes the file.
//
// Owner: the process. Thread: any, at once; nothing changes after open().
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/data/image_files.h"
#include "engine/data/tokens.h"
#include "engine/kernels/kernels.h"
#include "schema/result.h"

namespace dtrain::engine {

struct DatasetOptions {
  Part part = Part::Train;
  int64_t context = 0;     // tokens of a window; 0: a path that holds tokens is refused
  int64_t vocabulary = 0;  // that tokens must be below; 0: what the training set shows
};

class Dataset {
 public:
  enum class Kind { Images, Tokens };

  // Errors are InvalidArgument or NotFound where the same files would be refused again.
  // A folder holds images (image_files.h), a file tokens (tokens.h). A test set is opened `like`
  // its training set: it must have the same shape, and its labels or tokens must be known there.
  static Result<Dataset> open(const std::filesystem::path& path, const DatasetOptions& options);
  static Result<Dataset> open_like(const Dataset& training, const std::filesystem::path& path);

  Kind kind() const { return tokens_ ? Kind::Tokens : Kind::Images; }
  int64_t size() const { return size_; }  // samples: images or windows
  // Tells it from other data of the same form: a CRC-32C of images and labels in their order, or as TokenFile's.
  uint32_t checksum() const { return checksum_; }

  // Images. Bytes count as 0 to 1, other numbers as they are.
  const std::array<int64_t, 3>& shape() const { return files_.shape; }  // channels, height, width
  int64_t pixels() const { return shape()[0] * shape()[1] * shape()[2]; }
  int64_t classes() const { return classes_; }  // the largest label + 1, at least 2
  // "10 of 12 classes have no image: ...", which a damaged label would do; or nothing.
  std::string empty_classes() const;
  // Over all pixels of the training set.
  double mean() const { return mean_; }
  double deviation() const { return deviation_; }
  // The value that most pixels have of all in the training set, as images() gives it.
  const Common<float>& common() const { return common_; }
  // x: [ids][pixels()], with the mean taken off and divided by the deviation. labels: [ids].
  void images(std::span<const uint32_t> ids, float* x, int32_t* labels) const;

  // Tokens, which may be more than memory holds.
  int64_t token_count() const { return tokens_ ? tokens_->size() : 0; }
  int64_t context() const { return context_; }
  int64_t vocabulary() const { return tokens_ ? tokens_->vocabulary() : 0; }
  // Those that will be read next: a disk brings them meanwhile.
  void ask_for(std::span<const uint32_t> ids) const;
  // Both [ids][context()]; a target is the token after its input.
  // An error if the file became shorter or has tokens that are not known: it was changed.
  Status tokens(std::span<const uint32_t> ids, int32_t* inputs, int32_t* targets) const;

 private:
  Dataset() = default;
  static Result<Dataset> read(const std::filesystem::path& path, const DatasetOptions& options);
  void measure();
  template <class T>
  void set_common(T value, int64_t count);
  void standardise(const uint8_t* bytes, int64_t count, float* x) const;
  void standardise(const float* numbers, int64_t count, float* x) const;
  Status check_like(const Dataset& training) const;

  int64_t size_ = 0;
  uint32_t checksum_ = 0;
  ImageFiles files_;
  int64_t classes_ = 0;
  double mean_ = 0, deviation_ = 1;
  Common<float> common_;
  std::unique_ptr<TokenFile> tokens_;
  int64_t context_ = 0;
};

}  // namespace dtrain::engine
