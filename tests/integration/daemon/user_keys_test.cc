#include "daemon/user_keys.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>

#include "daemon/host_keys.h"
#include "tests/support/project.h"

namespace dtrain::daemon {
namespace {

namespace fs = std::filesystem;

const Endpoint kDialled{"10.0.0.1", 7077};

struct KeysScene {
  test::TemporaryFolder folder;
  std::unique_ptr<HostKeys> hosts = HostKeys::open(folder.path() / "keys").value();
  std::unique_ptr<UserKeys> users = open();

  std::unique_ptr<UserKeys> open() const { return UserKeys::open(folder.path() / "keys", hosts->authority()).value(); }
  // As the next daemon knows them.
  void reopen() { users = open(); }
};

TEST_CASE("a person is who their key says, also for the next daemon, until it is revoked") {
  KeysScene scene;
  const AccessKey anna = scene.users->invite("anna", false, kDialled).value();
  const AccessKey boss = scene.users->invite("boss", true, kDialled).value();
  CHECK(anna.of == KeyOf::User);
  CHECK(anna.daemon == "10.0.0.1:7077");
  for (int daemon = 0; daemon < 2; ++daemon, scene.reopen()) {
    CAPTURE(daemon);
    CHECK(scene.users->person_of(anna.certificate).value().user == "anna");
    CHECK(!scene.users->person_of(anna.certificate).value().is_admin);
    CHECK(scene.users->person_of(boss.certificate).value().is_admin);
    REQUIRE(scene.users->all().size() == 2);
    CHECK(scene.users->all()[0].user == "anna");
  }
  REQUIRE(scene.users->revoke("anna").ok());
  for (int daemon = 0; daemon < 2; ++daemon, scene.reopen()) {
    CAPTURE(daemon);
    const auto refused = scene.users->person_of(anna.certificate);
    REQUIRE(!refused.ok());
    CHECK(refused.error().code == Code::PermissionDenied);
    CHECK(scene.users->person_of(boss.certificate).ok());
  }
  // Another key of the same name is another key.
  const AccessKey again = scene.users->invite("anna", false, kDialled).value();
  CHECK(scene.users->person_of(again.certificate).ok());
  CHECK(!scene.users->person_of(anna.certificate).ok());
}

TEST_CASE("a host's key is no person's, nor a person's a host's, though they have one name") {
  KeysScene scene;
  const AccessKey host = scene.hosts->invite("anna", kDialled).value();
  const AccessKey person = scene.users->invite("anna", true, kDialled).value();
  CHECK(!scene.users->person_of(host.certificate).ok());
  CHECK(!scene.hosts->holder_of(person.certificate).ok());
  CHECK(!scene.hosts->admit(person.certificate, {std::string(32, 'a')}).ok());
}

TEST_CASE("one name has one key, and a name is one") {
  KeysScene scene;
  REQUIRE(scene.users->invite("anna", false, kDialled).ok());
  CHECK(scene.users->invite("anna", true, kDialled).error().code == Code::AlreadyExists);
  CHECK(!scene.users->all().front().is_admin);
  for (const std::string& name : std::vector<std::string>{"", "../anna", "a b", "-x", "a/b", std::string(65, 'a')}) {
    CAPTURE(name);
    CHECK(scene.users->invite(name, false, kDialled).error().code == Code::InvalidArgument);
  }
  CHECK(scene.users->revoke("../authority").error().code == Code::NotFound);
  CHECK(scene.users->revoke("bert").error().code == Code::NotFound);
}

TEST_CASE("a file that is damaged opens nothing, and can be revoked") {
  KeysScene scene;
  const AccessKey boss = scene.users->invite("boss", true, kDialled).value();
  const fs::path file = scene.folder.path() / "keys/users/boss.user";
  for (const std::string text : {"", "\n", "admin\n", "0123 admin\n"}) {
    CAPTURE(text);
    std::ofstream(file, std::ios::trunc) << text;
    scene.reopen();
    CHECK(!scene.users->person_of(boss.certificate).ok());
    CHECK(scene.users->all().size() == 1);
  }
  // Cut off in the middle of its last word: no admin.
  std::ofstream(file, std::ios::trunc) << fingerprint(boss.certificate) << " adm";
  scene.reopen();
  CHECK(!scene.users->person_of(boss.certificate).value().is_admin);
  CHECK(scene.users->revoke("boss").ok());
  CHECK(scene.users->all().empty());
  fs::create_directories(file);   // can't be read at all
  scene.reopen();
  CHECK(scene.users->all().size() == 1);
}

TEST_CASE("with the authority go the keys that it has signed, and their names are free") {
  KeysScene scene;
  const AccessKey anna = scene.users->invite("anna", false, kDialled).value();
  REQUIRE(scene.hosts->invite("gpu1", kDialled).ok());
  scene.users.reset();
  fs::remove(scene.folder.path() / "keys/authority.pem");
  scene.hosts = HostKeys::open(scene.folder.path() / "keys").value();
  scene.reopen();
  CHECK(scene.users->all().empty());
  CHECK(scene.hosts->names().empty());
  CHECK(scene.users->invite("anna", false, kDialled).ok());
}

}  // namespace
}  // namespace dtrain::daemon
