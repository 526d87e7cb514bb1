#include "cli/forwarded_ports.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

std::string refusal_of(const std::vector<std::string>& words) {
  const auto ports = forwarded_ports(words);
  return ports.ok() ? "" : ports.error().message;
}

TEST_CASE("a port is the same here unless another one is said before a colon") {
  const auto typed = forwarded_ports({"4.worker.1", "6006", "8888:80", "0:9000", "0:9000"});
  REQUIRE(typed.ok());
  CHECK(typed->id == "4.worker.1");
  CHECK(typed->ports == std::vector<ForwardedPort>{{6006, 6006}, {8888, 80}, {0, 9000}, {0, 9000}});
}

TEST_CASE("a single word is a port, and a first of several that could be either is an ID") {
  CHECK(forwarded_ports({"6006"})->id.empty());
  CHECK(forwarded_ports({"6006"})->ports == std::vector<ForwardedPort>{{6006, 6006}});
  CHECK(forwarded_ports({"4", "6006"})->id == "4");
  CHECK(forwarded_ports({"6006:6006", "7007"})->id.empty());
  CHECK(forwarded_ports({"1:65535"})->ports == std::vector<ForwardedPort>{{1, 65535}});
}

TEST_CASE("what is no port is refused, and what would lead to two places") {
  for (const char* word : {"0", "65536", "8888:0", "65536:1", "-1", "+1", "x", "", ":", ":1", "1:", "1:2:3", " 1", "1 ", "0x10", "4.master"}) {
    CAPTURE(word);
    CHECK(refusal_of({"4", word}).find("is no port") != std::string::npos);
  }
  CHECK(refusal_of({"4", "8888", "8888:80"}) == "port 8888 of this machine would lead to two places");
  CHECK(refusal_of({"4.master"}) == "'4.master' is no port");
  CHECK(refusal_of({}) == "which port?");
}

TEST_CASE("what forwards a server is told by its URL") {
  CHECK(forward_words("4.tensorboard", "http://10.0.0.5:20003/") == "port-forward 4.tensorboard 20003");
  CHECK(forward_words("4.tensorboard", "http://n1:20003/a:7/") == "port-forward 4.tensorboard 20003");
  CHECK(forward_words("4.tensorboard", "http://[::1]:20003") == "port-forward 4.tensorboard 20003");
  CHECK(forward_words("4.tensorboard", "http://n1/").empty());
  CHECK(forward_words("4.tensorboard", "").empty());
  CHECK(is_loopback_url("http://127.0.0.1:20003/"));
  CHECK(is_loopback_url("http://localhost:20003/"));
  CHECK_FALSE(is_loopback_url("http://10.0.0.5:20003/"));
}

}  // namespace
}  // namespace dtrain::cli
