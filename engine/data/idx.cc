#include "engine/data/idx.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "schema/fd.h"

namespace dtrain::engine {

namespace {

// Deflate makes nothing smaller than by this factor: a header that announces more is wrong, and no
// memory is taken for it.
constexpr uint64_t kMostOfAByte = 1032;

struct Gzip {
  gzFile file = nullptr;
  ~Gzip() {
    if (file != nullptr) ::gzclose_r(file);
  }
};

Error damaged(const std::filesystem::path& path, std::string what) {
  return {Code::DataLoss, fmt::format("{}: {}", path.native(), what), "fetch or generate it again"};
}

// As many bytes as there are, at most `size`.
Result<size_t> read_up_to(Gzip& gzip, const std::filesystem::path& path, uint8_t* out,
                          size_t size) {
  size_t done = 0;
  while (done < size) {
    const auto chunk = static_cast<unsigned>(std::min<size_t>(size - done, 1u << 30));
    const int got = ::gzread(gzip.file, out + done, chunk);
    if (got == 0) break;
    if (got < 0) {
      int code = 0;
      const char* message = ::gzerror(gzip.file, &code);
      if (code == Z_ERRNO) return errno_error(fmt::format("read {}", path.native()), errno);
      // At a cut-off end zlib hands out what there was, and says this at the next call.
      if (code == Z_BUF_ERROR) break;
      return damaged(path, fmt::format("damaged gzip: {}", message));
    }
    done += static_cast<size_t>(got);
  }
  return done;
}

const char* name_of(uint32_t magic) {
  return magic == kIdxImages ? "images" : magic == kIdxLabels ? "labels" : nullptr;
}

Error wrong_magic(const std::filesystem::path& path, uint32_t found, uint32_t wanted) {
  const char* other = name_of(found);
  return damaged(path, fmt::format("not an IDX file of {} (magic 0x{:08x}, expected 0x{:08x}{})",
                                   name_of(wanted), found, wanted,
                                   other ? fmt::format("; this is one of {}", other) : ""));
}

}  // namespace

Result<Idx> read_idx(const std::filesystem::path& path, uint32_t magic) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!fd || ::fstat(fd.get(), &facts) != 0) {
    return errno_error(fmt::format("open {}", path.native()), errno);
  }
  if (!S_ISREG(facts.st_mode)) return damaged(path, "no regular file");
  Gzip gzip{::gzdopen(fd.get(), "rb")};
  if (gzip.file == nullptr) return errno_error(fmt::format("read {}", path.native()), ENOMEM);
  fd.release();
  ::gzbuffer(gzip.file, 1u << 18);

  const size_t dimensions = magic & 0xff;
  std::vector<uint8_t> header(4 + 4 * dimensions);
  TRY(const size_t got, read_up_to(gzip, path, header.data(), header.size()));
  const auto number = [&](size_t at) {
    return uint32_t{header[at]} << 24 | uint32_t{header[at + 1]} << 16 |
           uint32_t{header[at + 2]} << 8 | uint32_t{header[at + 3]};
  };
  if (got >= 4 && number(0) != magic) return wrong_magic(path, number(0), magic);
  if (got < header.size()) {
    return damaged(path, fmt::format("cut off within its header, after {} bytes", got));
  }

  Idx idx;
  const uint64_t most = static_cast<uint64_t>(facts.st_size) * kMostOfAByte;
  uint64_t size = 1;
  bool plausible = true;
  for (size_t i = 0; i < dimensions; ++i) {
    const uint32_t dimension = number(4 + 4 * i);
    idx.shape.push_back(dimension);
    plausible = plausible && (dimension == 0 || size <= most / dimension);
    size *= dimension;
  }
  const bool empty = std::ranges::count(idx.shape, 0) > 0;
  if (!plausible && !empty) {
    return damaged(path, fmt::format("announces {} as its shape and holds no more than {} bytes",
                                     fmt::format("{}", fmt::join(idx.shape, "x")), facts.st_size));
  }
  idx.bytes.resize(size);
  TRY(const size_t held, read_up_to(gzip, path, idx.bytes.data(), idx.bytes.size()));
  if (held < size) {
    return damaged(path, fmt::format("cut off: {} of {} bytes of data", held, size));
  }
  uint8_t more = 0;
  TRY(const size_t beyond, read_up_to(gzip, path, &more, 1));
  int end = 0;
  ::gzerror(gzip.file, &end);
  if (end == Z_BUF_ERROR) return damaged(path, "cut off: the end of the gzip is missing");
  if (beyond > 0)
    return damaged(path, fmt::format("more than the {} bytes that it announces", size));
  return idx;
}

std::vector<uint8_t> idx_header(uint32_t magic, const std::vector<uint32_t>& shape) {
  std::vector<uint8_t> bytes;
  const auto add = [&](uint32_t number) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<uint8_t>(number >> shift));
    }
  };
  add(magic);
  for (const uint32_t dimension : shape) add(dimension);
  return bytes;
}

}  // namespace dtrain::engine
