#include "engine/data/npy.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace dtrain::engine {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  std::string_view descr;
  bool column_major = false;
  std::vector<int64_t> shape;
};

size_t bytes_of(NpyType type) {
  switch (type) {
    case NpyType::U8:
      return 1;
    case NpyType::I32:
    case NpyType::F32:
      return 4;
    case NpyType::I64:
    case NpyType::F64:
      return 8;
  }
  return 0;
}

std::optional<NpyType> type_of(std::string_view descr) {
  if (descr == "|u1" || descr == "<u1") return NpyType::U8;
  if (descr == "<i4") return NpyType::I32;
  if (descr == "<i8") return NpyType::I64;
  if (descr == "<f4") return NpyType::F32;
  if (descr == "<f8") return NpyType::F64;
  return std::nullopt;
}

// What follows `key` in the header's Python dictionary.
std::optional<std::string_view> value_after(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  const size_t value = text.find_first_not_of(": ", at + key.size());
  if (value == std::string_view::npos) return std::nullopt;
  return text.substr(value);
}

// (), (3,), (3, 4)
std::optional<std::vector<int64_t>> read_shape(std::string_view text) {
  if (!text.starts_with('(')) return std::nullopt;
  const size_t end = text.find(')');
  if (end == std::string_view::npos) return std::nullopt;
  text = text.substr(1, end - 1);
  std::vector<int64_t> shape;
  for (;;) {
    const size_t digit = text.find_first_not_of(", ");
    if (digit == std::string_view::npos) return shape;
    text.remove_prefix(digit);
    int64_t dimension = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), dimension);
    if (read.ec != std::errc() || dimension < 0) return std::nullopt;
    shape.push_back(dimension);
    text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
  }
}

std::optional<Header> read_header(std::string_view text) {
  Header header;
  const auto descr = value_after(text, "'descr'");
  const auto order = value_after(text, "'fortran_order'");
  const auto shape = value_after(text, "'shape'");
  if (!descr || !order || !shape || !descr->starts_with('\'')) return std::nullopt;
  const size_t quote = descr->find('\'', 1);
  if (quote == std::string_view::npos) return std::nullopt;
  header.descr = descr->substr(1, quote - 1);
  header.column_major = order->starts_with("True");
  if (!header.column_major && !order->starts_with("False")) return std::nullopt;
  auto dimensions = read_shape(*shape);
  if (!dimensions) return std::nullopt;
  header.shape = std::move(*dimensions);
  return header;
}

template <typename T, typename To>
std::vector<To> converted(std::span<const std::byte> bytes) {
  std::vector<To> out(bytes.size() / sizeof(T));
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<To>(value);
  }
  return out;
}

Error unreadable(const std::filesystem::path& path, std::string what) {
  return {Code::DataLoss, fmt::format("{}: {}", path.native(), what), ""};
}

}  // namespace

Result<Npy> read_npy(const std::filesystem::path& path) {
  TRY(MappedFile file, MappedFile::open(path));
  const std::string_view all(reinterpret_cast<const char*>(file.bytes().data()),
                             file.bytes().size());
  if (!all.starts_with(kMagic)) {
    Error error = unreadable(path, "not an npy file (wrong magic)");
    error.hint = all.starts_with("PK") ? "an .npz holds several arrays: numpy.save writes each alone" : "numpy.save writes it";
    return error;
  }
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(all[at])); };
  const bool wide = all.size() >= 12 && byte(6) > 1;
  const size_t text_at = wide ? 12 : 10;
  if (all.size() < text_at) return unreadable(path, "cut off within its header");
  if (byte(6) < 1 || byte(6) > 3) {
    return unreadable(path, fmt::format("npy version {}, expected 1 to 3", byte(6)));
  }
  size_t length = byte(8) | byte(9) << 8;
  if (wide) length |= byte(10) << 16 | byte(11) << 24;
  if (all.size() - text_at < length) return unreadable(path, "cut off within its header");
  const auto header = read_header(all.substr(text_at, length));
  if (!header) return unreadable(path, "a header that makes no sense");

  const auto type = type_of(header->descr);
  if (!type) {
    return Error{Code::InvalidArgument,
                 fmt::format("{}: numbers of type {}", path.native(), header->descr),
                 "save it as uint8, int32, int64, float32 or float64, little endian"};
  }
  if (header->column_major) {
    return Error{Code::InvalidArgument, fmt::format("{}: in column-major order", path.native()),
                 "save np.ascontiguousarray(x)"};
  }
  const std::string_view data = all.substr(text_at + length);
  const bool empty = std::ranges::count(header->shape, 0) > 0;  // whatever stands before the 0
  uint64_t size = empty ? 0 : bytes_of(*type);
  bool fits = true;
  for (const int64_t dimension : header->shape) {
    const auto factor = static_cast<uint64_t>(dimension);
    fits = fits && (factor == 0 || size <= data.size() / factor);
    size *= factor;
  }
  if (!fits || size != data.size()) {
    return unreadable(path, fmt::format("{} bytes of data, and its shape ({}) of {} takes {}",
                                     data.size(), fmt::join(header->shape, ", "), header->descr,
                                     fits ? std::to_string(size) : "more"));
  }
  const auto bytes = file.bytes().subspan(text_at + length);
  return Npy{*type, header->shape, std::move(file), bytes};
}

int64_t Npy::size() const {
  return static_cast<int64_t>(bytes.size() / bytes_of(type));
}

std::vector<float> Npy::floats() const {
  switch (type) {
    case NpyType::U8:
      return converted<uint8_t, float>(bytes);
    case NpyType::I32:
      return converted<int32_t, float>(bytes);
    case NpyType::I64:
      return converted<int64_t, float>(bytes);
    case NpyType::F32:
      return converted<float, float>(bytes);
    case NpyType::F64:
      return converted<double, float>(bytes);
  }
  return {};
}

Result<std::vector<int64_t>> Npy::integers() const {
  switch (type) {
    case NpyType::U8:
      return converted<uint8_t, int64_t>(bytes);
    case NpyType::I32:
      return converted<int32_t, int64_t>(bytes);
    case NpyType::I64:
      return converted<int64_t, int64_t>(bytes);
    case NpyType::F32:
    case NpyType::F64:
      break;
  }
  const auto values =
      type == NpyType::F32 ? converted<float, double>(bytes) : converted<double, double>(bytes);
  std::vector<int64_t> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::fabs(values[i]) < 9e15) || values[i] != std::floor(values[i])) {
      return Error{Code::InvalidArgument,
                   fmt::format("{} at index {} is no whole number", values[i], i), ""};
    }
    out[i] = static_cast<int64_t>(values[i]);
  }
  return out;
}

}  // namespace dtrain::engine
