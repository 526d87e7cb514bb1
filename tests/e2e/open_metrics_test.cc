// What Prometheus reads of a daemon: by its own parser, and by hand.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

int connected_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  return fd;
}

// All that the other side says to this, until it closes.
std::string said_to(int port, const std::string& request) {
  const int fd = connected_to(port);
  REQUIRE(::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
  std::string all;
  char bytes[4096];
  for (ssize_t got; (got = ::recv(fd, bytes, sizeof bytes, 0)) > 0;) all.append(bytes, static_cast<size_t>(got));
  ::close(fd);
  return all;
}

std::string get(int port, const std::string& path, const std::string& more = "") {
  return said_to(port, "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + more + "\r\n");
}

struct Exposed {
  Cluster cluster;
  std::string url;
  int port = 0;

  Exposed() {
    fs::create_directories(cluster.home());
    write_file(cluster.home() / "config.yml", "host: {cpus: 4, mem: 4GiB}\nopen-metrics: 127.0.0.1:0\n");
    REQUIRE(cluster.run({"daemon", "start"}).code == 0);
    const Output status = cluster.run({"daemon", "status", "--json"});
    url = facts(status)["open_metrics"];
    REQUIRE_MESSAGE(url.ends_with("/metrics"), status.all());
    port = std::atoi(url.c_str() + url.rfind(':') + 1);
    CHECK(says(cluster.run({"daemon", "status"}), url));
  }
};

}  // namespace

TEST_CASE("what runs, what ended and what programs say of themselves is read by Prometheus' own parser") {
  Exposed exposed;
  Cluster& cluster = exposed.cluster;
  const fs::path project = cluster.project(
      "project: toaster\ntrain:\n  resources: {cpus: 0.5, mem: 64}\n  metrics: [loss]\n  run: echo loss=0.25; exec sleep 1000\n");
  REQUIRE(cluster.run({"train", "-d"}, project).code == 0);
  cluster.start({"logs", "-f", "1"})->wait_for("loss=0.25");
  REQUIRE(cluster.run({"train", "--", "false"}, project).code == 1);
  const char* python = std::getenv("DTRAIN_TEST_PYTHON");
  if (python == nullptr || std::system(("'" + std::string(python) + "' -c 'import prometheus_client' 2> /dev/null").c_str()) != 0) {
    return say_left_out("what prometheus_client reads: DTRAIN_TEST_PYTHON names no python that has it");
  }
  const std::string command = "'" + std::string(python) + "' '" SOURCE_DIR "/tests/e2e/read_open_metrics.py' " + exposed.url;
  CHECK(std::system(command.c_str()) == 0);
}

TEST_CASE("whoever asks for what there is not, or for too much, is answered or left, and the daemon goes on") {
  Exposed exposed;
  const int port = exposed.port;
  CHECK(get(port, "/metrics").find("Content-Type: text/plain; version=0.0.4") != std::string::npos);
  const std::string open = get(port, "/metrics?x=1", "Accept: application/openmetrics-text; version=1.0.0\r\n");
  CHECK(open.find("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n") != std::string::npos);
  CHECK(open.ends_with("# EOF\n"));
  CHECK(get(port, "http://localhost/metrics", "accept: Application/OpenMetrics-Text\r\n").ends_with("# EOF\n"));
  CHECK(get(port, "/").find("/metrics") != std::string::npos);
  CHECK(get(port, "/etc/passwd").starts_with("HTTP/1.1 404 "));
  CHECK(said_to(port, "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").starts_with("HTTP/1.1 405 "));
  const std::string head = said_to(port, "HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  CHECK(head.starts_with("HTTP/1.1 200 "));
  CHECK(head.ends_with("\r\n\r\n"));
  CHECK(said_to(port, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
  CHECK(said_to(port, "GET / HTTP/1.1\r\nX: " + std::string(9'000, 'x') + "\r\n\r\n").starts_with("HTTP/1.1 400 "));
  CHECK(get(port, "/metrics").starts_with("HTTP/1.1 200 "));
  CHECK(exposed.cluster.run({"daemon", "stop"}).code == 0);
}

TEST_CASE("however many keep their connections and say nothing, who asks is answered") {
  Exposed exposed;
  std::vector<int> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connected_to(exposed.port));
  REQUIRE(::send(silent.back(), "GET /metr", 9, MSG_NOSIGNAL) == 9);
  CHECK(get(exposed.port, "/metrics").starts_with("HTTP/1.1 200 "));
  for (const int fd : silent) ::close(fd);
}

TEST_CASE("an address that can't be had keeps no daemon from starting, and is said") {
  Exposed exposed;
  Cluster other;
  fs::create_directories(other.home());
  write_file(other.home() / "config.yml", "open-metrics: 127.0.0.1:" + std::to_string(exposed.port) + "\n");
  CHECK(other.run({"train", "--", "true"}).code == 0);
  const Output status = other.run({"daemon", "status"});
  CHECK_MESSAGE(says(status, "can't offer metrics on 127.0.0.1:" + std::to_string(exposed.port)), status.all());
  CHECK(facts(other.run({"daemon", "status", "--json"}))["open_metrics"].is_null());
}
