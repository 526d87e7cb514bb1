#include "engine/random.h"

#include <bit>
#include <cmath>

namespace dtrain::engine {

namespace {

constexpr double kTo53Bits = 1.0 / 9007199254740992.0;  // 2^-53

uint64_t join(uint32_t low, uint32_t high) {
  return uint64_t{high} << 32 | low;
}

double to_unit(uint64_t bits) {
  return static_cast<double>(bits >> 11) * kTo53Bits;
}
// In (0, 1): both ends left out, where a quantile is infinite.
double to_open_unit(uint64_t bits) {
  return (static_cast<double>(bits >> 11) + 0.5) * kTo53Bits;
}

// ln(x) for normal x > 0, by additions, multiplications and one division: x = m 2^e, and
// ln(m) = 2 atanh((m - 1) / (m + 1)).
double natural_log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffff) | 0x3ff0000000000000);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double z = (m - 1) / (m + 1);  // |z| < 0.172: the 12th term is below 1e-18
  const double square = z * z;
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * z * sum + exponent * 0.69314718055994530942;
}

template <size_t n>
double polynomial(const double (&highest_first)[n], double x) {
  double sum = 0;
  for (const double coefficient : highest_first) sum = sum * x + coefficient;
  return sum;
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c;
}

double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    static constexpr double above[] = {2.5090809287301226727e+3, 3.3430575583588128105e+4,
                                       6.7265770927008700853e+4, 4.5921953931549871457e+4,
                                       1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                       1.3314166789178437745e+2, 3.3871328727963666080e+0};
    static constexpr double below[] = {5.2264952788528545610e+3, 2.8729085735721942674e+4,
                                       3.9307895800092710610e+4, 2.1213794301586595867e+4,
                                       5.3941960214247511077e+3, 6.8718700749205790830e+2,
                                       4.2313330701600911252e+1, 1.0};
    const double r = 0.180625 - q * q;
    return q * polynomial(above, r) / polynomial(below, r);
  }
  const double r = std::sqrt(-natural_log(q < 0 ? p : 1 - p));
  double x = 0;
  if (r <= 5) {
    static constexpr double above[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                                       2.41780725177450611770e-1, 1.27045825245236838258e+0,
                                       3.64784832476320460504e+0, 5.76949722146069140550e+0,
                                       4.63033784615654529590e+0, 1.42343711074968357734e+0};
    static constexpr double below[] = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                       1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                       6.89767334985100004550e-1, 1.67638483018380384940e+0,
                                       2.05319162663775882187e+0, 1.0};
    x = polynomial(above, r - 1.6) / polynomial(below, r - 1.6);
  } else {
    static constexpr double above[] = {2.01033439929228813265e-7, 2.71155556874348757815e-5,
                                       1.24266094738807843860e-3, 2.65321895265761230930e-2,
                                       2.96560571828504891230e-1, 1.78482653991729133580e+0,
                                       5.46378491116411436990e+0, 6.65790464350110377720e+0};
    static constexpr double below[] = {2.04426310338993978564e-15, 1.42151175831644588870e-7,
                                       1.84631831751005468180e-5,  7.86869131145613259100e-4,
                                       1.48753612908506148525e-2,  1.36929880922735805310e-1,
                                       5.99832206555887937690e-1,  1.0};
    x = polynomial(above, r - 5) / polynomial(below, r - 5);
  }
  return q < 0 ? -x : x;
}

uint32_t RandomRow::word() {
  if (left_ == 0) {
    words_ = philox(counter_, key_);
    ++counter_[0];
    left_ = 4;
  }
  return words_[static_cast<size_t>(4 - left_--)];
}

uint64_t RandomRow::word64() {
  const uint32_t low = word();
  return join(low, word());
}

double RandomRow::uniform() {
  return to_unit(word64());
}

double RandomRow::normal() {
  return normal_quantile(to_open_unit(word64()));
}

uint64_t RandomRow::below(uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{word64()} * bound >> 64);
}

}  // namespace dtrain::engine
