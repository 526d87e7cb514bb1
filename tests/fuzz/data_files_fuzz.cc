// Any bytes as a file of a data set: refused with its name, or what is read fits what it says it is.
//
// The first byte chooses: i and l IDX of images and labels, z the same images compressed here, n npy,
// t tokens with llm.c's header, u tokens without, b text.
#include <zlib.h>

#include <algorithm>
#include <numeric>

#include "engine/data/idx.h"
#include "engine/data/npy.h"
#include "engine/data/tokens.h"
#include "tests/fuzz/scratch.h"

using namespace dtrain;
using namespace dtrain::engine;
using namespace dtrain::fuzz;

namespace {

using std::filesystem::path;

void check_refusal(const Error& error, const path& file) {
  INVARIANT(error.message.find(file.native()) != std::string::npos, "the file is named");
  INVARIANT(error.code == Code::DataLoss || error.code == Code::InvalidArgument, "it is the file's fault");
}

std::string compressed(std::string_view bytes) {
  z_stream stream{};
  INVARIANT(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib starts");
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  INVARIANT(deflate(&stream, Z_FINISH) == Z_STREAM_END, "it is compressed");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void check_idx(const path& file, std::string_view bytes, uint32_t magic) {
  put(file, bytes);
  const auto idx = read_idx(file, magic);
  if (!idx.ok()) return check_refusal(idx.error(), file);
  INVARIANT(idx->shape.size() == (magic & 0xff), "as many dimensions as its kind has");
  uint64_t size = 1;
  for (const int64_t dimension : idx->shape) size *= static_cast<uint64_t>(dimension);
  INVARIANT(size == idx->bytes.size(), "as many bytes as its shape");
}

// What is compressed reads as what is not.
void check_compressed(const path& file, std::string_view bytes) {
  put(file, bytes);
  const auto plain = read_idx(file, kIdxImages);
  const std::string gzip = compressed(bytes);
  put(file, gzip);
  const auto idx = read_idx(file, kIdxImages);
  // Compressed bytes that are compressed again are no file that anybody has.
  if (bytes.starts_with("\x1f\x8b")) return;
  INVARIANT(plain.ok() == idx.ok(), "both are good, or none");
  if (!plain.ok()) return check_refusal(idx.error(), file);
  INVARIANT(plain->shape == idx->shape && plain->bytes == idx->bytes, "and the same");
  put(file, std::string_view(gzip).substr(0, gzip.size() - 1));
  INVARIANT(!read_idx(file, kIdxImages).ok(), "a gzip that is cut off is not whole");
}

void check_npy(const path& file, std::string_view bytes) {
  put(file, bytes);
  const auto npy = read_npy(file);
  if (!npy.ok()) return check_refusal(npy.error(), file);
  const auto size = std::accumulate(npy->shape.begin(), npy->shape.end(), int64_t{1}, std::multiplies());
  INVARIANT(npy->size() == size, "as many numbers as its shape");
  INVARIANT(npy->floats().size() == static_cast<size_t>(size), "each a float");
  const auto integers = npy->integers();
  INVARIANT(!integers.ok() || integers->size() == static_cast<size_t>(size), "and all whole, or an error");
}

void check_tokens(const path& file, std::string_view bytes, int64_t vocabulary) {
  put(file, bytes);
  const auto tokens = TokenFile::open(file, vocabulary);
  if (!tokens.ok()) return check_refusal(tokens.error(), file);
  INVARIANT(tokens->size() > 0 && tokens->size() <= static_cast<int64_t>(bytes.size()), "there are some");
  INVARIANT(vocabulary == 0 || tokens->vocabulary() == vocabulary, "of the vocabulary that was asked for");
  std::vector<int32_t> all(static_cast<size_t>(tokens->size()));
  INVARIANT(tokens->copy(0, all).ok(), "nobody changed the file");
  INVARIANT(std::ranges::all_of(all, [&](int32_t token) { return token >= 0 && token < tokens->vocabulary(); }),
            "each is in it");
  int32_t last = -1;
  INVARIANT(tokens->copy(tokens->size() - 1, {&last, 1}).ok(), "nobody changed the file");
  INVARIANT(last == all.back(), "wherever it is read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const Scratch scratch;
  const path folder = scratch.path();
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'i':
      check_idx(folder / "images", bytes, kIdxImages);
      break;
    case 'l':
      check_idx(folder / "labels", bytes, kIdxLabels);
      break;
    case 'z':
      check_compressed(folder / "images.gz", bytes);
      break;
    case 'n':
      check_npy(folder / "x.npy", bytes);
      break;
    case 't':
      check_tokens(folder / "x.bin", bytes, 0);
      check_tokens(folder / "x.bin", bytes, 1000);
      break;
    case 'u':
      check_tokens(folder / "x.u16.bin", bytes, 0);
      break;
    default:
      check_tokens(folder / "x.txt", bytes, 0);
      check_tokens(folder / "x.txt", bytes, 100);
  }
  return 0;
}
