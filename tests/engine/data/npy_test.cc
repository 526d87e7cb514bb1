#include "engine/data/npy.h"

#include <doctest/doctest.h>

#include "tests/engine/data/image_bytes.h"
#include "tests/engine/scratch.h"

namespace dtrain::engine {
namespace {

void refused(const std::string& bytes, const char* why) {
  const CaseFolder folder;
  put(folder / "x.npy", bytes);
  const auto npy = read_npy(folder / "x.npy");
  REQUIRE_FALSE(npy.ok());
  CHECK_MESSAGE(npy.error().message.find("x.npy") != std::string::npos, npy.error().message);
  CHECK_MESSAGE(npy.error().message.find(why) != std::string::npos, npy.error().message);
}

template <typename T>
void reads(const std::string& descr, NpyType type, int version) {
  const CaseFolder folder;
  put(folder / "x.npy", npy_bytes(descr, "(2, 3)", raw_bytes<T>({1, 2, 3, 4, 5, 6}), version));
  const auto npy = read_npy(folder / "x.npy");
  REQUIRE(npy.ok());
  CHECK(npy->type == type);
  CHECK(npy->shape == std::vector<int64_t>{2, 3});
  CHECK(npy->size() == 6);
  CHECK(npy->floats() == std::vector<float>{1, 2, 3, 4, 5, 6});
  const auto integers = npy->integers();
  REQUIRE(integers.ok());
  CHECK(*integers == std::vector<int64_t>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("every type of number is read, of every version") {
  for (const int version : {1, 2, 3}) {
    reads<uint8_t>("|u1", NpyType::U8, version);
    reads<int32_t>("<i4", NpyType::I32, version);
    reads<int64_t>("<i8", NpyType::I64, version);
    reads<float>("<f4", NpyType::F32, version);
    reads<double>("<f8", NpyType::F64, version);
  }
}

TEST_CASE("shapes of one number and of none") {
  const CaseFolder folder;
  put(folder / "one.npy", npy_bytes("|u1", "(3,)", "abc"));
  CHECK(read_npy(folder / "one.npy").value().shape == std::vector<int64_t>{3});
  put(folder / "none.npy", npy_bytes("|u1", "()", "a"));
  CHECK(read_npy(folder / "none.npy").value().shape.empty());
  for (const char* shape : {"(0, 5)", "(5, 0)", "(4611686018427387904, 4, 0)"}) {
    put(folder / "empty.npy", npy_bytes("<f4", shape, ""));
    const auto empty = read_npy(folder / "empty.npy");
    REQUIRE_MESSAGE(empty.ok(), empty.error().message);
    CHECK(empty->size() == 0);
  }
}

TEST_CASE("what can't be read is refused with what was found") {
  refused("", "wrong magic");
  refused("PK\x03\x04", "wrong magic");
  refused(npy_bytes("|u1", "(3,)", "abc", 4), "npy version 4");
  refused(npy_bytes("|u1", "(3,)", "abc").substr(0, 30), "cut off within its header");
  refused(npy_bytes("|u1", "(3,)", "ab"), "2 bytes of data, and its shape (3) of |u1 takes more");
  refused(npy_bytes("|u1", "(3,)", "abcd"), "4 bytes of data, and its shape (3) of |u1 takes 3");
  refused(npy_bytes(">f4", "(1,)", "abcd"), "numbers of type >f4");
  refused(npy_bytes("|O", "(1,)", "abcd"), "numbers of type |O");
  refused(npy_bytes("|u1", "(2, 2)", "abcd", 1, true), "column-major");
  refused(npy_bytes("|u1", "(-1,)", "abcd"), "makes no sense");
  refused(npy_bytes("|u1", "3", "abc"), "makes no sense");
  refused(npy_bytes("|u1", "(99999999999999999999,)", "abc"), "makes no sense");
  refused(npy_bytes("<f8", "(4611686018427387904, 4)", "abc"), "takes more");
}

TEST_CASE("a label that is no whole number is named") {
  const CaseFolder folder;
  put(folder / "x.npy", npy_bytes("<f4", "(3,)", raw_bytes<float>({1, 2.5f, 3})));
  const auto integers = read_npy(folder / "x.npy").value().integers();
  REQUIRE_FALSE(integers.ok());
  CHECK(integers.error().message == "2.5 at index 1 is no whole number");
}

}  // namespace
}  // namespace dtrain::engine
