#include "schema/blob.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "schema/fd.h"

namespace dtrain {
namespace {

Fd memory_file(std::string_view bytes) {
  Fd fd(memfd_create("blob", MFD_CLOEXEC));
  REQUIRE(fd);
  REQUIRE(::pwrite(fd.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return fd;
}

std::string random_bytes(size_t size) {
  std::mt19937 random(7);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

std::vector<std::string> samples() {
  return {"",
          "x",
          std::string(100'000, 'a'),
          random_bytes(50'000),
          random_bytes(3 << 20),
          std::string(300'000, 'b') + random_bytes(300'000)};
}

std::vector<std::string> parts_of(BlobEncoder& encoder, const std::string& bytes) {
  const Fd file = memory_file(bytes);
  std::vector<std::string> parts;
  bool ended = false;
  REQUIRE(encoder
              .encode_file(file.get(), bytes.size(), sha256(bytes),
                           [&](std::string_view part, bool last) {
                             CHECK(!ended);
                             CHECK(part.size() <= kBlobPartBytes);
                             ended = last;
                             parts.emplace_back(part);
                             return ok();
                           })
              .ok());
  REQUIRE(ended);
  return parts;
}

Status decode(BlobDecoder& decoder, const std::vector<std::string>& parts, const Sha256& name,
              uint64_t size, std::string* out) {
  decoder.begin(name, size, -1, out);
  for (const auto& part : parts) TRY(decoder.add(part));
  return decoder.finish();
}

TEST_CASE("blobs come back, one after the other through the same encoder and decoder") {
  BlobEncoder encoder;
  BlobDecoder decoder;
  for (const std::string& bytes : samples()) {
    const auto parts = parts_of(encoder, bytes);
    std::string out;
    CHECK(decode(decoder, parts, sha256(bytes), bytes.size(), &out).ok());
    CHECK(out == bytes);

    std::string frame;
    for (const auto& part : parts) frame += part;
    const auto whole = decompress_blob(frame, bytes.size());
    REQUIRE(whole.ok());
    CHECK(*whole == bytes);
    const auto at_once = compress_blob(bytes);
    REQUIRE(at_once.ok());
    out.clear();
    CHECK(decode(decoder, {*at_once}, sha256(bytes), bytes.size(), &out).ok());
    CHECK(out == bytes);
  }
}

TEST_CASE("a decoder takes parts of any size and writes to a descriptor") {
  BlobEncoder encoder;
  BlobDecoder decoder;
  const std::string bytes = std::string(5000, 'q') + random_bytes(1000);
  std::string frame;
  for (const auto& part : parts_of(encoder, bytes)) frame += part;
  const Fd out = memory_file("");
  decoder.begin(sha256(bytes), bytes.size(), out.get());
  for (const char c : frame) REQUIRE(decoder.add({&c, 1}).ok());
  REQUIRE(decoder.finish().ok());
  std::string read(bytes.size() + 1, '\0');
  CHECK(::pread(out.get(), read.data(), read.size(), 0) == static_cast<ssize_t>(bytes.size()));
  read.resize(bytes.size());
  CHECK(read == bytes);
}

TEST_CASE("what is not the blob is refused as data loss") {
  BlobEncoder encoder;
  BlobDecoder decoder;
  const std::string bytes = "the content " + std::string(1000, '.');
  auto parts = parts_of(encoder, bytes);
  REQUIRE(parts.size() == 1);
  const Sha256 name = sha256(bytes);
  const auto fails = [&](const std::vector<std::string>& with, const Sha256& as, uint64_t size) {
    const auto status = decode(decoder, with, as, size, nullptr);
    REQUIRE(!status.ok());
    CHECK(status.error().code == Code::DataLoss);
  };
  fails(parts, sha256("another"), bytes.size());
  fails(parts, name, bytes.size() - 1);
  fails(parts, name, bytes.size() + 1);
  fails({parts[0] + "x"}, name, bytes.size());
  fails({parts[0], parts[0]}, name, bytes.size());
  fails({}, name, bytes.size());
  for (size_t cut = 0; cut < parts[0].size(); ++cut) {
    fails({parts[0].substr(0, cut)}, name, bytes.size());
  }
  for (size_t at = 0; at < parts[0].size(); ++at) {
    std::string damaged = parts[0];
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const auto status = decode(decoder, {damaged}, name, bytes.size(), nullptr);
    // A flipped bit of the header that changes nothing about the content may pass; the content may
    // not.
    if (!status.ok()) CHECK(status.error().code == Code::DataLoss);
  }
  CHECK(decode(decoder, parts, name, bytes.size(), nullptr).ok());
  CHECK(!decompress_blob(parts[0], bytes.size() + 1).ok());
  CHECK(!decompress_blob("garbage", 7).ok());
}

TEST_CASE("a blob that would fill the memory is refused at its announced size") {
  BlobDecoder decoder;
  const auto bomb = compress_blob(std::string(64 << 20, '\0'));
  REQUIRE(bomb.ok());
  CHECK(bomb->size() < 100'000);
  std::string out;
  const auto status = decode(decoder, {*bomb}, sha256(""), 1000, &out);
  REQUIRE(!status.ok());
  CHECK(out.size() <= 1000);
}

TEST_CASE("a file that is not what was announced is not sent to its end") {
  BlobEncoder encoder;
  const Fd file = memory_file("after");
  bool ended = false;
  const auto sink = [&](std::string_view, bool last) {
    ended = ended || last;
    return ok();
  };
  auto status = encoder.encode_file(file.get(), 6, sha256("before"), sink);
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::Aborted);
  ::lseek(file.get(), 0, SEEK_SET);
  status = encoder.encode_file(file.get(), 5, sha256("befor"), sink);
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::Aborted);
  CHECK(!ended);
  // One that has become shorter, and one whose reader is gone.
  ::lseek(file.get(), 0, SEEK_SET);
  CHECK(encoder.encode_file(file.get(), 6, sha256("after!"), sink).error().code == Code::Aborted);
  const std::string bytes = random_bytes(2 * kBlobPartBytes);
  const auto gone = [](std::string_view, bool) -> Status {
    return Error{Code::Unavailable, "gone", ""};
  };
  CHECK(encoder.encode_file(memory_file(bytes).get(), bytes.size(), sha256(bytes), gone)
            .error()
            .code == Code::Unavailable);
  // And the encoder is good for the next one.
  CHECK(parts_of(encoder, "after").size() == 1);
}

TEST_CASE("digests have one text form") {
  CHECK(to_hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const Sha256 digest = sha256("abc");
  CHECK(*sha256_from_hex(to_hex(digest)) == digest);
  CHECK(*sha256_from_bytes(to_bytes(digest)) == digest);
  CHECK(!sha256_from_bytes("short").ok());
  CHECK(!sha256_from_hex(std::string(63, 'a')).ok());
  CHECK(!sha256_from_hex(std::string(64, 'g')).ok());
  CHECK(!sha256_from_hex(std::string(64, 'A')).ok());
}

}  // namespace
}  // namespace dtrain
