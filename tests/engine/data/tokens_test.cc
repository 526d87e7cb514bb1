#include "engine/data/tokens.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/engine/data/image_bytes.h"
#include "tests/engine/scratch.h"

namespace dtrain::engine {
namespace {

std::string header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> numbers(256);
  numbers[0] = magic;
  numbers[1] = version;
  numbers[2] = count;
  return raw_bytes(numbers);
}

std::vector<int32_t> all_of(const TokenFile& file) {
  std::vector<int32_t> tokens(static_cast<size_t>(file.size()));
  CHECK(file.copy(0, tokens).ok());
  return tokens;
}

void refused(const std::string& name, const std::string& bytes, const char* why,
             int vocabulary = 0) {
  const CaseFolder folder;
  put(folder / name, bytes);
  const auto file = TokenFile::open(folder / name, vocabulary);
  REQUIRE_FALSE(file.ok());
  CHECK_MESSAGE(file.error().message.find(name) != std::string::npos, file.error().message);
  CHECK_MESSAGE(file.error().message.find(why) != std::string::npos, file.error().message);
}

TEST_CASE("tokens with llm.c's header, without one, and text") {
  const CaseFolder folder;
  const std::string three = raw_bytes<uint16_t>({7, 50256, 1});
  put(folder / "a.bin", header(TokenFile::kMagic, 1, 3) + three);
  put(folder / "b.u16.bin", three);
  for (const char* name : {"a.bin", "b.u16.bin"}) {
    const auto file = TokenFile::open(folder / name, 0);
    REQUIRE(file.ok());
    CHECK(all_of(*file) == std::vector<int32_t>{7, 50256, 1});
    CHECK(file->vocabulary() == 50257);
  }
  put(folder / "text.txt", "hi\xff");
  const auto text = TokenFile::open(folder / "text.txt", 0);
  REQUIRE(text.ok());
  CHECK(all_of(*text) == std::vector<int32_t>{'h', 'i', 255});
  CHECK(text->vocabulary() == 256);
  CHECK(TokenFile::open(folder / "a.bin", 50304).value().vocabulary() == 50304);
}

TEST_CASE("a token outside the vocabulary is named with its position") {
  std::vector<uint16_t> many(10000, 5);
  many[9000] = 100;
  refused("x.u16.bin", raw_bytes(many), "token 100 at position 9000, and the vocabulary has 100",
          100);
  refused("x.txt", "abc\xf0", "token 240 at position 3", 128);
}

TEST_CASE("a file that changes while it is used is named, and nothing beyond it is read") {
  const CaseFolder folder;
  const std::string name = folder / "a.u16.bin";
  put(name, raw_bytes<uint16_t>({5, 6, 7, 8}));
  const auto file = TokenFile::open(name, 0);
  REQUIRE(file.ok());
  std::vector<int32_t> out(2);
  CHECK(file->copy(2, out).ok());
  std::fstream(name, std::ios::in | std::ios::out | std::ios::binary).seekp(4).write("\x09\x00", 2);
  CHECK(file->copy(0, out).ok());
  const Status changed = file->copy(2, out);
  REQUIRE_FALSE(changed.ok());
  CHECK(changed.error().message == name + " changed while it was used");
  CHECK(file->check().ok());
  std::filesystem::resize_file(name, 2);
  CHECK_FALSE(file->check().ok());
}

TEST_CASE("what is no such file, is cut off or could be anything is refused") {
  const std::string three = raw_bytes<uint16_t>({7, 8, 9});
  refused("x.bin", header(TokenFile::kMagic, 1, 4) + three, "announces 4 tokens, there are 3");
  refused("x.bin", header(TokenFile::kMagic, 1, -4) + three, "announces -4 tokens");
  refused("x.bin", header(TokenFile::kMagic, 1, 4).substr(0, 600),
          "announces 4 tokens, there are 0");
  refused("x.bin", header(TokenFile::kMagic, 1, 0), "no tokens");
  refused("x.bin", header(TokenFile::kMagic, 1, -1), "no tokens");
  refused("x.bin", header(TokenFile::kMagic, 2, 3) + three, "version 2");
  refused("x.bin", header(20240801, 1, 3) + three, "not a token file (magic 20240801");
  refused("x.u16.bin", "abc", "no whole number of 16-bit tokens");
  refused("x.txt", "", "no tokens");
  // Their bytes would be learned.
  refused("x.txt.gz", gzipped("some text"), "compressed (gzip), neither text nor tokens");
  refused("x.npy", "\x93NUMPY\x01", "a NumPy array (.npy)");
  refused("x.txt", "\xfd" "7zXZ", "compressed (xz)");
  refused("enwiki.xml.bz2", "BZh91AY&SY", "compressed (bzip2)");
  refused("x.txt", "BZh11AY&SY", "compressed (bzip2)");
  refused("x.txt.lz4", "\x04\x22\x4d\x18", "compressed (lz4)");
  refused("x.arrow", std::string("ARROW1\0\0", 8), "an Arrow file");
}

}  // namespace
}  // namespace dtrain::engine
