// Text as numbers: a file of tokens, mapped, not read. What a token is is told by the file:
//   llm.c's header (256 int32: 20240520, 1, count): uint16, little endian
//   a name that ends in .u16.bin: uint16 without a header, as nanoGPT writes them
//   any other name: each byte is a token (text). Not .bin, which could be either: that is refused, and so
//   is what begins as a compressed file, an archive or a NumPy array.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "engine/mapped_file.h"
#include "schema/result.h"

namespace dtrain::engine {

class TokenFile {
 public:
  static constexpr int32_t kMagic = 20240520;

  // A token that is not below `vocabulary` is an error that names file and position. 0: the vocabulary is
  // what the file shows, 256 for bytes. Every token is looked at, but of bytes that can't be too large.
  static Result<TokenFile> open(const std::filesystem::path& path, int64_t vocabulary);

  int64_t size() const { return size_; }
  int64_t vocabulary() const { return vocabulary_; }
  bool is_text() const { return bytes_; }
  // A CRC-32C of all tokens; of a text that is not read, of blocks here and there.
  uint32_t checksum() const { return checksum_; }
  // An error if the file became shorter: nothing of it may be read then.
  Status check() const;
  // Tokens [begin, begin + out.size()). An error if one of them is not below vocabulary() any more.
  Status copy(int64_t begin, std::span<int32_t> out) const;
  // That will be copied next: the disk brings them meanwhile.
  void ask_for(int64_t begin, int64_t count) const;

 private:
  TokenFile(std::filesystem::path path, MappedFile file) : path_(std::move(path)), file_(std::move(file)) {}
  Result<int32_t> largest_and_checksum();
  std::span<const std::byte> bytes_of(int64_t begin, int64_t count) const;
  void read(int64_t begin, std::span<int32_t> out) const;
  Error changed() const;
  int32_t token(int64_t at) const;

  std::filesystem::path path_;
  MappedFile file_;
  const std::byte* tokens_ = nullptr;
  bool bytes_ = false;  // a token each, instead of two
  int64_t size_ = 0;
  int64_t vocabulary_ = 0;
  uint32_t checksum_ = 0;
};

}  // namespace dtrain::engine
