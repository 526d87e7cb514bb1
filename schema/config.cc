#include "schema/config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>
#include <vector>

#include "schema/fd.h"
#include "schema/endpoint.h"
#include "schema/problems.h"
#include "schema/shapes.h"
#include "schema/spec_check.h"
#include "schema/spec_read.h"
#include "schema/yaml_tree.h"

namespace dtrain {

namespace {

using namespace shapes;

// Two segments of a spool: below that it would be dropped while it is written.
constexpr uint64_t kSpoolLimitMinBytes = uint64_t{16} << 20;
constexpr int64_t kRunnerTimeoutMinMs = 1'000;
// Timers count nanoseconds, and what is waited for doubles.
constexpr int64_t kRunnerTimeoutMaxMs = int64_t{366} * 86'400'000;

const TextFormat kPortRange{
    "a range of ports such as 20000-29999", "^[0-9]{1,5}-[0-9]{1,5}$",
    [](std::string_view text) { return parse_port_range(text).has_value(); }};

const TextFormat kHostAddress{
    "an IP address or a name by which other hosts reach this one, such as 10.0.0.5",
    "^[0-9A-Za-z.:_-]+$", is_host_address};

const TextFormat kListen{"an IP address of this machine and a port, such as 10.0.0.5:7077", "^[0-9A-Fa-f.:\\[\\]]+:[0-9]{1,5}$",
                         [](std::string_view text) {
                           const auto endpoint = parse_endpoint(text);
                           return endpoint && is_ip_address(endpoint->host);
                         }};

const TextFormat kOpenMetrics{"an IP address of this machine and a port, such as 127.0.0.1:9464", kListen.pattern, kListen.accepts};

// Part of the names of keys and of Slurm's jobs.
constexpr size_t kPoolNameMax = 40;
constexpr int64_t kSlurmTimeMinMs = 60'000;   // it counts in minutes

bool is_pool_name(std::string_view text) { return is_host_name(text) && text.size() <= kPoolNameMax; }

const TextFormat kPoolName{"a name for its hosts, of up to 40 letters, digits, '.', '-' and '_'", "^[0-9A-Za-z_][0-9A-Za-z._-]{0,39}$",
                           is_pool_name};

bool is_one_word(std::string_view text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), [](unsigned char c) { return c <= ' ' || c == 127; });
}

const TextFormat kWord{"a name without blanks", "^[^\\s]+$", is_one_word};

// Those that dtrain gives itself, or that would make something else of its job.
bool is_free_option(std::string_view text) {
  static constexpr std::string_view kOwn[] = {
      "-J", "--job-name", "-W", "--wait", "-a", "--array", "-N", "--nodes", "-n", "--ntasks", "--ntasks-per-node",
      "-c", "--cpus-per-task", "--mem", "--mem-per-cpu", "-t", "--time", "--time-min", "--requeue", "--parsable", "--wrap",
      "-H", "--hold", "--test-only", "-D", "--chdir", "--gpus-per-node", "-s", "--oversubscribe", "-M", "--clusters"};
  if (!text.starts_with('-') || text.size() < 2) return false;
  const std::string_view name = text.starts_with("--") ? text.substr(0, text.find('=')) : text.substr(0, 2);
  return std::find(std::begin(kOwn), std::end(kOwn), name) == std::end(kOwn);
}

const TextFormat kSbatchOption{"an option of sbatch that says nothing of the job's name, size, time or number, such as --account=lab",
                               "^-.*$", is_free_option};

const TextFormat kAbsolutePath{"a path from /", "^/.*$", [](std::string_view text) { return text.starts_with('/'); }};

Shape size() {
  return either(kMemoryText.expected, {number(0.01, 67'108'864), text(kMemoryText)});
}

// With every key commented out, a section is nothing.
Shape section(std::string_view expected, std::vector<Key> keys) {
  return either(expected, {nothing(), map(expected, std::move(keys))});
}

Shape make_config_shape() {
  // With its unit: `ended: 90` may be meant for days.
  static const TextFormat kDuration{"a duration such as 60s, 12h or 90d", kDurationText.pattern,
                                    kDurationText.accepts};
  Shape host = section("a map of address, cpus, mem, ports, labels and cache",
                       {{"address", text(kHostAddress)},
                        {"cpus", number(0.01, 4096)},
                        {"mem", size()},
                        {"ports", text(kPortRange)},
                        {"labels", list("a list of labels", text(kHostLabel), kHostLabelsMax)},
                        {"cache", size()}});
  Shape sync = section("a map of warn, ask and max-file",
                       {{"warn", size()}, {"ask", size()}, {"max-file", size()}});
  Shape keep = section("a map of ended and logs", {{"ended", text(kDuration)}, {"logs", size()}});
  Shape slurm = map("a map of name, partition, cpus, mem, gpus, max-hosts, time, idle-release, options and dtrain",
                    {{"name", text(kPoolName)},
                     {"partition", text(kWord)},
                     {"cpus", integer(1, 4096), {}, true},
                     {"mem", size(), {}, true},
                     {"gpus", integer(0, 1024)},
                     {"max-hosts", integer(1, 1024), {}, true},
                     {"time", text(kDuration), {}, true},
                     {"idle-release", text(kDuration)},
                     {"options", list("a list of options of sbatch", text(kSbatchOption))},
                     {"dtrain", text(kAbsolutePath)}});
  Shape quota = map("a map of user, cpus, mem and gpus",
                    {{"user", text(kSomeText)}, {"cpus", number(0, 1e6)}, {"mem", size()}, {"gpus", integer(0, 1'000'000)}});
  Shape weight = map("a map of user and weight", {{"user", text(kSomeText)}, {"weight", number(0.01, 1e6), {}, true}});
  return map("a map of host, listen, pools, quotas, fair-share, open-metrics, spool-limit, runner-timeout, keep and sync",
             {{"host", host},
              {"pools", list("a list of pools", map("a map of slurm", {{"slurm", slurm, {}, true}}))},
              {"quotas", list("a list of quotas such as {user: anna, gpus: 4}", quota)},
              {"fair-share", either("true, or a list of weights such as {user: anna, weight: 2}", {boolean(), list("a list of weights", weight)})},
              {"listen", text(kListen)},
              {"open-metrics", text(kOpenMetrics)},
              {"spool-limit", size()},
              {"runner-timeout", text(kDuration)},
              {"keep", keep},
              {"sync", sync}});
}

// A number without unit counts MiB, as in dtrain.yml.
std::optional<uint64_t> read_size(const YamlNode* map, const std::string& path, const std::string& key, Problems& problems) {
  const YamlNode* node = value_of(map, key);
  if (!node) return std::nullopt;
  const auto size = as_number(*node) ? parse_mib(node->text) : parse_memory(node->text);
  // What is given is never as if it were left out: that would be no limit.
  if (!size) problems.add(node->place, join_path(path, key), fmt::format("got '{}', expected a size such as 16GiB", node->text));
  return size;
}

void read_pools(const YamlNode& pools, Config& config, Problems& problems) {
  for (const YamlNode& item : pools.items) {
    const YamlNode* node = value_of(&item, "slurm");
    const auto text_of = [&](std::string_view key) {
      const YamlNode* value = value_of(node, key);
      return value ? value->text : std::string();
    };
    const auto number_of = [&](std::string_view key) {
      const YamlNode* value = value_of(node, key);
      return value ? as_number(*value).value_or(0) : 0;
    };
    SlurmPool pool;
    pool.partition = text_of("partition");
    pool.name = text_of("name");
    if (pool.name.empty()) pool.name = pool.partition.empty() ? "slurm" : pool.partition;
    pool.cpus = number_of("cpus");
    pool.memory_bytes = read_size(node, "pools.slurm", "mem", problems).value_or(0);
    pool.gpus = static_cast<int>(number_of("gpus"));
    pool.hosts_max = static_cast<int>(number_of("max-hosts"));
    pool.time_ms = parse_duration_ms(text_of("time")).value_or(0);
    pool.idle_release_ms = parse_duration_ms(text_of("idle-release")).value_or(pool.idle_release_ms);
    if (const YamlNode* options = value_of(node, "options")) {
      for (const YamlNode& option : options->items) pool.options.push_back(option.text);
    }
    pool.dtrain = text_of("dtrain");
    if (!problems.empty()) continue;
    if (pool.time_ms < kSlurmTimeMinMs) {
      problems.add(node->find("time")->place, "pools.slurm.time", fmt::format("got {}, expected at least 1m", text_of("time")));
    }
    if (!is_pool_name(pool.name)) {
      problems.add(node->place, "pools.slurm.name", fmt::format("'{}' is no name of hosts: give the pool another `name`", pool.name));
    }
    const auto same = [&](const SlurmPool& other) { return other.name == pool.name; };
    if (std::any_of(config.pools.begin(), config.pools.end(), same)) {
      problems.add(node->place, "pools.slurm.name", fmt::format("two pools are called {}: give one another `name`", pool.name));
    }
    config.pools.push_back(std::move(pool));
  }
}

// No two for the same user, nor one behind one that is for all.
template <typename OfUser>
void add_for_user(std::vector<OfUser>& all, OfUser one, const Place& place, const char* key, Problems& problems) {
  const auto is_before = [&](const OfUser& other) { return other.user.empty() || other.user == one.user; };
  if (std::any_of(all.begin(), all.end(), is_before)) {
    problems.add(place, key, one.user.empty() ? "one before is for all users, too" : fmt::format("one before is for {}, too, and counts", one.user));
  }
  all.push_back(std::move(one));
}

void read_fair_share(const YamlNode& node, Config& config, Problems& problems) {
  if (as_boolean(node) == true) config.fair_share.push_back({});
  for (const YamlNode& item : node.items) {
    UserWeight weight;
    if (const YamlNode* user = value_of(&item, "user")) weight.user = user->text;
    if (const YamlNode* number = value_of(&item, "weight")) weight.weight = as_number(*number).value_or(1);
    if (problems.empty()) add_for_user(config.fair_share, std::move(weight), item.place, "fair-share", problems);
  }
}

void read_quotas(const YamlNode& quotas, Config& config, Problems& problems) {
  for (const YamlNode& item : quotas.items) {
    UserQuota quota;
    if (const YamlNode* user = value_of(&item, "user")) quota.user = user->text;
    if (const YamlNode* cpus = value_of(&item, "cpus")) quota.cpus = as_number(*cpus);
    quota.memory_bytes = read_size(&item, "quotas", "mem", problems);
    if (const YamlNode* gpus = value_of(&item, "gpus")) {
      if (const auto count = as_integer(*gpus)) quota.gpus = static_cast<int>(*count);
    }
    if (problems.empty()) add_for_user(config.quotas, std::move(quota), item.place, "quotas", problems);
  }
}

Config read_tree(const YamlNode& root, Problems& problems) {
  Config config;
  const YamlNode* host = value_of(&root, "host");
  if (const YamlNode* address = value_of(host, "address")) config.address = address->text;
  if (const YamlNode* listen = value_of(&root, "listen")) config.listen = listen->text;
  if (const YamlNode* at = value_of(&root, "open-metrics")) config.open_metrics = at->text;
  if (const YamlNode* pools = value_of(&root, "pools")) {
    read_pools(*pools, config, problems);
    if (config.listen.empty()) {
      problems.add(pools->place, "pools", "their hosts join over the network: `listen: ADDRESS:PORT` says where");
    }
  }
  if (const YamlNode* quotas = value_of(&root, "quotas")) read_quotas(*quotas, config, problems);
  if (const YamlNode* share = value_of(&root, "fair-share")) read_fair_share(*share, config, problems);
  if (const YamlNode* cpus = value_of(host, "cpus")) config.cpus = as_number(*cpus);
  config.memory_bytes = read_size(host, "host", "mem", problems);
  config.cache_bytes = read_size(host, "host", "cache", problems);
  if (const YamlNode* ports = value_of(host, "ports")) {
    config.ports = parse_port_range(ports->text).value_or(config.ports);
  }
  if (const YamlNode* labels = value_of(host, "labels")) {
    for (const YamlNode& label : labels->items) config.labels.push_back(label.text);
  }
  config.spool_limit_bytes = read_size(&root, "", "spool-limit", problems).value_or(config.spool_limit_bytes);
  if (config.spool_limit_bytes < kSpoolLimitMinBytes) {
    problems.add(
        root.find("spool-limit")->place, "spool-limit",
        fmt::format("got {}, expected at least {}", format_memory(config.spool_limit_bytes),
                    format_memory(kSpoolLimitMinBytes)));
  }
  if (const YamlNode* timeout = value_of(&root, "runner-timeout")) {
    config.runner_timeout_ms =
        parse_duration_ms(timeout->text).value_or(config.runner_timeout_ms);
    if (config.runner_timeout_ms < kRunnerTimeoutMinMs ||
        config.runner_timeout_ms > kRunnerTimeoutMaxMs) {
      problems.add(timeout->place, "runner-timeout",
                   fmt::format("got {}, expected 1s to 366d", timeout->text));
    }
  }
  const YamlNode* keep = value_of(&root, "keep");
  if (const YamlNode* ended = value_of(keep, "ended")) {
    config.keep_ended_ms = parse_duration_ms(ended->text);
  }
  config.keep_log_bytes = read_size(keep, "keep", "logs", problems);
  const YamlNode* sync = value_of(&root, "sync");
  config.sync_warn_bytes = read_size(sync, "sync", "warn", problems).value_or(config.sync_warn_bytes);
  config.sync_ask_bytes = read_size(sync, "sync", "ask", problems).value_or(config.sync_ask_bytes);
  config.sync_file_bytes_max = read_size(sync, "sync", "max-file", problems).value_or(config.sync_file_bytes_max);
  return config;
}

// The file's text; empty when there is none.
Result<std::string> read_text(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) return std::string();
  if (!file) return errno_error("can't read " + path, errno);
  std::string text(kYamlMaxBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("can't read " + path, errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace

Result<Config> parse_config(std::string_view yaml, const std::string& file_name) {
  Problems problems(file_name);
  std::optional<YamlNode> root = parse_yaml(yaml, 0, problems);
  if (!root) return problems.to_error("");
  // A file of comments alone.
  if (root->kind == YamlNode::Kind::Null && problems.empty()) return Config{};
  static const Shape shape = make_config_shape();
  check_tree(*root, shape, problems);
  const Config config = read_tree(*root, problems);
  if (!problems.empty()) return problems.to_error("");
  return config;
}

Result<Config> read_config(const Home& home) {
  const std::string path = home.config().string();
  TRY(const std::string text, read_text(path));
  return parse_config(text, path);
}

std::optional<PortRange> parse_port_range(std::string_view text) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  uint32_t ends[2] = {};
  const std::string_view parts[2] = {text.substr(0, dash), text.substr(dash + 1)};
  for (int i = 0; i < 2; ++i) {
    const char* const end = parts[i].data() + parts[i].size();
    const auto [stop, error] = std::from_chars(parts[i].data(), end, ends[i]);
    if (error != std::errc() || stop != end) return std::nullopt;
  }
  if (ends[0] == 0 || ends[0] > ends[1] || ends[1] > 65'535) return std::nullopt;
  return PortRange{ends[0], ends[1]};
}

bool is_host_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == '_';
  };
  return !text.empty() && text.size() <= 253 && text.front() != '-' && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), allowed);
}

bool is_ip_address(std::string_view text) {
  const std::string address(text);
  in_addr v4{};
  in6_addr v6{};
  return inet_pton(AF_INET, address.c_str(), &v4) == 1 || inet_pton(AF_INET6, address.c_str(), &v6) == 1;
}

bool is_host_address(std::string_view text) {
  const std::string address(text);
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    const uint32_t network = ntohl(v4.s_addr) >> 24;
    return network != 0 && network != 127;
  }
  in6_addr v6{};
  if (inet_pton(AF_INET6, address.c_str(), &v6) == 1) {
    return !IN6_IS_ADDR_LOOPBACK(&v6) && !IN6_IS_ADDR_UNSPECIFIED(&v6);
  }
  // A number at the end is an IP address with a mistake in it: 10.0.0.500.
  const std::string_view last = text.substr(text.rfind('.') + 1);
  return is_host_name(text) && text != "localhost" &&
         last.find_first_not_of("0123456789") != std::string_view::npos;
}

}  // namespace dtrain
