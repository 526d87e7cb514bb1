#include "daemon/host_keys.h"

#include <doctest/doctest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <ctime>

#include <fstream>

#include "tests/support/project.h"

namespace dtrain::daemon {
namespace {

const Endpoint kDaemon{"10.0.0.5", 7077};
const HostId kMachine{std::string(32, 'a')}, kOtherMachine{std::string(32, 'b')};

mode_t mode_of(const std::filesystem::path& path) {
  struct stat file {};
  REQUIRE(::stat(path.c_str(), &file) == 0);
  return file.st_mode & 0777;
}

// Whether a host whose clock says `when` takes the certificate for valid.
bool is_valid_at(const std::string& pem, time_t when) {
  BIO* const bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* const certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  REQUIRE(certificate != nullptr);
  const bool valid = X509_cmp_time(X509_get0_notBefore(certificate), &when) < 0 &&
                     X509_cmp_time(X509_get0_notAfter(certificate), &when) > 0;
  X509_free(certificate);
  BIO_free(bio);
  return valid;
}

struct Keys {
  test::TemporaryFolder folder;
  std::unique_ptr<HostKeys> keys = reopened();

  std::unique_ptr<HostKeys> reopened() {
    auto opened = HostKeys::open(folder.path() / "keys");
    if (!opened.ok()) FAIL(opened.error().message);
    return std::move(opened).value();
  }
  AccessKey invited(const std::string& name) {
    auto key = keys->invite(name, kDaemon);
    if (!key.ok()) FAIL(key.error().message);
    return std::move(key).value();
  }
};

TEST_CASE("a key is its first host's alone, over restarts of the daemon") {
  Keys scene;
  const AccessKey key = scene.invited("gpu1");
  CHECK(key.name == "gpu1");
  CHECK(key.daemon == "10.0.0.5:7077");
  CHECK(scene.keys->holder_of(key.certificate).value() == "gpu1");
  const auto first = scene.keys->admit(key.certificate, kMachine).value();
  CHECK(first.name == "gpu1");
  scene.keys = scene.reopened();
  CHECK(scene.keys->authority().certificate() == key.authority);
  CHECK(scene.keys->admit(key.certificate, kMachine).value().id == first.id);
  const auto other = scene.keys->admit(key.certificate, kOtherMachine);
  REQUIRE(!other.ok());
  CHECK(other.error().code == Code::PermissionDenied);
  CHECK(other.error().message == "the key of 'gpu1' is another host's");
}

TEST_CASE("a key is good on a host whose clock is wrong by years") {
  Keys scene;
  const AccessKey key = scene.invited("gpu1");
  const std::string daemons = scene.keys->authority().for_daemon().value().certificate;
  for (const std::string& certificate : {key.authority, key.certificate, daemons}) {
    for (const long years : {-20, 0, 20}) {
      CAPTURE(years);
      CHECK(is_valid_at(certificate, std::time(nullptr) + years * 365 * 86'400));
    }
  }
}

TEST_CASE("a key that was revoked opens nothing, and neither does it once another has its name") {
  Keys scene;
  const AccessKey first = scene.invited("gpu1");
  REQUIRE(scene.keys->revoke("gpu1").ok());
  CHECK(scene.keys->names().empty());
  CHECK(scene.keys->holder_of(first.certificate).error().code == Code::PermissionDenied);
  const AccessKey second = scene.invited("gpu1");
  CHECK(scene.keys->admit(first.certificate, kMachine).error().code == Code::PermissionDenied);
  CHECK(scene.keys->admit(second.certificate, kOtherMachine).ok());
  CHECK(scene.keys->revoke("gpu2").error().code == Code::NotFound);
  CHECK(scene.keys->revoke("../authority.pem").error().code == Code::NotFound);
}

TEST_CASE("a name has one key, and is a host's name") {
  Keys scene;
  scene.invited("gpu1");
  CHECK(scene.keys->invite("gpu1", kDaemon).error().code == Code::AlreadyExists);
  for (const std::string name : {"", ".", "..", "a/b", "a b", "-o", "a\nb"}) {
    CAPTURE(name);
    CHECK(scene.keys->invite(name, kDaemon).error().code == Code::InvalidArgument);
  }
  CHECK(scene.keys->invite(std::string(65, 'n'), kDaemon).error().code == Code::InvalidArgument);
  scene.invited(std::string(64, 'n'));
  CHECK(scene.keys->names() == std::vector<std::string>{"gpu1", std::string(64, 'n')});
}

TEST_CASE("a host keeps its ID over keys of one name, and gets nobody else's by saying it") {
  Keys scene;
  const HostId first = scene.keys->admit(scene.invited("gpu1").certificate, kMachine).value().id;
  CHECK(first != kMachine);  // one of the daemon's own machine may have that
  CHECK(scene.keys->admit(scene.invited("gpu2").certificate, kMachine).value().id != first);
  CHECK(scene.keys->admit(scene.invited("gpu3").certificate, first).value().id != first);
  REQUIRE(scene.keys->revoke("gpu1").ok());
  CHECK(scene.keys->admit(scene.invited("gpu1").certificate, kMachine).value().id == first);
}

TEST_CASE("no name of a host is in the way of another's") {
  Keys scene;
  const AccessKey first = scene.invited("gpu1.new"), second = scene.invited("gpu1"),
                third = scene.invited("gpu1.host");
  CHECK(scene.keys->admit(second.certificate, kOtherMachine).ok());
  CHECK(scene.keys->admit(first.certificate, kMachine).ok());
  CHECK(scene.keys->admit(third.certificate, kMachine).ok());
  CHECK(scene.keys->names() == std::vector<std::string>{"gpu1", "gpu1.host", "gpu1.new"});
}

TEST_CASE("nobody else may read the authority, and what is left of a damaged one is not taken") {
  Keys scene;
  const auto file = scene.folder.path() / "keys/authority.pem";
  CHECK(mode_of(scene.folder.path() / "keys") == 0700);
  CHECK(mode_of(file) == 0600);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  const auto damaged = HostKeys::open(scene.folder.path() / "keys");
  REQUIRE(!damaged.ok());
  CHECK(damaged.error().code == Code::DataLoss);
  CHECK(damaged.error().message.find(file.string() + " is damaged") == 0);
}

TEST_CASE("what is left of a damaged key opens nothing, and is revoked like a whole one") {
  Keys scene;
  const AccessKey key = scene.invited("gpu1");
  std::filesystem::resize_file(scene.folder.path() / "keys/hosts/gpu1.host", 10);
  CHECK(scene.keys->admit(key.certificate, kMachine).error().code == Code::DataLoss);
  const auto again = scene.keys->invite("gpu1", kDaemon);
  REQUIRE(!again.ok());
  CHECK(again.error().hint == "`dtrain hosts revoke gpu1`; then it may be invited again");
  REQUIRE(scene.keys->revoke("gpu1").ok());
  scene.invited("gpu1");
}

TEST_CASE("what is no certificate belongs to nobody") {
  Keys scene;
  for (const std::string text : {"", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "gpu1"}) {
    CHECK(fingerprint(text).empty());
    CHECK(common_name(text).empty());
    CHECK(!scene.keys->holder_of(text).ok());
  }
}

TEST_CASE("a key that is lent is for so many hosts, and no guest's") {
  Keys scene;
  const AccessKey key = scene.keys->lend("gpu-3", kDaemon, 2).value();
  const auto first = scene.keys->admit(key.certificate, kMachine).value();
  const auto second = scene.keys->admit(key.certificate, kOtherMachine).value();
  CHECK(first.lent);
  CHECK(first.id != second.id);
  CHECK(scene.keys->admit(key.certificate, {std::string(32, 'c')}).error().code == Code::PermissionDenied);
  scene.keys = scene.reopened();
  CHECK(scene.keys->admit(key.certificate, kOtherMachine).value().id == second.id);
  CHECK(scene.keys->hosts_of("gpu-3") == std::vector<HostId>{first.id, second.id});
  CHECK(scene.keys->names().empty());   // nobody was invited
  scene.invited("guest");
  CHECK(scene.keys->take_back("guest").empty());
  CHECK(scene.keys->names() == std::vector<std::string>{"guest"});
  CHECK(scene.keys->take_back("gpu-3") == std::vector<HostId>{first.id, second.id});
  CHECK(scene.keys->admit(key.certificate, kMachine).error().code == Code::PermissionDenied);
}

}  // namespace
}  // namespace dtrain::daemon
