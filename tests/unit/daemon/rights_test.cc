#include "daemon/rights.h"

#include <doctest/doctest.h>

namespace dtrain::daemon {
namespace {

Submission of(const std::string& user) {
  Submission submission;
  submission.user = user;
  return submission;
}

TEST_CASE("whoever has the daemon's account, or an admin's key, may do everything") {
  for (const Person& person : {Person(), Person{"boss", true}}) {
    CAPTURE(person.user);
    CHECK(may_change(person, of("anna"), "kill", "4").ok());
    CHECK(may_administer(person, "hosts invite").ok());
  }
}

TEST_CASE("others change what is theirs, and it is said whose the rest is") {
  const Person anna{"anna", false};
  CHECK(may_change(anna, of("anna"), "kill", "4").ok());
  const Status refused = may_change(anna, of("bert"), "kill", "4.2");
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == Code::PermissionDenied);
  CHECK(refused.error().message == "kill 4.2: it is bert's, and this key is anna's");
  const Status hosts = may_administer(anna, "hosts invite");
  REQUIRE(!hosts.ok());
  CHECK(hosts.error().message == "hosts invite is for admins, and anna's key is no admin's");
}

TEST_CASE("a name that begins like another's is another's") {
  CHECK(!may_change({"anna", false}, of("annabel"), "kill", "4").ok());
  CHECK(!may_change({"anna", false}, of(""), "kill", "4").ok());
}

}  // namespace
}  // namespace dtrain::daemon
