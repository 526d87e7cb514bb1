// What a user asks for: the meaning of one dtrain.yml.
//
// A Spec has exactly one serial form, its YAML (to_yaml): the CLI sends it, the daemon stores it and
// parses it again with the same strict parser, the runner gets it with the launch. parse_spec and
// to_yaml are inverse: parse_spec(to_yaml(s)) == s.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/ids.h"
#include "schema/mounts.h"
#include "schema/problems.h"
#include "schema/result.h"

namespace dtrain {

enum class Framework { Command, Tensorflow, Pytorch, Jax, Mpi, Engine };
// RestartOnSignal: as Restart where a signal ended it, also one of a child, which a shell tells by a code of 128 or
// more; where the program itself gave up, as Fail.
enum class OnFailure { Fail, Restart, Ignore, RestartOnSignal };
constexpr bool restarts(OnFailure rule) {
  return rule == OnFailure::Restart || rule == OnFailure::RestartOnSignal;
}
enum class Completion { Decider, AllWorkers };

// What one replica is promised. cpus is a weight, memory a guarantee; `hard` makes them caps.
struct Resources {
  double cpus = 1;                           // > 0, fractions allowed
  uint64_t memory_bytes = uint64_t{1} << 30;  // > 0
  int gpus = 0;                              // whole devices
  bool operator==(const Resources&) const = default;
};

// All replicas of one role share a command and a resource request.
struct RoleSpec {
  Role role = Role::Train;
  int count = 1;                  // >= 1 in a normalised Spec
  Resources resources;
  std::vector<std::string> run;   // shell lines, run in order, the first failing one ends it
  OnFailure on_failure = OnFailure::Fail;
  int per_host = 0;               // of them on one host, at the most; 0: as many as have room
  std::string image = {};         // that they run in, where it is another one than the Spec's; empty: that one
  bool operator==(const RoleSpec&) const = default;
};
// The master is one of the workers, and per_host counts it with them.
constexpr Role counted_as(Role role) { return role == Role::Master ? Role::Worker : role; }

// One hyperparameter with the values it takes, as the text that replaces {{ name }} and goes into the
// environment. One value: a plain parameter. Several: a dimension of the grid. With a path it is a
// list that stood where the YAML wants one value, and goes there instead (see variation.h).
struct Parameter {
  std::string name;
  std::vector<std::string> values;  // not empty
  std::string path = {};            // "train.tensorflow.distributed.worker"
  bool operator==(const Parameter&) const = default;
};

// How the lists of parameters make the members of a set: each value with each, or the first values of all together,
// then the second ones.
enum class Combine { Product, Zip };

// Members that are not among the best end early: asynchronous successive halving (Li et al. 2020), which ends them
// where that would let others go on.
struct StopEarly {
  int after = 1;    // so many values of the metric, then `factor` times as many, and so on
  int factor = 3;   // of those that came that far the best 1/factor go on
  std::string by;   // of `metrics`: what is counted instead of values
  bool operator==(const StopEarly&) const = default;
  // Where members are looked at: after, after * factor, ... of number 0, 1, ...
  static constexpr uint32_t kRungsMost = 64;
  uint64_t rung(uint32_t number) const;
};

// Of the members of a set: which of them is the best, and what ends them.
struct Search {
  static constexpr int kNoLimit = -1;
  std::string metric;             // of `metrics`; empty: none is the best
  bool highest_is_best = false;
  std::optional<StopEarly> stop_early;   // only with a metric
  int max_failed = kNoLimit;      // members; with more of them the others end
  bool operator==(const Search&) const = default;
};

// What a failure means that fits: of the rules of a Spec the first one decides, before what its role says.
// ExcludeHost: as Restart, on other hosts than that where it happened, while there are any.
enum class FailureAction { Fail, Restart, ExcludeHost };
struct FailureRule {
  std::string printed;           // as line_pattern.h takes it: in a line that one of the gang wrote; empty: whatever they did
  bool at_once = false;          // who prints that is ended
  std::vector<int> exit_codes;   // of the replica that failed, 128+signal where one ended it, 1..255; empty: any
  int64_t silent_for_ms = 0;     // nobody wrote anything for so long, and is ended for it; then all else is empty. 0: no matter
  FailureAction action = FailureAction::Fail;
  bool operator==(const FailureRule&) const = default;
};
constexpr bool restarts(FailureAction action) { return action != FailureAction::Fail; }
// Of a line that fits so many bytes are looked at.
inline constexpr size_t kPrintedLineMaxBytes = 4096;

struct RestartPolicy {
  static constexpr int kUsualLimit = 3;   // where a role or a rule asks for restarts, and nothing is said of how many
  int limit = 0;                 // launches after the first, replica and gang together
  int64_t backoff_ms = 5'000;
  bool operator==(const RestartPolicy&) const = default;
  // Who gives a budget wants it used.
  OnFailure usual() const { return limit > 0 ? OnFailure::Restart : OnFailure::Fail; }
};

// A number that the replicas say about themselves. Without a pattern it is what follows `name=` in
// their output; with one, its first group (or all of it where there is none) in each line.
struct Metric {
  std::string name;
  std::string pattern;  // as line_pattern.h takes it, with one group at the most
  bool operator==(const Metric&) const = default;
};

// A gang that makes do with fewer workers than it asks for, on what is there, and takes more when there is room.
struct Elastic {
  static constexpr int64_t kNever = -1;
  static constexpr int kRestarts = 3;   // where nothing is said of them: hosts will be lost
  int least_of_role = 0;            // Role::Worker; less than its count
  int64_t grow_after_ms = 600'000;  // that an attempt has run before it is begun again with more of them
  bool operator==(const Elastic&) const = default;
};

// What framework: engine adds. The section stays text until a member's {{ names }} have values:
// engine_spec_of() makes an EngineSpec of it.
struct EngineOptions {
  std::string section;   // `engine:` as YAML, but for its roles and TensorBoard
  bool in_step = true;   // workers wait for each other, so that losing one stops all of them
  bool operator==(const EngineOptions&) const = default;
};

struct TensorflowOptions {
  std::string version;       // empty: the host's own python
  bool tensorboard = false;
  std::string chief_task = "chief";  // what TF_CONFIG calls the chief: chief, or as TensorFlow 1 did, master
  bool operator==(const TensorflowOptions&) const = default;
};

// Of framework: pytorch.
struct PytorchOptions {
  static constexpr int kOnePerGpu = 0;
  int nproc_per_node = 1;  // processes that torchrun starts in each replica
  bool operator==(const PytorchOptions&) const = default;
};

// What an image of containers runs by itself, and what it has before arguments: programs that each replica finds in it.
inline constexpr const char* kImageCommand = "/.dtrain/command";
inline constexpr const char* kImageEntrypoint = "/.dtrain/entrypoint";

// What MPI's workers run: they wait for what the launcher starts.
inline constexpr const char* kMpiWorkerCommand = "dtrain mpi-worker";

// Of framework: mpi.
struct MpiOptions {
  static constexpr int kOnePerGpu = 0;
  int slots = 1;  // ranks in each worker
  bool operator==(const MpiOptions&) const = default;
};

// Roles are normalised: `worker: 3` without a chief is {Master x1, Worker x2}; an experiment that is
// not distributed is {Train x1}; with MPI it is {Launcher x1, Worker x3}. Order: decider first, then Worker, Ps, Evaluator, Tensorboard.
struct Spec {
  std::string project;
  std::string name;          // --name; may be empty
  std::string note;          // -m; may be empty
  Framework framework = Framework::Command;
  std::vector<RoleSpec> roles;
  std::vector<Parameter> parameters;  // sorted by name; the last varies fastest
  Combine combine = Combine::Product;
  std::vector<Metric> metrics;        // as given, each name once
  Search search;
  int concurrency = 0;                // members at once; 0: as many as fit
  int priority = 50;                  // 0..100, higher first
  bool preemptible = false;           // gives its place to what waits and has a higher priority, and goes on later
  bool suspend = false;               // it begins suspended
  std::vector<ExperimentId> after;      // which have to be FINISHED before it is placed; where one ends otherwise, it fails
  std::vector<ExperimentId> after_end;  // which have to be over, however they end
  RestartPolicy restart;
  std::vector<FailureRule> failure_policy;
  std::optional<Elastic> elastic;
  Completion completion = Completion::Decider;
  int64_t finish_grace_ms = 10'000;   // what other workers get after the decider succeeded
  int64_t stop_grace_ms = 10'000;     // between TERM and KILL
  int64_t max_duration_ms = 0;        // 0: none
  int64_t max_away_ms = 0;            // that a host may be out of reach; 0: as `restart` has it
  bool hard_cpus = false;             // limits: {cpus: hard}
  bool hard_memory = false;
  TensorflowOptions tensorflow;  // of framework: engine only `tensorboard`
  PytorchOptions pytorch;
  MpiOptions mpi;
  EngineOptions engine;
  std::vector<std::string> install;            // build steps
  std::map<std::string, std::string> data;     // name -> absolute path
  std::map<std::string, std::string> env;      // NAME -> value
  std::vector<std::string> env_from_shell;     // NAMEs whose values travel apart, as secrets
  std::vector<std::string> outputs;            // work tree paths or patterns, collected into OUTPUT_DIR
  std::string python = "auto";
  // Only with variations, whose first combination the fields above are of: the YAML with its lists.
  std::string source = {};
  // What the replicas run in whose role names no other: an image of containers by its name, or the path of a directory
  // that holds the files of one. Empty: the host itself, for all of them.
  std::string image;
  std::vector<HostMount> mounts;               // of the host, seen in the image
  std::vector<std::string> hosts;              // that it may be placed on, as kHostTerm; empty: any
  bool operator==(const Spec&) const = default;

  const RoleSpec* role(Role role) const;  // null when the Spec has none
  const RoleSpec& decider() const;        // chief, launcher, master or train: whose end is the end
  bool is_distributed() const;            // several train together
  int replica_count() const;
  uint64_t member_count() const;          // as the parameters are combined; >= 1
  bool is_set() const { return member_count() > 1; }
  bool has_build() const;                 // an environment of its own is made before it starts, or an image fetched
  const std::string& image_of(const RoleSpec& role) const;   // empty: they run on the host itself
  std::vector<std::string> images() const;   // that any role runs in, the decider's first, each once
  // As `worker:` counts them: with the master, who is one of them.
  int most_workers() const;
  int least_workers() const;
  // What the failure of one of a role means where the role does not say.
  OnFailure usual_on_failure(Role role) const;
  // Launches after the first, of whoever has failed.
  int restarts_most() const;
  const FailureRule* silence_rule() const;   // null: none
};

// Where YAML came from, for messages: "dtrain.yml:7:12: ...".
struct ParseOptions {
  std::string file_name = "dtrain.yml";
  bool has_lines = true;  // false: a text that nobody sees; its problems are named without lines
  // `--set a.b=c` and `-p name=value` in the order given; they override the file. The value of a
  // `set` is read as YAML (null takes a key out of the file), that of a parameter as it stands unless it is a
  // [list] or a {map}, and nothing behind it.
  std::vector<std::pair<std::string, std::string>> set = {};
  std::vector<std::pair<std::string, std::string>> parameters = {};
  // Instead of what the file says of images: that which all roles run in; empty: they run on the hosts themselves, and
  // there are no mounts.
  std::optional<std::string> image = {};
  std::vector<Mistake>* mistakes = nullptr;  // what was refused, as facts; may be null
  std::vector<std::string>* notes = nullptr;  // what of a manifest of Kubernetes means nothing here, or of RiseML something else; may be null
  // Whether who submits has a variable: of a manifest's optional secrets only those are asked for. Empty: there is none.
  std::function<bool(const std::string& name)> is_in_shell = {};
  std::map<std::string, std::string>* secrets = nullptr;  // values of those of env_from_shell that a manifest's file itself has; may be null
};

// Every problem of the text, in file order, one line each:
//   dtrain.yml:7:12: train.resources.cpu: unknown key; did you mean 'cpus'?
// Error.message holds those lines joined by '\n', code InvalidArgument; Error.hint is the line to type
// when all that is missing is values of parameters.
//
// A text with `apiVersion` is a manifest of Kubeflow (kubeflow.h).
//
// A file named riseml.yml, or riseml-hyper.yml or the like, keeps RiseML's defaults: ps 1, concurrency 1, the master takes
// train.resources even where workers have their own, and a `tensorflow` section alone turns
// `framework: tensorflow` on.
Result<Spec> parse_spec(std::string_view yaml, const ParseOptions& options);
std::string to_yaml(const Spec& spec);
// A text as one value of a YAML file, in quotes where it needs them.
std::string yaml_scalar(std::string_view text);
std::string yaml_quoted(std::string_view text);  // in quotes whatever it is

// The JSON Schema (draft 2020-12) of dtrain.yml, as text. Made from the same table the parser checks
// keys against; a test holds the two together.
std::string json_schema();

// The starter file `dtrain init` writes; it passes parse_spec and runs.
std::string starter_yaml(std::string_view project);

// The Framework's word in YAML, tables and messages.
std::string_view to_string(Framework framework);

}  // namespace dtrain
