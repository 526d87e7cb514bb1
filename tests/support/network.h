// Several hosts on one machine: network namespaces that share nothing but one virtual switch.
#pragma once

#include <string>
#include <vector>

namespace dtrain::tests {

// host k (from 0) has the address 10.66.0.<k+1> and its own loopback; they reach each other through
// a bridge in a namespace of its own, so that the machine's network is not touched. Owner: the test
// case. Promises: the destructor removes every namespace it made.
class Network {
 public:
  explicit Network(int hosts);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Why there is none here ("needs root"); empty: all is set up.
  const std::string& unavailable() const { return unavailable_; }
  static std::string address(int host) { return "10.66.0." + std::to_string(host + 1); }
  static std::string ipv6_address(int host) { return "fd66::" + std::to_string(host + 1); }
  std::string netns(int host) const;  // for Command::netns

  // Each host has that one, too, from now on; where this machine has no IPv6, unavailable() says so.
  void add_ipv6();

  // Takes host's link down, or up again.
  void cut(int host);
  void join(int host);
  // What the host `from` sends to `to` is dropped from now on.
  void block(int from, int to);

 private:
  std::string switch_name() const { return prefix_ + "-switch"; }
  std::string host_name(int host) const { return prefix_ + "-" + std::to_string(host); }
  bool ip(const std::vector<std::string>& words);  // false: unavailable_ says why
  bool in(const std::string& netns, const std::vector<std::string>& words);
  void set_link(int host, const std::string& state);

  std::string prefix_;
  std::vector<std::string> made_;
  std::string unavailable_;
};

}  // namespace dtrain::tests
