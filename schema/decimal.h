// Exact decimal numbers: 0.1 + 0.1 + 0.1 is 0.3, and is written so.
//
// Ranges of hyperparameters, sizes and durations are written by people in decimals; binary floating
// point would turn a step of 0.1 into 0.30000000000000004.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// mantissa * 10^-scale, with 0 <= scale <= 18 and no trailing zero after the point.
struct Decimal {
  int64_t mantissa = 0;
  int scale = 0;
  bool operator==(const Decimal&) const = default;
};

// 3, -0.5, .25, 1e-6. Nothing when it is not a number or needs more than 18 digits.
std::optional<Decimal> parse_decimal(std::string_view text);
std::string to_string(const Decimal& value);  // never with an exponent: 0.000001

// value * factor, rounded towards zero; nothing on overflow. factor >= 1.
std::optional<int64_t> multiply(const Decimal& value, int64_t factor);

// min, min + step, ... up to and including max. step > 0 and min <= max.
class DecimalRange {
 public:
  // Nothing when the three can't be written with one scale in 64 bits.
  static std::optional<DecimalRange> make(const Decimal& min, const Decimal& max,
                                          const Decimal& step);
  uint64_t count() const { return count_; }
  std::string at(uint64_t index) const;  // index < count()

 private:
  int64_t first_ = 0;
  int64_t step_ = 1;
  int scale_ = 0;
  uint64_t count_ = 0;
};

}  // namespace dtrain
