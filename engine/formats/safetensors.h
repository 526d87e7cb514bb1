// Tensors in a file as the safetensors format has them: the length of a JSON header as a u64, the
// header {name: {dtype, shape, data_offsets}}, the data without holes. Little endian, row-major.
// https://huggingface.co/docs/safetensors (2024)
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/formats/file_writer.h"
#include "engine/mapped_file.h"
#include "schema/result.h"

namespace dtrain::engine {

struct TensorView {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;
};

using Metadata = std::map<std::string, std::string>;

// Every tensor is F32. Leaves the writer open.
Status write_safetensors(FileWriter& file, std::span<const TensorView> tensors, const Metadata& metadata);

// Owner: who reads. Every bound is checked when it is opened.
class SafetensorsFile {
 public:
  // DataLoss names the file, the tensor, and what is wrong.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const Metadata& metadata() const { return metadata_; }
  std::vector<std::string> names() const;
  // NotFound: there is none of that name. InvalidArgument: it has another shape or is no F32.
  Status check(const std::string& name, std::span<const int64_t> shape) const;
  Status read(const std::string& name, std::span<const int64_t> shape, std::span<float> values) const;

 private:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    uint64_t begin = 0, bytes = 0;   // in the file
  };
  explicit SafetensorsFile(std::filesystem::path path, MappedFile file)
      : path_(std::move(path)), file_(std::move(file)) {}
  Status parse();
  Status read_at(uint64_t offset, std::span<std::byte> to) const;

  std::filesystem::path path_;
  MappedFile file_;
  Metadata metadata_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace dtrain::engine
