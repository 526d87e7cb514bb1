#include "schema/base64.h"

#include <doctest/doctest.h>

namespace dtrain {

TEST_CASE("base64 is read with padding or without, over several lines, and nothing else is") {
  using namespace std::string_literals;
  CHECK(base64_decoded("") == "");
  CHECK(base64_decoded("aGFsbG8=") == "hallo");
  CHECK(base64_decoded("aGFsbG8") == "hallo");
  CHECK(base64_decoded("aGFs\r\nbG8=\n") == "hallo");
  CHECK(base64_decoded("AP/+") == "\0\xff\xfe"s);
  for (const char* text : {"a", "aGFsbG8===", "aG=s", "aGFs bG8=", "aGF_", "hällo"}) {
    CAPTURE(std::string(text));
    CHECK_FALSE(base64_decoded(text));
  }
}

}  // namespace dtrain
