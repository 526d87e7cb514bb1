#include "cli/event_wire.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace dtrain::cli {

namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

template <typename T>
T load(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

enum class WireType : uint32_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

// The fields of one message in a row.
class MessageFields {
 public:
  explicit MessageFields(std::string_view message) : rest_(message) {}

  // False at the end, and where the bytes are no message.
  bool next() {
    uint64_t tag = 0;
    if (rest_.empty() || !take_varint(tag)) return false;
    number_ = tag >> 3;
    wire_ = static_cast<WireType>(tag & 7);
    switch (wire_) {
      case WireType::Varint:
        return take_varint(varint_);
      case WireType::Fixed64:
        return take_bytes(8);
      case WireType::Fixed32:
        return take_bytes(4);
      case WireType::Bytes: {
        uint64_t size = 0;
        return take_varint(size) && take_bytes(size);
      }
    }
    return false;  // groups: nobody writes them
  }

  bool is(uint64_t number, WireType wire) const { return number_ == number && wire_ == wire; }
  uint64_t number() const { return number_; }
  WireType wire() const { return wire_; }
  uint64_t varint() const { return varint_; }
  std::string_view bytes() const { return bytes_; }

 private:
  bool take_varint(uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return false;
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool take_bytes(uint64_t size) {
    if (size > rest_.size()) return false;
    bytes_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
  uint64_t number_ = 0;
  WireType wire_ = WireType::Varint;
  uint64_t varint_ = 0;
  std::string_view bytes_;
};

// TensorFlow's DataType, as far as it means numbers.
enum DataType : uint64_t {
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kUint16 = 17,
  kHalf = 19,
  kUint32 = 22,
  kUint64 = 23,
};

double from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

double from_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  double value = 0;
  if (exponent == 0x1f) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(fraction + 1024, exponent - 25);
  }
  return bits & 0x8000 ? -value : value;
}

template <typename T>
std::optional<double> content_as(std::string_view content) {
  if (content.size() != sizeof(T)) return std::nullopt;
  return static_cast<double>(load<T>(content));
}

// tensor_content: the value as it lies in memory.
std::optional<double> from_content(uint64_t type, std::string_view content) {
  switch (type) {
    case kFloat:
      return content_as<float>(content);
    case kDouble:
      return content_as<double>(content);
    case kInt32:
      return content_as<int32_t>(content);
    case kUint8:
    case kBool:
      return content_as<uint8_t>(content);
    case kInt16:
      return content_as<int16_t>(content);
    case kInt8:
      return content_as<int8_t>(content);
    case kInt64:
      return content_as<int64_t>(content);
    case kUint16:
      return content_as<uint16_t>(content);
    case kUint32:
      return content_as<uint32_t>(content);
    case kUint64:
      return content_as<uint64_t>(content);
    case kHalf:
      if (content.size() == 2) return from_half(load<uint16_t>(content));
      return std::nullopt;
    case kBfloat16:
      if (content.size() == 2) return from_bfloat16(load<uint16_t>(content));
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// The number of the field that holds values of the type, one by one.
uint64_t value_field(uint64_t type) {
  switch (type) {
    case kFloat:
      return 5;
    case kDouble:
      return 6;
    case kInt32:
    case kUint8:
    case kInt16:
    case kInt8:
    case kUint16:
      return 7;
    case kInt64:
      return 10;
    case kBool:
      return 11;
    case kHalf:
    case kBfloat16:
      return 13;
    case kUint32:
      return 16;
    case kUint64:
      return 17;
    default:
      return 0;
  }
}

double from_varint(uint64_t type, uint64_t value) {
  switch (type) {
    case kHalf:
      return from_half(static_cast<uint16_t>(value));
    case kBfloat16:
      return from_bfloat16(static_cast<uint16_t>(value));
    case kUint32:
    case kUint64:
      return static_cast<double>(value);
    default:
      return static_cast<double>(static_cast<int64_t>(value));
  }
}

// The first value of such a field, packed or not.
std::optional<double> first_value(uint64_t type, const MessageFields& field) {
  if (type == kFloat) {
    if (field.wire() == WireType::Varint || field.bytes().size() < 4) return std::nullopt;
    return load<float>(field.bytes());
  }
  if (type == kDouble) {
    if (field.wire() == WireType::Varint || field.bytes().size() < 8) return std::nullopt;
    return load<double>(field.bytes());
  }
  if (field.wire() == WireType::Varint) return from_varint(type, field.varint());
  if (field.wire() != WireType::Bytes) return std::nullopt;
  uint64_t value = 0;
  unsigned shift = 0;
  for (const char c : field.bytes()) {
    const auto byte = static_cast<uint8_t>(c);
    if (shift >= 64) return std::nullopt;
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return from_varint(type, value);
    shift += 7;
  }
  return std::nullopt;
}

bool has_dimensions(std::string_view shape) {
  MessageFields fields(shape);
  while (fields.next()) {
    if (fields.is(2, WireType::Bytes)) return true;                           // dim
    if (fields.is(3, WireType::Varint) && fields.varint() != 0) return true;  // unknown_rank
  }
  return false;
}

// A TensorProto of rank 0.
std::optional<double> read_tensor(std::string_view tensor) {
  uint64_t type = 0;
  MessageFields fields(tensor);
  while (fields.next()) {
    if (fields.is(1, WireType::Varint)) type = fields.varint();
    if (fields.is(2, WireType::Bytes) && has_dimensions(fields.bytes())) return std::nullopt;
  }
  // Again, now that the type is known: the fields may come in any order.
  const uint64_t wanted = value_field(type);
  if (wanted == 0) return std::nullopt;
  fields = MessageFields(tensor);
  while (fields.next()) {
    if (fields.is(4, WireType::Bytes) && !fields.bytes().empty()) {
      return from_content(type, fields.bytes());
    }
    if (fields.number() == wanted) return first_value(type, fields);
  }
  return std::nullopt;
}

// A Summary.Value.
void read_value(std::string_view message, int64_t step,
                const std::function<void(const EventScalar&)>& found) {
  EventScalar scalar{{}, step, 0};
  std::optional<double> value;
  MessageFields fields(message);
  while (fields.next()) {
    if (fields.is(1, WireType::Bytes)) scalar.tag = fields.bytes();
    if (fields.is(2, WireType::Fixed32)) value = load<float>(fields.bytes());
    if (fields.is(8, WireType::Bytes)) value = read_tensor(fields.bytes());
  }
  if (!value || scalar.tag.empty()) return;
  scalar.value = *value;
  found(scalar);
}

// A SessionLog with the status START.
bool is_start(std::string_view session_log) {
  uint64_t status = 0;
  MessageFields fields(session_log);
  while (fields.next()) {
    if (fields.is(1, WireType::Varint)) status = fields.varint();
  }
  return status == 1;
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::optional<int64_t> read_event(std::string_view message,
                                  const std::function<void(const EventScalar&)>& found) {
  int64_t step = 0;
  bool starts = false;
  std::string_view summary;
  MessageFields fields(message);
  while (fields.next()) {
    if (fields.is(2, WireType::Varint)) step = static_cast<int64_t>(fields.varint());
    if (fields.is(5, WireType::Bytes)) summary = fields.bytes();
    if (fields.is(7, WireType::Bytes)) starts = is_start(fields.bytes());
  }
  MessageFields values(summary);
  while (values.next()) {
    if (values.is(1, WireType::Bytes)) read_value(values.bytes(), step, found);
  }
  return starts ? std::optional(step) : std::nullopt;
}

}  // namespace dtrain::cli
