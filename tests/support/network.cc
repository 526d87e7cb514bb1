#include "tests/support/network.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "tests/support/process.h"

namespace dtrain::tests {
namespace {

int made_in_this_process = 0;

}  // namespace

Network::Network(int hosts)
    : prefix_("dtrain" + std::to_string(getpid()) + "." + std::to_string(made_in_this_process++)) {
  if (geteuid() != 0) {
    unavailable_ = "network namespaces need root";
    return;
  }
  bool good = ip({"netns", "add", switch_name()});
  if (!good) return;
  made_.push_back(switch_name());
  good = in(switch_name(), {"link", "add", "bridge", "type", "bridge"}) &&
         in(switch_name(), {"link", "set", "bridge", "up"});
  for (int host = 0; good && host < hosts; ++host) {
    std::string name = host_name(host);
    std::string port = "port" + std::to_string(host);
    good = ip({"netns", "add", name});
    if (!good) break;
    made_.push_back(name);
    good = in(switch_name(),
              {"link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name}) &&
           in(switch_name(), {"link", "set", port, "master", "bridge", "up"}) &&
           in(name, {"addr", "add", address(host) + "/24", "dev", "eth0"}) &&
           in(name, {"link", "set", "lo", "up"}) && in(name, {"link", "set", "eth0", "up"});
  }
}

Network::~Network() {
  for (const std::string& name : made_) {
    try {
      run({.argv = {"ip", "netns", "del", name}, .directory = {}, .env = {}, .netns = {}});
    } catch (...) {
      // The expectation that failed has been reported; the other namespaces still have to go.
    }
  }
}

std::string Network::netns(int host) const {
  return "/run/netns/" + host_name(host);
}

void Network::add_ipv6() {
  for (size_t host = 0; host + 1 < made_.size(); ++host) {
    const int number = static_cast<int>(host);
    // Without a search for duplicates, before whose end nobody can listen there.
    if (!in(host_name(number), {"addr", "add", ipv6_address(number) + "/64", "dev", "eth0", "nodad"})) return;
  }
}

void Network::cut(int host) {
  set_link(host, "down");
}
void Network::join(int host) {
  set_link(host, "up");
}

void Network::block(int from, int to) {
  const bool done = in(host_name(from), {"route", "add", "blackhole", address(to)});
  REQUIRE_MESSAGE(done, unavailable_);
}

void Network::set_link(int host, const std::string& state) {
  bool done = in(switch_name(), {"link", "set", "port" + std::to_string(host), state});
  REQUIRE_MESSAGE(done, unavailable_);
}

bool Network::in(const std::string& netns, const std::vector<std::string>& words) {
  std::vector<std::string> all = {"-n", netns};
  all.insert(all.end(), words.begin(), words.end());
  return ip(all);
}

bool Network::ip(const std::vector<std::string>& words) {
  Command command{.argv = {"ip"}, .directory = {}, .env = {}, .netns = {}};
  command.argv.insert(command.argv.end(), words.begin(), words.end());
  Output output = run(command);
  if (output.code == 0) return true;
  unavailable_ = output.code == 127 ? "no `ip` command (package iproute2)"
                                    : "no network namespaces here: " + output.err;
  while (!unavailable_.empty() && unavailable_.back() == '\n') unavailable_.pop_back();
  return false;
}

}  // namespace dtrain::tests
