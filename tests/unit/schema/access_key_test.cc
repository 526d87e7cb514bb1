#include "schema/access_key.h"

#include <doctest/doctest.h>

#include "schema/endpoint.h"

namespace dtrain {
namespace {

AccessKey some_key() {
  const auto block = [](const std::string& what, const std::string& text) {
    return "-----BEGIN " + what + "-----\n" + text + "\n-----END " + what + "-----\n";
  };
  return {KeyOf::Host, "gpu-1.lab", "10.0.0.5:7077", block("CERTIFICATE", "AAAA"), block("CERTIFICATE", "BBBB"),
          block("PRIVATE KEY", "CCCC")};
}

TEST_CASE("a host's key comes back from its text as it went") {
  const auto back = parse_access_key(to_text(some_key()), KeyOf::Host, "gpu.key");
  REQUIRE(back.ok());
  CHECK(*back == some_key());
}

TEST_CASE("a person's key is no host's, nor a host's a person's, and each says whose it is") {
  AccessKey key = some_key();
  key.of = KeyOf::User;
  const auto back = parse_access_key(to_text(key), KeyOf::User, "anna.key");
  REQUIRE(back.ok());
  CHECK(*back == key);
  const auto joining = parse_access_key(to_text(key), KeyOf::Host, "anna.key");
  REQUIRE(!joining.ok());
  CHECK(joining.error().message == "anna.key is a person's key, and no host joins by it");
  const auto using_it = parse_access_key(to_text(some_key()), KeyOf::User, "gpu.key");
  REQUIRE(!using_it.ok());
  CHECK(using_it.error().message == "gpu.key is a host's key, and nobody uses the daemon by it");
}

TEST_CASE("a text that breaks off anywhere, or is another, is no key, and it is said which file that is") {
  const std::string text = to_text(some_key());
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    CAPTURE(size);
    const auto back = parse_access_key(std::string_view(text).substr(0, size), KeyOf::Host, "gpu.key");
    // Dashes that end the last line are no part of what counts.
    if (back.ok()) CHECK(size >= text.rfind("-----END ") + 9);
  }
  const auto other = parse_access_key("-----BEGIN OPENSSH PRIVATE KEY-----\n", KeyOf::Host, "id_ed25519");
  REQUIRE(!other.ok());
  CHECK(other.error().code == Code::InvalidArgument);
  CHECK(other.error().message == "id_ed25519 is not a host's key");
}

TEST_CASE("a key that leads nowhere, or names nobody, is none") {
  for (const std::string daemon : {"", "10.0.0.5", "10.0.0.5:", "10.0.0.5:0", "10.0.0.5:65536", "a b:1", ":1"}) {
    CAPTURE(daemon);
    AccessKey key = some_key();
    key.daemon = daemon;
    CHECK(!parse_access_key(to_text(key), KeyOf::Host, "gpu.key").ok());
  }
  for (const std::string name : {"", "../gpu", "a b", "-o"}) {
    CAPTURE(name);
    AccessKey key = some_key();
    key.name = name;
    CHECK(!parse_access_key(to_text(key), KeyOf::Host, "gpu.key").ok());
  }
}

TEST_CASE("an address and a port, and how they are written") {
  for (const std::string text : {"10.0.0.5:7077", "[fd00::5]:7077", "trainer.lab:1", "0.0.0.0:0", "[::]:65535"}) {
    CAPTURE(text);
    const auto endpoint = parse_endpoint(text);
    REQUIRE(endpoint);
    CHECK(to_string(*endpoint) == text);
  }
  CHECK(parse_endpoint("[fd00::5]:7077")->host == "fd00::5");
  for (const std::string text : {"", "7077", "fd00::5:7077", "[10.0.0.5]:1", "[]:1", "host:", "host:-1", "host:1x",
                                 "host:70000", "[fd00::5]", "http://host:1"}) {
    CAPTURE(text);
    CHECK(!parse_endpoint(text));
  }
}

}  // namespace
}  // namespace dtrain
