#include "schema/decimal.h"

#include <fmt/format.h>

#include <algorithm>

#include "schema/result.h"

namespace dtrain {

namespace {

constexpr int kMaxScale = 18;
// Longer exponents could only name numbers that don't fit.
constexpr int kMaxExponent = 40;

// Takes the digits at the front of `text` off it and appends them to `digits`.
void take_digits(std::string_view& text, std::string& digits) {
  while (!text.empty() && is_digit(text[0])) {
    digits += text[0];
    text.remove_prefix(1);
  }
}

std::optional<int> take_exponent(std::string_view text) {
  if (text.empty()) return 0;
  if (text[0] != 'e' && text[0] != 'E') return std::nullopt;
  text.remove_prefix(1);
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  int exponent = 0;
  for (const char c : text) {
    if (!is_digit(c)) return std::nullopt;
    exponent = std::min(exponent * 10 + (c - '0'), kMaxExponent + 1);
  }
  if (exponent > kMaxExponent) return std::nullopt;
  return negative ? -exponent : exponent;
}

std::optional<int64_t> scaled_up(int64_t value, int powers_of_ten) {
  for (int i = 0; i < powers_of_ten; ++i) {
    if (__builtin_mul_overflow(value, int64_t{10}, &value)) return std::nullopt;
  }
  return value;
}

}  // namespace

std::optional<Decimal> parse_decimal(std::string_view text) {
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  std::string digits;
  take_digits(text, digits);
  size_t after_point = 0;
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    const size_t before_point = digits.size();
    take_digits(text, digits);
    after_point = digits.size() - before_point;
  }
  if (digits.empty() || after_point > 1000) return std::nullopt;
  const auto exponent = take_exponent(text);
  if (!exponent) return std::nullopt;

  int scale = static_cast<int>(after_point) - *exponent;
  while (scale > 0 && digits.size() > 1 && digits.back() == '0') {
    digits.pop_back();
    --scale;
  }
  int64_t mantissa = 0;
  for (const char digit : digits) {
    if (__builtin_mul_overflow(mantissa, int64_t{10}, &mantissa) ||
        __builtin_add_overflow(mantissa, int64_t{digit - '0'}, &mantissa)) {
      return std::nullopt;
    }
  }
  if (mantissa == 0) return Decimal{};
  if (scale < 0) {
    const auto whole = scaled_up(mantissa, -scale);
    if (!whole) return std::nullopt;
    mantissa = *whole;
    scale = 0;
  }
  if (scale > kMaxScale) return std::nullopt;
  return Decimal{negative ? -mantissa : mantissa, scale};
}

std::string to_string(const Decimal& value) {
  const bool negative = value.mantissa < 0;
  std::string digits = fmt::format("{}", value.mantissa);
  if (negative) digits.erase(0, 1);
  const auto scale = static_cast<size_t>(value.scale);
  if (digits.size() <= scale) digits.insert(0, scale + 1 - digits.size(), '0');
  if (scale > 0) {
    digits.insert(digits.size() - scale, 1, '.');
    while (digits.back() == '0') digits.pop_back();
    if (digits.back() == '.') digits.pop_back();
  }
  return negative ? "-" + digits : digits;
}

std::optional<int64_t> multiply(const Decimal& value, int64_t factor) {
  __extension__ using Wide = __int128;   // holds any product of two
  Wide product = Wide{value.mantissa} * factor;
  for (int i = 0; i < value.scale; ++i) product /= 10;
  if (product > INT64_MAX || product < INT64_MIN) return std::nullopt;
  return static_cast<int64_t>(product);
}

std::optional<DecimalRange> DecimalRange::make(const Decimal& min, const Decimal& max,
                                               const Decimal& step) {
  DecimalRange range;
  range.scale_ = std::max({min.scale, max.scale, step.scale});
  const auto first = scaled_up(min.mantissa, range.scale_ - min.scale);
  const auto last = scaled_up(max.mantissa, range.scale_ - max.scale);
  const auto stride = scaled_up(step.mantissa, range.scale_ - step.scale);
  int64_t span = 0;
  if (!first || !last || !stride || *stride <= 0 || *first > *last ||
      __builtin_sub_overflow(*last, *first, &span)) {
    return std::nullopt;
  }
  range.first_ = *first;
  range.step_ = *stride;
  range.count_ = static_cast<uint64_t>(span / *stride) + 1;
  return range;
}

std::string DecimalRange::at(uint64_t index) const {
  INVARIANT(index < count_, "inside the range");
  return to_string(Decimal{first_ + static_cast<int64_t>(index) * step_, scale_});
}

}  // namespace dtrain
