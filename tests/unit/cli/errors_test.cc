#include "cli/errors.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

TEST_CASE("an error is a line, and its hint another") {
  CHECK(error_text({Code::NotFound, "no experiment 9", "dtrain status -a lists all"}) ==
        "dtrain: no experiment 9\n  hint: dtrain status -a lists all\n");
  CHECK(error_text({Code::Internal, "broken", ""}) == "dtrain: broken\n");
}

TEST_CASE("on a narrow screen both break at blanks") {
  CHECK(error_text({Code::NotFound, "no experiment 9", "dtrain status lists all"}, 24) ==
        "dtrain: no experiment 9\n  hint: dtrain status\n  lists all\n");
}

TEST_CASE("control characters can't move the cursor") {
  CHECK(error_text({Code::Internal, "a\x1b[2Jb\nnext\tcolumn", ""}) ==
        "dtrain: a\\x1b[2Jb\nnext\tcolumn\n");
}

TEST_CASE("what is refused is exit code 2, what breaks 1") {
  for (const Code code :
       {Code::InvalidArgument, Code::NotFound, Code::AlreadyExists, Code::PermissionDenied,
        Code::ResourceExhausted, Code::FailedPrecondition, Code::Unimplemented}) {
    CHECK_MESSAGE(exit_code_of({code, "", ""}) == 2, word_of(code));
  }
  for (const Code code : {Code::Unavailable, Code::DeadlineExceeded, Code::Internal}) {
    CHECK_MESSAGE(exit_code_of({code, "", ""}) == 1, word_of(code));
  }
}

TEST_CASE("--json gives the same facts") {
  CHECK(error_json({Code::NotFound, "no \"9\"", "look"}) ==
        R"({"error":{"code":"not found","message":"no \"9\"","hint":"look"}})"
        "\n");
  // Not UTF-8: still JSON.
  CHECK(error_json({Code::Internal, "\xff", ""}).find("\xef\xbf\xbd") != std::string::npos);
}

}  // namespace
}  // namespace dtrain::cli
