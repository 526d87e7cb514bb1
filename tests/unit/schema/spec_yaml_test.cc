// parse_spec and to_yaml are inverse, for any Spec that parse_spec can return.
#include <doctest/doctest.h>

#include <random>

#include "schema/engine_read.h"
#include "schema/spec.h"
#include "schema/tensorboard.h"

using namespace dtrain;

namespace {

class RandomSpec {
 public:
  explicit RandomSpec(uint32_t seed) : random_(seed) {}

  Spec make() {
    Spec spec;
    spec.project = pick<std::string>({"a", "ai-toaster", "7", "x_1"});
    if (flip()) spec.name = text();
    if (flip()) spec.note = text();
    spec.framework = pick({Framework::Tensorflow, Framework::Command, Framework::Pytorch, Framework::Jax, Framework::Mpi,
                           Framework::Engine});
    if (spec.framework == Framework::Tensorflow) {
      spec.tensorflow.version = pick<std::string>({"", "2.15.0", "1.5", "2.15.0rc1"});
      spec.tensorflow.tensorboard = flip();
      spec.tensorflow.chief_task = flip() ? "chief" : "master";
    }
    if (spec.framework == Framework::Pytorch) spec.pytorch.nproc_per_node = number(PytorchOptions::kOnePerGpu, 8);
    if (spec.framework == Framework::Mpi) spec.mpi.slots = number(MpiOptions::kOnePerGpu, 8);
    spec.restart = {number(0, 3), number(0, 100'000'000)};
    if (spec.framework == Framework::Engine) make_engine(spec);
    make_roles(spec);
    make_failure_policy(spec);
    if (spec.tensorflow.tensorboard) spec.roles.push_back(tensorboard_role());
    for (const char* name : {"alpha", "b-c", "seed"}) {
      if (flip()) spec.parameters.push_back({name, values()});
    }
    make_metrics(spec);
    spec.concurrency = number(0, 5);
    spec.priority = number(0, 100);
    spec.preemptible = flip();
    spec.suspend = flip();
    if (flip()) spec.after = {{4, 0}, {5, 2}};
    if (flip()) spec.after_end = {{6, 10}};
    spec.completion = flip() ? Completion::AllWorkers : Completion::Decider;
    if (spec.framework == Framework::Mpi) spec.completion = Completion::Decider;
    spec.finish_grace_ms = number(0, 20'000);
    spec.stop_grace_ms = number(0, 20'000);
    spec.max_duration_ms = flip() ? number(0, 2'000'000'000) : 0;
    spec.max_away_ms = flip() ? number(60'000, 2'000'000'000) : 0;
    spec.hard_cpus = flip();
    spec.hard_memory = flip();
    const bool no_python = spec.framework == Framework::Engine && !spec.tensorflow.tensorboard;
    if (flip() && !no_python) spec.install = lines();
    if (flip()) spec.data = {{"mnist", "/mnt/a b"}, {"x-y", "/" + text()}};
    if (flip()) spec.env = {{"A", ""}, {"B_2", text()}, {"c", "3"}};
    if (flip()) spec.env_from_shell = {"Z_KEY", "TOKEN"};
    if (flip()) spec.outputs = {"ckpt", "a/ü b"};
    if (flip()) spec.python = pick<std::string>({"python3.11", "/usr/bin/python3", "conda:tf"});
    const bool takes_image = spec.framework != Framework::Engine &&
                             spec.python == "auto" && spec.tensorflow.version.empty();
    if (flip() && takes_image) spec.image = spec.install.empty() ? "/images/a b" : "nvidia/cuda:8.0";
    for (RoleSpec& role : spec.roles) {
      const bool has_own = !spec.image.empty() && role.role != Role::Train && role.role != Role::Tensorboard && flip();
      if (has_own) role.image = spec.install.empty() ? "/images/" + std::string(to_string(role.role)) : "python:3.12";
    }
    if (!spec.image.empty() && flip()) spec.mounts = {{"/a b", "/a b"}, {"/x", "/" + std::string("ü"), true}};
    return spec;
  }

 private:
  int number(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  bool flip() { return number(0, 1) == 1; }
  template <typename T>
  T pick(std::initializer_list<T> of) {
    return *(of.begin() + number(0, static_cast<int>(of.size()) - 1));
  }

  // Made of everything that means something to YAML.
  std::string text() {
    std::string out;
    for (int i = number(1, 12); i > 0; --i) {
      out += pick<std::string>({"a",    "Z",    "0",    " ",   "-",   ":",        ": ",
                                "#",    " #",   "'",    "\"",  "\\",  "\n",       "\t",
                                "{",    "}",    "[",    "]",   ",",   "&",        "*",
                                "!",    "|",    ">",    "%",   "@",   "`",        "~",
                                "null", "true", "1.5",  "ü",   "😀",   "\xC2\x85", "\xE2\x80\xA8",
                                "\r",   "\x01", "\x7F", "...", "---", "? ",       "<<",
                                "="});
    }
    return out;
  }
  // With something to see.
  std::string words() {
    std::string out;
    do out = text();
    while (out.find_first_not_of(" \t\r\n") == std::string::npos);
    return out;
  }
  std::vector<std::string> lines() {
    std::vector<std::string> out;
    for (int i = number(1, 3); i > 0; --i) out.push_back(words());
    return out;
  }
  std::vector<std::string> texts() {
    std::vector<std::string> out;
    for (int i = number(1, 3); i > 0; --i) out.push_back(text());
    return out;
  }
  std::vector<std::string> values() {
    if (flip()) return texts();
    std::vector<std::string> out;
    const int first = number(-5, 5);
    const int step = number(1, 3);
    for (int i = 0, n = number(1, 6); i < n; ++i)
      out.push_back(fmt::format("{}", first + i * step));
    return out;
  }
  Resources resources() {
    return {pick({0.01, 0.1, 1.0, 2.5, 4096.0}),
            pick({uint64_t{1}, uint64_t{500'000'000}, uint64_t{3} << 29, uint64_t{64} << 40}),
            number(0, 8)};
  }
  // What read_engine() makes of it: numbers bare, other texts as yaml_scalar() writes them.
  void make_engine(Spec& spec) {
    const bool servers = flip();
    const bool sync = flip();
    spec.tensorflow.tensorboard = flip();
    spec.engine.in_step = !servers || sync;
    spec.engine.section = fmt::format(
        "model:\n  mlp:\n    hidden:\n      - 7\n      - 300\ndata:\n  train: {}\nstrategy:{}\nbatch: {}\n",
        yaml_scalar(text()),
        servers ? fmt::format("\n  parameter-server:\n    mode: {}", sync ? "sync" : "ssp")
                : " multi-worker-mirrored",
        number(10, 1000));
    servers_ = servers;
  }
  RoleSpec role(Role which, int count) {
    RoleSpec one;
    one.role = which;
    one.count = count;
    one.resources = flip() ? shared_.resources : resources();
    one.run = flip() ? shared_.run : lines();
    one.on_failure = pick({OnFailure::Fail, OnFailure::Restart, OnFailure::RestartOnSignal, OnFailure::Ignore});
    return one;
  }
  // What restarts does so up to three times where no limit is given, which has to be said then.
  void make_failure_policy(Spec& spec) {
    const bool may_restart = spec.restart.limit > 0 || (spec.framework != Framework::Engine && !spec.elastic);
    for (int i = number(0, 3); i > 0; --i) {
      FailureRule rule;
      rule.action = may_restart ? pick({FailureAction::Fail, FailureAction::Restart, FailureAction::ExcludeHost}) : FailureAction::Fail;
      rule.printed = pick<std::string>({"a: (b)(.*) # c", "\\d+, [x]{2}", "null", "{{", "'\"", "\xC3\xBC~"});
      if (flip()) rule.exit_codes = {1, 75, 255};
      rule.at_once = rule.exit_codes.empty() && flip();
      if (flip() && !rule.at_once && !rule.exit_codes.empty()) rule.printed.clear();
      spec.failure_policy.push_back(rule);
    }
    if (flip()) spec.failure_policy.push_back({"", false, {}, number(1'000, 100'000'000), may_restart && flip() ? FailureAction::Restart : FailureAction::Fail});
    if (flip()) spec.failure_policy.push_back({});
  }
  // Names that mean something else to YAML, and patterns that do.
  void make_metrics(Spec& spec) {
    const bool names_only = flip();
    for (const char* name : {"loss", "samples/s", "1.5", "null", "val/top-1", "true"}) {
      if (!flip()) continue;
      const std::string pattern =
          names_only ? ""
                     : pick<std::string>({"", "null", "a: (.*) # b", "\\d+\\.(\\d*)", "\t'\"", "7",
                                          "\xC3\xBC", "~", "(?:a|b)=(\\S+)"});
      spec.metrics.push_back({name, pattern});
    }
  }
  void make_roles(Spec& spec) {
    shared_.resources = resources();
    shared_.run = lines();
    if (spec.framework == Framework::Engine) return make_engine_roles(spec);
    if (spec.framework == Framework::Mpi && number(0, 3) > 0) return make_mpi_roles(spec);
    if (spec.framework != Framework::Tensorflow || number(0, 3) == 0) {
      spec.roles = {role(Role::Train, 1)};
      spec.roles[0].on_failure = spec.restart.usual();
      return;
    }
    spec.roles = {role(flip() ? Role::Chief : Role::Master, 1)};
    if (spec.roles[0].on_failure == OnFailure::Ignore) spec.roles[0].on_failure = OnFailure::Fail;
    if (flip()) spec.roles.push_back(role(Role::Worker, number(1, 5)));
    if (flip()) spec.roles.push_back(role(Role::Ps, number(1, 5)));
    if (flip()) spec.roles.push_back(role(Role::Evaluator, number(1, 2)));
    for (const RoleSpec& one : spec.roles) {   // restarting needs a budget
      if (restarts(one.on_failure) && spec.restart.limit == 0) spec.restart.limit = 3;
    }
  }

  void make_mpi_roles(Spec& spec) {
    spec.roles = {role(Role::Launcher, 1), role(Role::Worker, number(1, 5))};
    if (spec.roles[0].on_failure == OnFailure::Ignore) spec.roles[0].on_failure = OnFailure::Fail;
    spec.roles[1].run = {kMpiWorkerCommand};
    for (const RoleSpec& one : spec.roles) {
      if (restarts(one.on_failure) && spec.restart.limit == 0) spec.restart.limit = 3;
    }
  }

  void make_engine_roles(Spec& spec) {
    shared_.run = {kEngineCommand};
    const auto add = [&](Role which, int count) {
      RoleSpec one = role(which, count);
      one.run = shared_.run;
      // Workers all have GPUs or none has; and not every strategy takes them.
      one.resources.gpus = servers_ ? 0 : shared_.resources.gpus;
      spec.roles.push_back(std::move(one));
    };
    if (!servers_ && number(0, 3) == 0) {
      add(Role::Train, 1);
      spec.roles[0].on_failure = spec.restart.usual();
      return;
    }
    add(Role::Master, 1);
    if (spec.roles[0].on_failure == OnFailure::Ignore) spec.roles[0].on_failure = OnFailure::Fail;
    if (flip()) add(Role::Worker, number(1, 5));
    if (servers_) add(Role::Ps, number(1, 5));
    for (const RoleSpec& one : spec.roles) {
      if (restarts(one.on_failure) && spec.restart.limit == 0) spec.restart.limit = 3;
    }
  }

  std::mt19937 random_;
  RoleSpec shared_;
  bool servers_ = false;  // the engine's strategy has some
};

}  // namespace

TEST_CASE("what is written is read back the same") {
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    const Spec spec = RandomSpec(seed).make();
    const std::string yaml = to_yaml(spec);
    const auto again = parse_spec(yaml, {});
    CAPTURE(seed);
    CAPTURE(yaml);
    if (!again.ok()) FAIL(again.error().message);
    REQUIRE(*again == spec);
    REQUIRE(to_yaml(*again) == yaml);
  }
}

TEST_CASE("names that mean something else in YAML are read back as names") {
  const std::string yaml =
      "project: p\ntrain:\n  parameters: {\"null\": [1, 3, 7], \"yes\": 2, \"true\": [1, 2, 3]}\n  data: {\"no\": /tmp}\n"
      "  env: {\"Null\": \"1\"}\n  run: x\n";
  const auto spec = parse_spec(yaml, {});
  if (!spec.ok()) FAIL(spec.error().message);
  const auto again = parse_spec(to_yaml(*spec), {});
  if (!again.ok()) FAIL(again.error().message);
  CHECK(*again == *spec);
}

TEST_CASE("a finish-grace of MPI's is written where it is the others' usual one") {
  const auto spec = parse_spec("project: p\ntrain:\n  framework: mpi\n  finish-grace: 10s\n  run: x\n", {});
  REQUIRE(spec.ok());
  CHECK(spec->finish_grace_ms == 10'000);
  const auto again = parse_spec(to_yaml(*spec), {});
  REQUIRE(again.ok());
  CHECK(*again == *spec);
}

TEST_CASE("bytes that are no text never make a file that can't be read") {
  Spec spec = RandomSpec(1).make();
  spec.note = "caf\xe9";
  const auto again = parse_spec(to_yaml(spec), {});
  REQUIRE(again.ok());
  CHECK(again->note == "caf\xEF\xBF\xBD");
}

TEST_CASE("a long range stays short") {
  Spec spec = RandomSpec(1).make();
  spec.parameters = {{"x", {}}};
  for (int i = 0; i < 100'000; ++i) spec.parameters[0].values.push_back(fmt::format("{}", i));
  const std::string yaml = to_yaml(spec);
  CHECK(yaml.find("x: {range: {min: 0, max: 99999, step: 1}}") != std::string::npos);
  CHECK(*parse_spec(yaml, {}) == spec);
}
