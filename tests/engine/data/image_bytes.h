// Small files of images and labels for tests.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/idx.h"

namespace dtrain::engine {

inline std::string idx_bytes(uint32_t magic, const std::vector<uint32_t>& shape,
                             const std::vector<uint8_t>& data) {
  auto bytes = idx_header(magic, shape);
  bytes.insert(bytes.end(), data.begin(), data.end());
  return {bytes.begin(), bytes.end()};
}

// `count` images of 2x3 pixels: pixel p of image i is 10 i + p.
inline std::string image_bytes(uint32_t count) {
  std::vector<uint8_t> data;
  for (uint32_t i = 0; i < count * 6; ++i) data.push_back(static_cast<uint8_t>(i / 6 * 10 + i % 6));
  return idx_bytes(kIdxImages, {count, 2, 3}, data);
}

inline std::string label_bytes(const std::vector<uint8_t>& labels) {
  return idx_bytes(kIdxLabels, {static_cast<uint32_t>(labels.size())}, labels);
}

inline std::string gzipped(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(bytes.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string npy_bytes(const std::string& descr, const std::string& shape,
                             const std::string& data, int version = 1, bool column_major = false) {
  std::string text = "{'descr': '" + descr +
                     "', 'fortran_order': " + (column_major ? "True" : "False") +
                     ", 'shape': " + shape + ", }\n";
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  out += static_cast<char>(text.size() & 0xff);
  out += static_cast<char>(text.size() >> 8);
  if (version > 1) out.append(2, '\0');
  return out + text + data;
}

template <typename T>
std::string raw_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace dtrain::engine
