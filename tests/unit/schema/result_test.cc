#include "schema/result.h"

#include <doctest/doctest.h>

#include <cerrno>

namespace dtrain {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error{Code::InvalidArgument, "odd", "give an even number"};
  return n / 2;
}

Result<int> quarter(int n) {
  TRY(int h, half(n));
  TRY(half(h));
  return h / 2;
}

TEST_CASE("TRY binds values and returns errors with their hint") {
  CHECK(*quarter(8) == 2);
  const auto failed = quarter(6);
  REQUIRE(!failed.ok());
  CHECK(failed.error().message == "odd");
  CHECK(failed.error().hint == "give an even number");
  CHECK(half(1).error().code == Code::InvalidArgument);
}

TEST_CASE("a full disk says what to do") {
  const Error error = errno_error("write /x", ENOSPC);
  CHECK(error.code == Code::ResourceExhausted);
  CHECK(error.message == "write /x: No space left on device");
  CHECK(!error.hint.empty());
}

}  // namespace
}  // namespace dtrain
