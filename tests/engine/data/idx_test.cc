#include "engine/data/idx.h"

#include <doctest/doctest.h>

#include "tests/engine/data/image_bytes.h"
#include "tests/engine/scratch.h"

namespace dtrain::engine {
namespace {

// The file's name and what is wrong with it.
void refused(const std::filesystem::path& path, uint32_t magic, const char* why) {
  const auto idx = read_idx(path, magic);
  REQUIRE_FALSE(idx.ok());
  CHECK_MESSAGE(idx.error().message.find(path.native()) != std::string::npos, idx.error().message);
  CHECK_MESSAGE(idx.error().message.find(why) != std::string::npos, idx.error().message);
}

TEST_CASE("images and labels, plain and compressed, are read the same") {
  const CaseFolder folder;
  put(folder / "plain", image_bytes(3));
  put(folder / "compressed", gzipped(image_bytes(3)));
  for (const char* name : {"plain", "compressed"}) {
    const auto idx = read_idx(folder / name, kIdxImages);
    REQUIRE(idx.ok());
    CHECK(idx->shape == std::vector<int64_t>{3, 2, 3});
    CHECK(idx->bytes.size() == 18);
    CHECK(idx->bytes[7] == 11);
  }
  put(folder / "labels", label_bytes({4, 2}));
  const auto labels = read_idx(folder / "labels", kIdxLabels);
  REQUIRE(labels.ok());
  CHECK(labels->bytes == std::vector<uint8_t>{4, 2});
}

TEST_CASE("what is no such file is refused with what was found") {
  const CaseFolder folder;
  refused(folder / "nothing", kIdxImages, "No such file");
  refused(folder.path(), kIdxImages, "no regular file");
  put(folder / "empty", "");
  refused(folder / "empty", kIdxImages, "within its header, after 0 bytes");
  put(folder / "labels", label_bytes({1}));
  refused(folder / "labels", kIdxImages,
          "magic 0x00000801, expected 0x00000803; this is one of labels");
  put(folder / "text", "hello world, this is text");
  refused(folder / "text", kIdxImages, "magic 0x68656c6c");
}

TEST_CASE("a file that is cut off anywhere is refused, plain and compressed") {
  const CaseFolder folder;
  const std::string plain = image_bytes(3), compressed = gzipped(plain);
  for (const std::string& whole : {plain, compressed}) {
    for (size_t size = 0; size < whole.size(); ++size) {
      put(folder / "cut", whole.substr(0, size));
      CHECK_FALSE(read_idx(folder / "cut", kIdxImages).ok());
    }
  }
  put(folder / "cut", plain.substr(0, 20));
  refused(folder / "cut", kIdxImages, "cut off: 4 of 18 bytes");
}

TEST_CASE("more than was announced, or damage that gzip's checksum shows, is refused") {
  const CaseFolder folder;
  put(folder / "long", image_bytes(3) + "x");
  refused(folder / "long", kIdxImages, "more than the 18 bytes");
  std::string damaged = gzipped(image_bytes(3));
  damaged[damaged.size() - 6] ^= 1;
  put(folder / "damaged", damaged);
  refused(folder / "damaged", kIdxImages, "damaged gzip");
}

TEST_CASE("a header that announces more than could be there takes no memory") {
  const CaseFolder folder;
  const uint32_t all = 0xffffffff;
  put(folder / "huge", idx_bytes(kIdxImages, {all, all, all}, {1, 2, 3}));
  refused(folder / "huge", kIdxImages, "announces 4294967295x4294967295x4294967295");
  put(folder / "large", gzipped(idx_bytes(kIdxImages, {60000, 28, 28}, {1, 2, 3})));
  refused(folder / "large", kIdxImages, "announces 60000x28x28");
  // 2^64 bytes, which are none in 64 bits.
  put(folder / "wraps", idx_bytes(kIdxImages, {1u << 31, 1u << 31, 4}, {}));
  refused(folder / "wraps", kIdxImages, "announces 2147483648x2147483648x4");
}

}  // namespace
}  // namespace dtrain::engine
