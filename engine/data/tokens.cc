#include "engine/data/tokens.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "engine/formats/crc32c.h"

namespace dtrain::engine {

namespace {

constexpr size_t kHeaderBytes = 1024;

// What a file is that begins so, and is no text.
const char* kind_of(std::span<const std::byte> bytes) {
  constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {"\x1f\x8b", "compressed (gzip)"},    {"\x28\xb5\x2f\xfd", "compressed (zstd)"},
      {"\xfd" "7zXZ", "compressed (xz)"},    {"\x04\x22\x4d\x18", "compressed (lz4)"},
      {"PK\x03\x04", "a zip archive"},      {"\x93NUMPY", "a NumPy array (.npy)"},
      {"PAR1", "a Parquet file"},           {"ARROW1", "an Arrow file"}};
  const std::string_view begin(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 8));
  // Any digit stands between.
  if (begin.starts_with("BZh") && begin.ends_with("1AY&")) return "compressed (bzip2)";
  for (const auto& [magic, kind] : kKinds) {
    if (begin.starts_with(magic)) return kind;
  }
  return nullptr;
}

int32_t int_at(std::span<const std::byte> bytes, size_t index) {
  int32_t value = 0;
  if (bytes.size() >= 4 * (index + 1)) std::memcpy(&value, bytes.data() + 4 * index, 4);
  return value;
}

}  // namespace

Result<TokenFile> TokenFile::open(const std::filesystem::path& path, int64_t vocabulary) {
  TRY(MappedFile mapped, MappedFile::open(path));
  TokenFile file(path, std::move(mapped));
  const auto bytes = file.file_.bytes();
  const std::string name = path.filename().string();
  const auto damaged = [&](std::string what) {
    return Error{Code::DataLoss, fmt::format("{}: {}", path.native(), what), ""};
  };
  file.tokens_ = bytes.data();
  if (int_at(bytes, 0) == kMagic) {
    if (int_at(bytes, 1) != 1) {
      return damaged(fmt::format("tokens of version {}, expected 1", int_at(bytes, 1)));
    }
    const int64_t announced = int_at(bytes, 2);
    const int64_t held = (static_cast<int64_t>(bytes.size()) - int64_t{kHeaderBytes}) / 2;
    if (bytes.size() != kHeaderBytes + 2 * static_cast<uint64_t>(std::max<int64_t>(announced, 0))) {
      return damaged(fmt::format("its header announces {} tokens, there are {}", announced,
                                 std::max<int64_t>(held, 0)));
    }
    file.tokens_ += kHeaderBytes;
    file.size_ = announced;
  } else if (name.ends_with(".u16.bin")) {
    if (bytes.size() % 2 != 0) {
      return damaged(fmt::format("{} bytes are no whole number of 16-bit tokens", bytes.size()));
    }
    file.size_ = static_cast<int64_t>(bytes.size() / 2);
  } else if (name.ends_with(".bin")) {
    return Error{
        Code::InvalidArgument,
        fmt::format("{}: not a token file (magic {}, expected {})", path.native(), int_at(bytes, 0),
                    kMagic),
        "name it .u16.bin if it is 16-bit tokens without a header, or not .bin if each byte "
        "is a token"};
  } else if (const char* kind = kind_of(bytes); kind != nullptr) {
    return Error{Code::InvalidArgument,
                 fmt::format("{}: this is {}, neither text nor tokens", path.native(), kind),
                 "text as it is, or 16-bit tokens without a header in a file named .u16.bin"};
  } else {
    file.bytes_ = true;
    file.size_ = static_cast<int64_t>(bytes.size());
  }
  if (file.size_ <= 0) return damaged("no tokens");

  file.vocabulary_ = vocabulary > 0 ? vocabulary : file.bytes_ ? 256 : 65536;
  TRY(const int32_t largest, file.largest_and_checksum());
  if (vocabulary == 0 && !file.bytes_) file.vocabulary_ = largest + 1;
  return file;
}

// A text that can't go beyond the vocabulary is not read: it may be larger than memory.
Result<int32_t> TokenFile::largest_and_checksum() {
  std::array<int32_t, 4096> chunk;
  constexpr auto kChunk = static_cast<int64_t>(chunk.size());
  if (bytes_ && vocabulary_ >= 256) {
    constexpr int64_t kBlocks = 256;
    const int64_t last = std::max<int64_t>(0, size_ - kChunk);
    for (int64_t block = 0; block < kBlocks; ++block) {
      const int64_t at = last * block / (kBlocks - 1);
      checksum_ = crc32c(bytes_of(at, std::min(kChunk, size_ - at)), checksum_);
    }
    return 255;
  }
  int32_t largest = 0;
  for (int64_t at = 0; at < size_; at += kChunk) {
    const auto n = static_cast<size_t>(std::min(kChunk, size_ - at));
    checksum_ = crc32c(bytes_of(at, static_cast<int64_t>(n)), checksum_);
    read(at, {chunk.data(), n});
    const int32_t here = *std::max_element(chunk.begin(), chunk.begin() + static_cast<long>(n));
    largest = std::max(largest, here);
    if (here < vocabulary_) continue;
    const auto* found = std::find_if(chunk.data(), chunk.data() + n,
                                     [&](int32_t token) { return token >= vocabulary_; });
    return Error{Code::InvalidArgument,
                 fmt::format("{}: token {} at position {}, and the vocabulary has {}",
                             path_.native(), *found, at + (found - chunk.data()), vocabulary_),
                 ""};
  }
  return largest;
}

int32_t TokenFile::token(int64_t at) const {
  if (bytes_) return static_cast<int32_t>(tokens_[at]);
  uint16_t token = 0;
  std::memcpy(&token, tokens_ + 2 * at, 2);
  return token;
}

std::span<const std::byte> TokenFile::bytes_of(int64_t begin, int64_t count) const {
  const int64_t each = bytes_ ? 1 : 2;
  return {tokens_ + begin * each, static_cast<size_t>(count * each)};
}

void TokenFile::ask_for(int64_t begin, int64_t count) const {
  const auto bytes = bytes_of(begin, count);
  file_.ask_for(bytes.data(), bytes.size());
}

void TokenFile::read(int64_t begin, std::span<int32_t> out) const {
  INVARIANT(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= size_, "tokens of the file");
  for (size_t i = 0; i < out.size(); ++i) out[i] = token(begin + static_cast<int64_t>(i));
}

Error TokenFile::changed() const {
  return {Code::InvalidArgument, fmt::format("{} changed while it was used", path_.native()),
          "replace data by renaming: what is used is read to the end of the training"};
}

Status TokenFile::check() const {
  if (!file_.is_whole()) return changed();
  return ok();
}

Status TokenFile::copy(int64_t begin, std::span<int32_t> out) const {
  read(begin, out);
  int32_t largest = 0;
  for (const int32_t token : out) largest = std::max(largest, token);
  if (largest >= vocabulary_) return changed();
  return ok();
}

}  // namespace dtrain::engine
