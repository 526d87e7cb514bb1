#include "schema/blob.h"

#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>

#include "schema/buffer.h"
#include "schema/write_all.h"

namespace dtrain {

namespace {

// What travels is mostly source text on a fast link: more effort costs more time than it saves.
constexpr int kLevel = 1;
// Level 1 never needs a larger window, so a frame that asks for one is not ours.
constexpr int kWindowLogMax = 23;
constexpr size_t kReadBytes = 256 << 10;

Error damaged(std::string_view why) {
  return {Code::DataLoss, fmt::format("a blob is damaged: {}", why), "send it again"};
}

Error changed() {
  return {Code::Aborted, "changed while it was read", "run the command again"};
}

// Reads up to `size` bytes; less only at the end of the file.
Result<size_t> read_full(int fd, char* into, size_t size) {
  size_t got = 0;
  while (got < size) {
    const ssize_t n = ::read(fd, into + got, size - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read", errno);
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  return got;
}

}  // namespace

struct BlobEncoder::State {
  ZSTD_CCtx* zstd = ZSTD_createCCtx();
  Sha256Stream hash;
  Buffer in{kReadBytes};
  Buffer out{std::max(kBlobPartBytes, ZSTD_CStreamOutSize())};

  State() { ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, kLevel); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { ZSTD_freeCCtx(zstd); }

  void start(uint64_t size) {
    ZSTD_CCtx_reset(zstd, ZSTD_reset_session_only);
    ZSTD_CCtx_setPledgedSrcSize(zstd, size);
    hash.finish();  // whatever an abandoned file left in it
    filled = 0;
  }
  Status feed(std::string_view bytes, bool end, const BlobPartSink& sink);

  size_t filled = 0;  // of `out`
};

// Compresses `bytes` and sinks each part as soon as it is full; with `end`, whatever there is.
Status BlobEncoder::State::feed(std::string_view bytes, bool end, const BlobPartSink& sink) {
  ZSTD_inBuffer input{bytes.data(), bytes.size(), 0};
  for (;;) {
    ZSTD_outBuffer output{out.data(), kBlobPartBytes, filled};
    const size_t left =
        ZSTD_compressStream2(zstd, &output, &input, end ? ZSTD_e_end : ZSTD_e_continue);
    if (ZSTD_isError(left)) return Error{Code::Internal, ZSTD_getErrorName(left), ""};
    filled = output.pos;
    const bool done = end ? left == 0 : input.pos == input.size;
    if (filled == kBlobPartBytes || (done && end)) {
      TRY(sink({out.data(), filled}, done && end));
      filled = 0;
    }
    if (done) return ok();
  }
}

BlobEncoder::BlobEncoder() : state_(std::make_unique<State>()) {}
BlobEncoder::~BlobEncoder() = default;

Status BlobEncoder::encode_file(int fd, uint64_t size, const Sha256& expected,
                                const BlobPartSink& sink) {
  state_->start(size);
  uint64_t left = size;
  while (left > 0) {
    const size_t want = static_cast<size_t>(std::min<uint64_t>(left, kReadBytes));
    TRY(const size_t got, read_full(fd, state_->in.data(), want));
    if (got < want) return changed();
    const std::string_view bytes(state_->in.data(), got);
    state_->hash.add(bytes);
    left -= got;
    // The end of the frame waits until the hash is known to be right.
    TRY(state_->feed(bytes, false, sink));
  }
  if (state_->hash.finish() != expected) return changed();
  return state_->feed({}, true, sink);
}

Status BlobEncoder::encode(std::string_view bytes, const BlobPartSink& sink) {
  state_->start(bytes.size());
  return state_->feed(bytes, true, sink);
}

struct BlobDecoder::State {
  ZSTD_DCtx* zstd = ZSTD_createDCtx();
  Sha256Stream hash;
  std::string buffer = std::string(ZSTD_DStreamOutSize(), '\0');
  Sha256 expected{};
  uint64_t size = 0;
  uint64_t done = 0;  // bytes decompressed
  int fd = -1;
  std::string* out = nullptr;
  bool frame_ended = false;

  State() { ZSTD_DCtx_setParameter(zstd, ZSTD_d_windowLogMax, kWindowLogMax); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { ZSTD_freeDCtx(zstd); }
};

BlobDecoder::BlobDecoder() : state_(std::make_unique<State>()) {}
BlobDecoder::~BlobDecoder() = default;

void BlobDecoder::begin(const Sha256& expected, uint64_t size, int fd, std::string* out) {
  State& s = *state_;
  ZSTD_DCtx_reset(s.zstd, ZSTD_reset_session_only);
  s.hash.finish();  // whatever an abandoned blob left in it
  s.expected = expected;
  s.size = size;
  s.done = 0;
  s.fd = fd;
  s.out = out;
  s.frame_ended = false;
}

Status BlobDecoder::add(std::string_view part) {
  State& s = *state_;
  ZSTD_inBuffer input{part.data(), part.size(), 0};
  bool flushed = true;  // an exactly filled buffer may hide more output
  while (input.pos < input.size || !flushed) {
    if (s.frame_ended) return damaged("bytes follow its end");
    ZSTD_outBuffer output{s.buffer.data(), s.buffer.size(), 0};
    const size_t hint = ZSTD_decompressStream(s.zstd, &output, &input);
    if (ZSTD_isError(hint)) return damaged(ZSTD_getErrorName(hint));
    s.frame_ended = hint == 0;
    flushed = s.frame_ended || output.pos < output.size;
    if (output.pos > s.size - s.done) return damaged("it is larger than it should be");
    s.done += output.pos;
    const std::string_view bytes = std::string_view(s.buffer).substr(0, output.pos);
    s.hash.add(bytes);
    const int failed = s.fd < 0 ? 0 : write_all(s.fd, bytes);
    if (failed != 0) return errno_error("write", failed);
    if (s.out != nullptr) s.out->append(bytes);
  }
  return ok();
}

Status BlobDecoder::finish() {
  const State& s = *state_;
  if (!s.frame_ended) return damaged("its end is missing");
  if (s.done != s.size) return damaged("it is smaller than it should be");
  if (state_->hash.finish() != s.expected) return damaged("it is not what its name says");
  return ok();
}

Result<std::string> compress_blob(std::string_view bytes) {
  std::string frame(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress(frame.data(), frame.size(), bytes.data(), bytes.size(), kLevel);
  if (ZSTD_isError(size)) return Error{Code::Internal, ZSTD_getErrorName(size), ""};
  frame.resize(size);
  return frame;
}

Result<std::string> decompress_blob(std::string_view frame, uint64_t size) {
  // The frame's own claim is checked before memory is taken for it.
  if (ZSTD_getFrameContentSize(frame.data(), frame.size()) != size) {
    return damaged("its size is not as announced");
  }
  std::string bytes(size, '\0');
  const size_t got = ZSTD_decompress(bytes.data(), bytes.size(), frame.data(), frame.size());
  if (ZSTD_isError(got)) return damaged(ZSTD_getErrorName(got));
  if (got != size) return damaged("it is smaller than it should be");
  return bytes;
}

}  // namespace dtrain
