#include "cli/hosts_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/escapes.h"
#include "cli/remote.h"
#include "cli/table.h"
#include "cli/words.h"

namespace dtrain::cli {

namespace {

using Json = nlohmann::ordered_json;

// Below these a gang waits for the disk or the network rather than for its processors.
constexpr double kSlowDiskBytesPerS = 10e6;
constexpr uint64_t kLittleRoomBytes = uint64_t{1} << 30;
constexpr double kSlowLinkBytesPerS = 100e6 / 8;
constexpr double kSlowPart = 4;            // of the usual link's rate less than that part is slow
constexpr size_t kUsualOfMost = 3;         // links, to say which is usual
constexpr double kLongTripMs = 20;
constexpr double kClocksApartMs = 1000;

// Both ways, told by whoever dialled.
struct Link {
  size_t from = 0, to = 0;
  double round_trip_ms = 0;
  double bytes_per_s = 0;    // of the slower way
};

std::vector<Link> links_of(const HostsTest& test) {
  std::vector<Link> links;
  for (size_t from = 0; from < test.hosts.size(); ++from) {
    for (const auto& [to, link] : test.hosts[from].links) {
      if (to < 0 || static_cast<size_t>(to) >= test.hosts.size()) continue;
      links.push_back({from, static_cast<size_t>(to), link.round_trip_ms, std::min(link.sent_bytes_per_s, link.received_bytes_per_s)});
    }
  }
  return links;
}

template <class Value>
double median(const std::vector<Value>& values, double (*of)(const Value&)) {
  std::vector<double> numbers;
  for (const Value& value : values) numbers.push_back(of(value));
  const auto middle = numbers.begin() + static_cast<long>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

std::string rate_text(double bytes_per_s) { return human_size(static_cast<uint64_t>(bytes_per_s)) + "/s"; }

std::string bits_text(double bytes_per_s) {
  const double bits = bytes_per_s * 8;
  return bits >= 1e9 ? fmt::format("{:.1f} Gbit/s", bits / 1e9) : fmt::format("{:.0f} Mbit/s", bits / 1e6);
}

std::string trip_text(double ms) { return ms >= 10 ? fmt::format("{:.0f} ms", ms) : fmt::format("{:.2f} ms", ms); }

std::string name_of_host(const TestedHost& host) { return host.info.name(); }

// What else may be the reason.
std::string beside_text(const TestedHost& host) {
  // With the test's own.
  const uint32_t others = host.info.replicas();
  return others == 0 ? "" : fmt::format("; {} of other experiments ran there meanwhile", human_count(others, "replica"));
}

class Judgement {
 public:
  explicit Judgement(const HostsTest& test) : test_(test) {}

  std::vector<HostsTrouble> run() {
    for (const NotTested& one : test_.others) {
      if (one.is_trouble) add(one.host, "", fmt::format("{} {}", one.host, one.why), one.hint);
    }
    if (!test_.not_started.empty()) {
      add("", "", test_.not_started, test_.id.empty() ? "" : fmt::format("dtrain status {0} and dtrain logs {0} have more", test_.id));
    }
    for (const TestedHost& host : test_.hosts) own_troubles(host);
    for (size_t from = 0; from < test_.hosts.size(); ++from) reach_troubles(test_.hosts[from]);
    link_troubles();
    clock_troubles();
    return std::move(troubles_);
  }

 private:
  void add(std::string host, std::string other, std::string text, std::string hint) {
    troubles_.push_back({std::move(host), std::move(other), std::move(text), as_called(std::move(hint))});
  }
  void add(const TestedHost& host, std::string text, std::string hint) { add(name_of_host(host), "", name_of_host(host) + " " + text, std::move(hint)); }

  void own_troubles(const TestedHost& host) {
    if (host.is_away) {
      return add(host, "went away while it was tested", "its runner has gone, or the network to it; what it says itself is in its runner's log");
    }
    if (!host.end.empty()) {
      return add(host, "can't run it: " + host.end, fmt::format("dtrain logs {} has what it said", test_.id));
    }
    if (!host.began) {
      if (host.started_after_ms) add(host, "started it, and nothing of what it printed came here", "is its disk full, or its runner's connection slow?");
      return;
    }
    if (host.began->sent != test_.sent) {
      add(host, "has not what was sent with the experiment", "look at the disk of its runner's directory (`--home`)");
    }
    disk_troubles(host, host.work, "its working directories");
    disk_troubles(host, host.output, "OUTPUT_DIR");
    if (!host.done) return add(host, "did not come to its end in time", "what it said before is told here");
    if (!host.wrote) return add(host, "could not write a file to OUTPUT_DIR", "look at the room and the permissions there");
    if (!host.arrived) {
      add(host, "wrote a file to OUTPUT_DIR which is not here as it was written",
          "where hosts share that directory, do they all see the same one? Else daemon.log and the host's runner say why it was not carried");
    }
  }

  void disk_troubles(const TestedHost& host, const std::optional<ProbeDisk>& disk, const char* where) {
    if (!disk) return;
    if (!disk->trouble.empty()) return add(host, fmt::format("can't write to {}: {}", where, disk->trouble), "look at that disk, or name another directory by `--home` of its runner");
    if (disk->free_bytes < kLittleRoomBytes) {
      add(host, fmt::format("has only {} left for {}", human_size(disk->free_bytes), where), "make room; `dtrain prune` frees what ended experiments take");
    }
    if (disk->bytes_per_s < kSlowDiskBytesPerS) {
      add(host, fmt::format("writes only {} to {}{}", rate_text(disk->bytes_per_s), where, beside_text(host)), "checkpoints will take long; is it a network disk, or one that fails?");
    }
  }

  void reach_troubles(const TestedHost& host) {
    for (const auto& [to, reach] : host.reaches) {
      if (to < 0 || static_cast<size_t>(to) >= test_.hosts.size() || reach.reach == Reach::Reached) continue;
      const TestedHost& other = test_.hosts[static_cast<size_t>(to)];
      std::string error = reach.error;
      if (!error.empty()) error[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(error[0])));
      add(name_of_host(host), name_of_host(other), fmt::format("{} can't reach {} at {}:{}: {}", name_of_host(host), name_of_host(other), other.address, other.port, error),
          reach_hint(host, other, reach.reach));
    }
  }

  static std::string ports_of(const TestedHost& host) {
    return fmt::format("ports {}-{}", host.info.port_first(), host.info.port_last());
  }
  static std::string reach_hint(const TestedHost& host, const TestedHost& other, Reach reach) {
    const std::string address = fmt::format("`address` below `host:` in the config.yml of {}, or its runner's --address, says another", name_of_host(other));
    switch (reach) {
      case Reach::Reached: return "";
      case Reach::TimedOut:
        return fmt::format("does a firewall there let {} (`ports` below `host:` in its config.yml) through? If {} is no address that {} can use: {}",
                           ports_of(other), other.address, name_of_host(host), address);
      case Reach::Refused:
      case Reach::Stranger:
        return fmt::format("is {} really the address of {}? {}. A firewall may refuse, too: it has to let {} through", other.address, name_of_host(other), address, ports_of(other));
      case Reach::NoWay: return fmt::format("{} has no way to {}, or a firewall closes it: {}", name_of_host(host), other.address, address);
      case Reach::NoName: return fmt::format("{} does not know that name: have it in DNS or /etc/hosts there; {}", name_of_host(host), address);
      case Reach::Other: break;
    }
    return address;
  }

  void link_troubles() {
    const std::vector<Link> links = links_of(test_);
    if (links.empty()) return;
    const double usual = median<Link>(links, [](const Link& link) { return link.bytes_per_s; });
    for (const Link& link : links) {
      const TestedHost &from = test_.hosts[link.from], &to = test_.hosts[link.to];
      if (link.bytes_per_s <= 0) {
        add(name_of_host(from), name_of_host(to), fmt::format("what {} and {} sent each other did not get there, though they greeted each other", name_of_host(from), name_of_host(to)),
            "does either of them drop large packets (MTU), or was the network cut meanwhile?");
        continue;
      }
      const bool is_unusual = links.size() >= kUsualOfMost && link.bytes_per_s * kSlowPart < usual;
      if (link.bytes_per_s < kSlowLinkBytesPerS || is_unusual) {
        const std::string others = is_unusual ? fmt::format(", where {} is usual", bits_text(usual)) : "";
        add(name_of_host(from), name_of_host(to), fmt::format("only {} go between {} and {}{}{}", bits_text(link.bytes_per_s), name_of_host(from), name_of_host(to), others, beside_text(to)),
            "look at the cables, the switch and the speed of the cards (ethtool) of both; another network of theirs may be the fast one: `address` below `host:`");
      }
      if (link.round_trip_ms > kLongTripMs) {
        add(name_of_host(from), name_of_host(to), fmt::format("{} and {} are {} from each other", name_of_host(from), name_of_host(to), trip_text(link.round_trip_ms)),
            "workers that wait for each other do so at each step; have a gang on one side: `hosts` in dtrain.yml, or --host");
      }
    }
  }

  // By whoever most agree with.
  void clock_troubles() {
    std::map<size_t, std::vector<double>> ahead_ms;
    for (size_t from = 0; from < test_.hosts.size(); ++from) {
      for (const auto& [to, link] : test_.hosts[from].links) {
        if (to < 0 || static_cast<size_t>(to) >= test_.hosts.size()) continue;
        ahead_ms[static_cast<size_t>(to)].push_back(link.clock_ahead_ms);
        ahead_ms[from].push_back(-link.clock_ahead_ms);
      }
    }
    for (const auto& [index, differences] : ahead_ms) {
      const double usual = median<double>(differences, [](const double& value) { return value; });
      const bool is_one_of_two = test_.hosts.size() == 2 && index == 1;   // said of the other
      if (std::abs(usual) < kClocksApartMs || is_one_of_two) continue;
      add(test_.hosts[index], fmt::format("has its clock {:.1f} s {} those of the others", std::abs(usual) / 1000, usual > 0 ? "ahead of" : "behind"),
          "have chrony or systemd-timesyncd set it: times of logs and files, and certificates, go by it");
    }
  }

  const HostsTest& test_;
  std::vector<HostsTrouble> troubles_;
};

// As they are shown: by their names.
std::vector<size_t> in_order(const HostsTest& test) {
  std::vector<size_t> order(test.hosts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t index) { return name_of_host(test.hosts[index]); });
  return order;
}

// Of those that a host is an end of.
struct Worst {
  std::string link = "-", trip = "-";
};
Worst worst_of(const HostsTest& test, size_t host) {
  Worst worst;
  double least = INFINITY, longest = -1;
  for (const Link& link : links_of(test)) {
    if (link.from != host && link.to != host) continue;
    const std::string& other = test.hosts[link.from == host ? link.to : link.from].info.name();
    if (link.bytes_per_s < least) {
      least = link.bytes_per_s;
      worst.link = fmt::format("{} ({})", bits_text(link.bytes_per_s), other);
    }
    if (link.round_trip_ms > longest) {
      longest = link.round_trip_ms;
      worst.trip = fmt::format("{} ({})", trip_text(link.round_trip_ms), other);
    }
  }
  return worst;
}

std::string disk_rate(const std::optional<ProbeDisk>& disk) { return !disk || !disk->trouble.empty() ? "-" : rate_text(disk->bytes_per_s); }

Cell verdict_cell(const std::vector<HostsTrouble>& troubles, const TestedHost& host) {
  const auto is_about = [&](const HostsTrouble& one) { return one.host == name_of_host(host) || one.other == name_of_host(host); };
  if (std::ranges::any_of(troubles, is_about)) return {"trouble", Ink::Red};
  return host.done ? Cell{"ok", Ink::Green} : Cell{"-"};
}

Json json_of(const std::optional<ProbeDisk>& disk) {
  if (!disk) return nullptr;
  return {{"bytes_per_s", std::round(disk->bytes_per_s)}, {"free_bytes", disk->free_bytes}, {"trouble", disk->trouble}};
}

Json json_of(const TestedHost& host) {
  return {{"host", name_of_host(host)},
          {"id", host.info.id()},
          {"address", host.address},
          {"port", host.port},
          {"started_after_ms", host.started_after_ms ? Json(*host.started_after_ms) : Json()},
          {"work", json_of(host.work)},
          {"output", json_of(host.output)},
          {"output_arrived", host.arrived},
          {"done", host.done}};
}

Json links_json(const HostsTest& test) {
  Json links = Json::array();
  for (const TestedHost& from : test.hosts) {
    for (const auto& [to, reach] : from.reaches) {
      if (to < 0 || static_cast<size_t>(to) >= test.hosts.size()) continue;
      const auto measured = from.links.find(to);
      const bool has = measured != from.links.end();
      const auto figure = [&](double value) { return has ? Json(value) : Json(); };
      const ProbeLink link = has ? measured->second : ProbeLink{};
      links.push_back({{"from", name_of_host(from)},
                       {"to", name_of_host(test.hosts[static_cast<size_t>(to)])},
                       {"reached", reach.reach == Reach::Reached},
                       {"error", reach.error},
                       {"round_trip_ms", figure(link.round_trip_ms)},
                       {"sent_bytes_per_s", figure(link.sent_bytes_per_s)},
                       {"received_bytes_per_s", figure(link.received_bytes_per_s)},
                       {"clock_ahead_ms", figure(link.clock_ahead_ms)}});
    }
  }
  return links;
}

}  // namespace

std::vector<HostsTrouble> troubles_of(const HostsTest& test) { return Judgement(test).run(); }

std::string render_hosts_test(const HostsTest& test, const View& view) {
  const std::vector<HostsTrouble> troubles = troubles_of(test);
  std::string out;
  if (!test.hosts.empty()) {
    Table table;
    table.columns = {{"HOST", 10, 0, true},    {"STATE", 5, 0, false},        {"STARTED", 7, 2, false},    {"DISK", 8, 3, false},
                     {"FREE", 8, 3, false},    {"OUTPUTS", 8, 1, false},      {"SLOWEST LINK", 12, 5, false}, {"ROUND TRIP", 10, 4, false}};
    for (const size_t i : in_order(test)) {
      const TestedHost& host = test.hosts[i];
      const Worst worst = worst_of(test, i);
      table.rows.push_back({{name_of_host(host)},
                            verdict_cell(troubles, host),
                            {host.started_after_ms ? fmt::format("{:.1f} s", static_cast<double>(*host.started_after_ms) / 1000) : "-"},
                            {disk_rate(host.work)},
                            {host.work ? human_size(host.work->free_bytes) : "-"},
                            {disk_rate(host.output)},
                            {worst.link},
                            {worst.trip}});
    }
    out += render(table, view.screen);
  }
  for (const NotTested& one : test.others) {
    if (!one.is_trouble) out += on_one_line(fmt::format("{}: not tested, it {}{}", one.host, one.why, one.hint.empty() ? "" : "; " + one.hint)) + "\n";
  }
  if (test.left_out) {
    out += fmt::format("Of {} rounds of measurements {} were made: each host was measured with so many of the others\n", test.left_out->rounds_all, test.left_out->rounds);
  }
  for (const HostsTrouble& one : troubles) {
    out += paint(on_one_line(one.text), Ink::Red, view.screen.colours) + "\n";
    if (!one.hint.empty()) out += "  " + on_one_line(one.hint) + "\n";
  }
  if (troubles.empty()) out += fmt::format("All is well with {}\n", human_count(test.hosts.size(), "host"));
  return out;
}

std::string to_json(const HostsTest& test) {
  const std::vector<HostsTrouble> troubles = troubles_of(test);
  Json hosts = Json::array(), others = Json::array(), listed = Json::array();
  for (const size_t i : in_order(test)) hosts.push_back(json_of(test.hosts[i]));
  for (const NotTested& one : test.others) others.push_back({{"host", one.host}, {"why", one.why}, {"trouble", one.is_trouble}});
  for (const HostsTrouble& one : troubles) {
    listed.push_back({{"host", one.host.empty() ? Json() : Json(one.host)},
                      {"other", one.other.empty() ? Json() : Json(one.other)},
                      {"message", one.text},
                      {"hint", one.hint}});
  }
  const Json all = {{"experiment", test.id.empty() ? Json() : Json(test.id)},
                    {"ok", troubles.empty()},
                    {"hosts", std::move(hosts)},
                    {"links", links_json(test)},
                    {"not_tested", std::move(others)},
                    {"rounds_left_out", test.left_out ? test.left_out->rounds_all - test.left_out->rounds : 0},
                    {"troubles", std::move(listed)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dtrain::cli
