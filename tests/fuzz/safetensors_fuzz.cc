// Any bytes as a safetensors file: refused, or every tensor in it can be read, and is read back the
// same from what is written of them. The first byte chooses: a file as it is, or a header alone, which
// gets its length and as many bytes of data as it asks for.
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/formats/safetensors.h"
#include "tests/fuzz/scratch.h"

using namespace dtrain;
using namespace dtrain::engine;
using namespace dtrain::fuzz;
using Json = nlohmann::json;

namespace {

constexpr uint64_t kMostData = 1 << 16;

std::string with_length(std::string_view header) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + std::string(header);
}

// A file of that header: data as far as its tensors reach, if that is not far.
std::string file_of(std::string_view header) {
  std::string file = with_length(header);
  const Json json = Json::parse(header, nullptr, false);
  uint64_t data = 0;
  if (json.is_object()) {
    for (const auto& [name, entry] : json.items()) {
      const Json offsets = entry.is_object() ? entry.value("data_offsets", Json()) : Json();
      if (offsets.size() == 2 && offsets.is_array() && offsets[1].is_number_unsigned()) {
        data = std::max(data, offsets[1].get<uint64_t>());
      }
    }
  }
  for (uint64_t i = 0; i < std::min(data, kMostData); ++i) file += static_cast<char>(i);
  return file;
}

Json header_of(std::string_view file) {
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  return Json::parse(file.substr(sizeof size, size), nullptr, false);
}

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
  bool operator==(const Tensor& other) const {  // bit for bit: what is no number equals nothing
    return shape == other.shape && values.size() == other.values.size() &&
           (values.empty() ||
            std::memcmp(values.data(), other.values.data(), values.size() * sizeof(float)) == 0);
  }
};

// Those that are F32, by their names.
std::map<std::string, Tensor> tensors_of(const SafetensorsFile& file, const Json& header) {
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : file.names()) {
    const Json& entry = header.at(name);
    Tensor tensor{entry.at("shape").get<std::vector<int64_t>>(), {}};
    const bool floats = entry.at("dtype") == "F32";
    const auto begin = entry.at("data_offsets")[0].get<size_t>();
    const auto end = entry.at("data_offsets")[1].get<size_t>();
    tensor.values.resize(floats ? (end - begin) / sizeof(float) : 0);
    const Status read = file.read(name, tensor.shape, tensor.values);
    INVARIANT(read.ok() == floats, "what is F32 is read, and nothing else");
    std::vector<int64_t> other = tensor.shape;
    other.push_back(1);
    INVARIANT(!file.read(name, other, tensor.values).ok(), "not with another shape");
    if (floats) tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

void check_written(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors,
                   const Metadata& metadata) {
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) views.push_back({name, tensor.shape, tensor.values});
  {
    auto writer = FileWriter::create(path);
    INVARIANT(writer.ok() && write_safetensors(*writer, views, metadata).ok(), "it is written");
  }
  const auto again = SafetensorsFile::open(path);
  INVARIANT(again.ok(), "what was written opens");
  INVARIANT(again->metadata() == metadata, "with its metadata");
  INVARIANT(tensors_of(*again, header_of(get(path))) == tensors, "and its tensors");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const Scratch scratch;
  const auto path = scratch.path() / "x.safetensors";
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string bytes = data[0] == 'h' ? file_of(rest) : std::string(rest);
  put(path, bytes);
  std::map<std::string, Tensor> tensors;
  Metadata metadata;
  {
    const auto file = SafetensorsFile::open(path);
    if (!file.ok()) {
      INVARIANT(file.error().code == Code::DataLoss, "all that is wrong is damage");
      INVARIANT(file.error().message.find(path.native()) != std::string::npos, "the file is named");
      return 0;
    }
    tensors = tensors_of(*file, header_of(bytes));
    metadata = file->metadata();
  }
  put(path, std::string_view(bytes).substr(0, bytes.size() - 1));
  INVARIANT(!SafetensorsFile::open(path).ok(), "a file that is cut off is not whole");
  check_written(path, tensors, metadata);
  return 0;
}
