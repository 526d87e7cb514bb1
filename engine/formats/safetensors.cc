#include "engine/formats/safetensors.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace dtrain::engine {

namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit

int64_t bytes_of(const std::string& dtype) {
  static const std::map<std::string, int64_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"I64", 8},     {"U64", 8}, {"F64", 8}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

}  // namespace

Status write_safetensors(FileWriter& file, std::span<const TensorView> tensors, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();  // of no tensors, too
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    const uint64_t end = offset + tensor.values.size_bytes();
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // data begin at a multiple of 8
  const uint64_t size = text.size();
  TRY(file.write(std::as_bytes(std::span(&size, 1))));
  TRY(file.write(text));
  for (const TensorView& tensor : tensors) TRY(file.write(std::as_bytes(tensor.values)));
  return ok();
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  TRY(MappedFile mapped, MappedFile::open(path));
  SafetensorsFile file(path, std::move(mapped));
  TRY(file.parse());
  return file;
}

Status SafetensorsFile::parse() {
  const auto damaged = [&](const std::string& what) {
    return Error{Code::DataLoss, fmt::format("{}: {}", path_.native(), what), ""};
  };
  const size_t size = file_.bytes().size();
  uint64_t header_size = 0;
  if (size < sizeof header_size) return damaged("too short for a safetensors file");
  TRY(read_at(0, std::as_writable_bytes(std::span(&header_size, 1))));
  if (header_size > kMostHeaderBytes || header_size > size - sizeof header_size) {
    return damaged(fmt::format("cut off, or no safetensors file: its header would be {} bytes, the file has {}",
                               header_size, size));
  }
  std::string text(header_size, '\0');
  TRY(read_at(sizeof header_size, std::as_writable_bytes(std::span(text))));
  const Json header = Json::parse(text, nullptr, false);
  if (!header.is_object()) return damaged("its header is no JSON object");
  const uint64_t data_begin = sizeof header_size + header_size, data_size = size - data_begin;

  std::set<std::pair<uint64_t, uint64_t>> ranges;
  try {
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        metadata_ = entry.get<Metadata>();
        continue;
      }
      Tensor tensor{.dtype = entry.at("dtype").get<std::string>(), .shape = {}};
      uint64_t elements = 1;
      for (const Json& dimension : entry.at("shape")) {
        if (!dimension.is_number_unsigned()) return damaged(fmt::format("tensor {} has no proper shape", name));
        const auto each = dimension.get<uint64_t>();
        if (__builtin_mul_overflow(elements, each, &elements) || each > INT64_MAX) {
          return damaged(fmt::format("tensor {} is too large", name));
        }
        tensor.shape.push_back(static_cast<int64_t>(each));
      }
      const Json& offsets = entry.at("data_offsets");
      if (offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
        return damaged(fmt::format("tensor {} has no place", name));
      }
      const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
      const auto width = static_cast<uint64_t>(bytes_of(tensor.dtype));
      if (width == 0) return damaged(fmt::format("tensor {} has the unknown type {}", name, tensor.dtype));
      if (begin > end || end > data_size || __builtin_mul_overflow(elements, width, &tensor.bytes) || tensor.bytes != end - begin) {
        return damaged(fmt::format("tensor {} lies at {} to {} of {} bytes", name, begin, end, data_size));
      }
      tensor.begin = data_begin + begin;
      if (end > begin) ranges.insert({begin, end});
      tensors_.emplace(name, std::move(tensor));
    }
  } catch (const Json::exception&) {
    return damaged("its header is no table of tensors");
  }
  uint64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered) return damaged(fmt::format("tensors overlap or leave a hole at byte {}", begin));
    covered = end;
  }
  if (covered != data_size) return damaged(fmt::format("{} bytes belong to no tensor", data_size - covered));
  return ok();
}

Status SafetensorsFile::read_at(uint64_t offset, std::span<std::byte> to) const {
  Status read = try_to_read([&] { return file_.read(offset, to); });
  if (read.ok()) return ok();
  return std::move(read).error().with_context(path_.native());
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

Status SafetensorsFile::check(const std::string& name, std::span<const int64_t> shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return Error{Code::NotFound, fmt::format("{} has no tensor {}", path_.native(), name), ""};
  }
  const Tensor& tensor = found->second;
  if (tensor.dtype != "F32" || !std::ranges::equal(tensor.shape, shape)) {
    return Error{Code::InvalidArgument,
                 fmt::format("{}: {} is {} [{}], and the model has F32 [{}]", path_.native(), name, tensor.dtype,
                             fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")),
                 tensor.dtype == "F32" ? "" : "save its tensors as float32"};
  }
  return ok();
}

Status SafetensorsFile::read(const std::string& name, std::span<const int64_t> shape,
                             std::span<float> values) const {
  TRY(check(name, shape));
  const Tensor& tensor = tensors_.at(name);
  INVARIANT(values.size_bytes() == tensor.bytes, "the place is as large as its shape");
  TRY(read_at(tensor.begin, std::as_writable_bytes(values)));
  if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return ok();
  return Error{Code::InvalidArgument, fmt::format("{}: {} has a number that is not finite", path_.native(), name), ""};
}

}  // namespace dtrain::engine
