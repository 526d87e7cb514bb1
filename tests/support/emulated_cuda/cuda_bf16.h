// bfloat16 on the emulated device: the upper half of a float, rounded to nearest even.
#pragma once

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
  uint16_t bits = 0;

  __nv_bfloat16() = default;
  __nv_bfloat16(float value) {
    uint32_t whole;
    std::memcpy(&whole, &value, sizeof whole);
    const bool is_nan = (whole & 0x7fffffff) > 0x7f800000;
    bits = static_cast<uint16_t>(is_nan ? 0x7fff : (whole + 0x7fff + ((whole >> 16) & 1)) >> 16);
  }
  explicit __nv_bfloat16(double value) : __nv_bfloat16(static_cast<float>(value)) {}
  operator float() const {
    const uint32_t whole = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &whole, sizeof value);
    return value;
  }
};
