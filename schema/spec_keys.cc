#include "schema/spec_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "schema/engine_keys.h"
#include "schema/line_pattern.h"
#include "schema/shapes.h"

namespace dtrain {

namespace {

using namespace shapes;

// Of one experiment.
constexpr size_t kMetricsMax = 64, kFailureRulesMax = 32;

Shape lines(std::string_view expected) {
  const Shape line = text(kCommandText);
  return either(expected, {line, list(expected, line)});
}
Shape run_lines() {
  return lines("a command, or a list of commands");
}
Shape duration() {
  return either(kDurationText.expected, {number(0, 31'622'400), text(kDurationText)});
}

Shape resources() {
  return map("a map of cpus, mem and gpus",
             {{"cpus", number(0.01, 4096), "CPUs, fractions allowed; a weight, not a cap. Also OMP_NUM_THREADS. Left out: 1."},
              {"mem", either(kMemoryText.expected, {number(0.01, 67'108'864), text(kMemoryText)}),
               "Memory that is guaranteed; a number counts MiB. Left out: 1GiB."},
              {"gpus", integer(0, 1024), "Whole GPUs; a replica that asks for none sees none. Left out: 0."}});
}

// Who is always alone has one for what is wrong with saying it.
Shape role(Shape count, std::string_view expected, std::string_view on_failure, Shape run, Shape image) {
  Shape per_host = count.maximum > 1 ? integer(1, 10'000) : refused("there is only one; write it for those of which there are several");
  return either(expected,
                {count,
                 map(expected, {{"count", count, "How many of them."},
                                {"per-host", std::move(per_host), "So many of them on one host at the most. Left out: as many as fit."},
                                {"resources", resources(), "Replaces train.resources as a whole."},
                                {"run", std::move(run), "Replaces train.run."},
                                {"image", std::move(image), "Replaces train.image."},
                                {"on-failure", word({"fail", "restart", "restart-on-signal", "ignore"}), on_failure}})});
}
Shape role(Shape count, std::string_view expected) {
  return role(std::move(count), expected,
              "What the exit of one of them means when its code is not 0; restart-on-signal: restart from 128 on, below it fail. "
              "Left out: fail, or restart where 'restart' "
              "has a limit.",
              run_lines(), text(kImage));
}

Shape elastic() {
  return map("a map of min, max and grow-after",
             {{"min", integer(0, 10'000), "With so many workers it begins at the least, and goes on when hosts are lost. Left out: 1."},
              {"max", integer(1, 10'000), "With so many at the most; said here or as worker."},
              {"grow-after", either(kDurationOrNever.expected, {number(0, 31'622'400), text(kDurationOrNever)}),
               "What it has run before it is begun again with more of them, once there is room. Left out: 10m."}});
}

// None at all is refused with its reason, where the roles are read.
Shape workers(std::string_view expected) {
  Shape count = integer(0, 10'000);
  count.expected = expected;
  return count;
}

Shape distributed() {
  return either(
      "a map of roles, or false",
      {only_false(), nothing(),
       map("a map of roles, or false",
           {{"worker", role(workers("a whole number from 1 to 10000, or 0 beside a chief"),
                            "a number of workers, or a map"),
             "Workers; without a chief the first one is the master. Left out: 1."},
            {"ps", role(integer(0, 10'000), "a number of parameter servers, or a map"),
             "Parameter servers; they end with the experiment. Left out: 0."},
            {"master", role(integer(0, 1), "1, or a map"), "What is different for worker 0; adds no process."},
            {"chief", role(integer(0, 1), "0 or 1, or a map"), "One more process, which decides. Left out: 0."},
            {"evaluator", role(integer(0, 100), "a number of evaluators, or a map"),
             "Processes beside the training cluster. Left out: 0."},
            {"elastic", elastic(), "With fewer workers it begins, and goes on, where there is no room for all."}})});
}

Shape engine_role(Shape count, std::string_view expected) {
  return role(std::move(count), expected,
              "What the exit of one of them means when its code is not 0. Left out: restart; of a worker with async or "
              "ssp, ignore.",
              refused("the engine is its own command; remove 'run'"),
              refused("the engine is a program of its own; leave it out"));
}

Shape engine_distributed() {
  return either(
      "a map of roles, or false",
      {only_false(), nothing(),
       map("a map of roles, or false",
           {{"worker", engine_role(workers("a whole number from 1 to 10000"), "a number of workers, or a map"),
             "Workers; the first one is the master. Left out: 1."},
            {"ps", engine_role(integer(0, 10'000), "a number of parameter servers, or a map"),
             "Parameter servers; they end with the experiment. Left out: 0."},
            {"master", engine_role(integer(0, 1), "1, or a map"), "What is different for worker 0; adds no process."},
            {"elastic", elastic(), "With fewer workers it begins, and goes on, where there is no room for all."},
            {"chief", refused("worker 0 decides for the engine; write what is different for it as "
                              "'master'")},
            {"evaluator", refused("the engine tests by itself; name its data as data: {test: "
                                  "PATH}")}})});
}

// Roles of a program that all processes run alike.
Shape equal_workers(std::string_view what, std::string_view no_servers, std::string_view no_evaluator) {
  return either("a map of roles, or false",
                {only_false(), nothing(),
                 map("a map of roles, or false",
                     {{"worker", role(workers("a whole number from 1 to 10000"), "a number of workers, or a map"), what},
                      {"master", role(integer(0, 1), "1, or a map"), "What is different for worker 0; adds no process."},
                      {"elastic", elastic(), "With fewer workers it begins, and goes on, where there is no room for all."},
                      {"ps", refused(no_servers)},
                      {"chief", refused("worker 0 decides; write what is different for it as 'master'")},
                      {"evaluator", refused(no_evaluator)}})});
}

Shape pytorch() {
  const std::string_view processes = "a whole number from 1 to 1024, or gpu";
  return either(
      "a map of nproc-per-node and distributed",
      {nothing(),
       map("a map of nproc-per-node and distributed",
           {{"nproc-per-node", either(processes, {integer(1, 1024), word({"gpu"})}),
             "Processes that torchrun starts in each replica; gpu: one for each of its GPUs. Left out: 1."},
            {"distributed",
             equal_workers("Workers; the first one is the master, and rank 0. Left out: 1.",
                           "PyTorch has no parameter servers of its own; use 'framework: tensorflow', whose TF_CONFIG names all processes",
                           "PyTorch has no evaluator of its own; start it as another experiment"),
             "The roles of a distributed experiment."},
            {"elastic", refused("write it below 'distributed', beside 'worker'")}})});
}

Shape jax() {
  return either("a map of distributed",
                {nothing(),
                 map("a map of distributed",
                     {{"distributed",
                       equal_workers("Workers; the first one is the master, and process 0. Left out: 1.",
                                     "JAX has no parameter servers; use 'framework: tensorflow', whose TF_CONFIG names all processes",
                                     "JAX has no evaluator; start it as another experiment"),
                       "The roles of a distributed experiment."},
                      {"elastic", refused("write it below 'distributed', beside 'worker'")}})});
}

Shape tensorflow() {
  return either(
      "a map of version, tensorboard and distributed",
      {nothing(),
       map("a map of version, tensorboard and distributed",
           {{"version", either(kTensorflowVersion.expected, {nothing(), text(kTensorflowVersion)}),
             "Makes an own environment with this version. Left out: the host's own python."},
            {"tensorboard", boolean(), "A TensorBoard beside the experiment. Left out: false."},
            {"chief-task", word({"chief", "master"}),
             "What TF_CONFIG calls the chief; master is TensorFlow 1's word. Left out: chief."},
            {"distributed", distributed(), "The roles of a distributed experiment."},
            {"horovod", refused("mpirun starts Horovod's processes: write 'framework: mpi', 'mpi: {slots: gpu, distributed: {worker: 2}}' and "
                                "'run: mpirun python train.py'")}})});
}

Shape mpi() {
  const std::string_view slots = "a whole number from 1 to 1024, or gpu";
  const auto role_of = [](Shape count, std::string_view expected, std::string_view run) {
    return role(std::move(count), expected,
                "What the exit of one of them means when its code is not 0. Left out: fail, or restart where 'restart' "
                "has a limit.",
                refused(run), text(kImage));
  };
  return either(
      "a map of slots and distributed",
      {nothing(),
       map("a map of slots and distributed",
           {{"slots", either(slots, {integer(1, 1024), word({"gpu"})}),
             "Ranks that mpirun starts in each worker; gpu: one for each of its GPUs. Left out: 1."},
            {"distributed",
             either("a map of roles, or false",
                    {only_false(), nothing(),
                     map("a map of roles, or false",
                         {{"worker",
                           role_of(workers("a whole number from 1 to 10000"), "a number of workers, or a map",
                                   "workers wait for what the launcher starts; its command is train.run"),
                           "Where the ranks run, with train.resources each. Left out: 1."},
                          {"launcher",
                           role_of(integer(0, 1), "1, or a map", "it is the launcher that runs train.run: write it there"),
                           "Runs train.run, which is to call mpirun; where it has no resources of its own, with 0.1 cpus and 512 MiB."},
                          {"elastic", elastic(), "With fewer workers it begins, and goes on, where there is no room for all."},
                          {"master", refused("who decides is the launcher")},
                          {"ps", refused("MPI has no parameter servers")}})}),
             "The roles of a distributed experiment."}})});
}

Shape parameter() {
  const std::string_view expected = "a value, a list of values, or a map of range, uniform or log-uniform";
  const auto drawn = [](const Shape& number) {
    return map("a map of min, max and step",
               {{"min", number, "The least value.", true},
                {"max", number, "The largest value.", true},
                {"step", number, "Only min, and so much more each time; without it any number."}});
  };
  const auto range = map("a map of min, max and step",
                         {{"min", any_number(), "The first value.", true},
                          {"max", any_number(), "The last value, itself included.", true},
                          {"step", any_number(), "More than 0. Left out: 1."}});
  return either(expected, {text(kAnyText), list("a list of values", text(kAnyText), 10'000),
                           map(expected, {{"range", range, "Numbers from min to max: a list of all of them."},
                                          {"uniform", drawn(any_number()), "Drawn from min to max; of search.samples."},
                                          {"log-uniform", drawn(any_number()),
                                           "Drawn from min to max, from each power of ten as often; of search.samples."}})});
}

Shape search() {
  return map("a map of samples, metric, stop-early and others",
             {{"samples", integer(1, 1000), "So many members, with values drawn at random; without it one for each combination."},
              {"seed", integer(0, 1e15), "Another one draws others. Left out: 0."},
              {"metric", text(kMetricName), "Of train.metrics: by which members are compared."},
              {"goal", word({"min", "max"}), "Which of its values is the best."},
              {"stop-early",
               map("a map of after, factor and by",
                   {{"after", integer(1, 1e9), "Looked at after so many values of the metric, and factor times as many, and so on.", true},
                    {"factor", integer(2, 1000), "The best 1/factor of those that came that far go on, the others end. Left out: 3."},
                    {"by", text(kMetricName), "Of train.metrics: what is counted instead of values, such as epoch."}}),
               "Members that are not among the best end early."},
              {"max-failed", integer(0, 1e6), "When more members have FAILED, all others are killed; without it they go on."}});
}

Shape metrics() {
  const std::string_view expected = "a list of names, or a map name: regular expression";
  Shape patterns = dict(expected, kMetricName, either("a regular expression", {nothing(), text(kAnyText)}));
  patterns.most = kMetricsMax;
  return either(expected, {list(expected, text(kMetricName), kMetricsMax), patterns});
}

Shape environment() {
  return either("a map NAME: value, or a list of NAME",
                {dict("a map NAME: value", kEnvName, text(kAnyText)),
                 list("a list of NAME or NAME=value", text(kEnvEntry))});
}

Shape image() {
  return either(
      "the name of an image",
      {nothing(), text(kImage),
       map("a map of name and install",
           {{"name", text(kImage), "The image's.", true},
            {"install", lines("a command, or a list of commands"), "As train.install."}})});
}

Shape hosts() {
  const std::string_view expected = "the name of a host, or a list of them";
  return either(expected, {nothing(), text(kHostTerm), list(expected, text(kHostTerm), 20)});
}

Shape experiments() {
  const std::string_view expected = "an experiment such as 4, or a list of them";
  return either(expected, {nothing(), text(kExperimentText), list(expected, text(kExperimentText), 100)});
}

Shape failure_policy() {
  const std::string_view codes = "a code from 1 to 255, or a list of them";
  return list("a list of rules such as {printed: \"uncorrectable ECC\", action: exclude-host}",
              map("a map of printed, exit-code, silent-for, at-once and action",
                  {{"printed", text(kSomeText), "A regular expression: in a line that one of the gang wrote."},
                   {"at-once", boolean(), "Who prints that is ended for it; otherwise it counts once somebody fails."},
                   {"exit-code", either(codes, {integer(1, 255), list(codes, integer(1, 255), 255)}),
                    "Of the replica that failed; 128 and the signal's number where one ended it."},
                   {"silent-for", duration(), "Nobody of the gang wrote anything for so long, and they are ended for it, up to some seconds later."},
                   {"action", word({"fail", "restart", "exclude-host"}),
                    "fail: no other start; restart: another start; exclude-host: on other hosts, while there are any.", true}}),
              kFailureRulesMax);
}

std::vector<Key> train_keys() {
  return {
      {"framework", word({"command", "tensorflow", "pytorch", "jax", "mpi", "engine"}),
       "What the processes are told about each other. Left out: command."},
      {"resources", resources(), "What each replica is promised."},
      {"tensorflow", tensorflow(), "Options of framework: tensorflow."},
      {"pytorch", pytorch(), "Options of framework: pytorch."},
      {"jax", jax(), "Options of framework: jax."},
      {"mpi", mpi(), "Options of framework: mpi."},
      {"engine", engine_section(engine_distributed()), "What framework: engine trains, and how.",
       false, true},
      {"run", run_lines(), "The command; of several, the first that fails ends it."},
      {"parameters", dict("a map of parameters", kParameterName, parameter()),
       "Values for {{ name }} in run; several values make a set of experiments."},
      {"metrics", metrics(),
       "Numbers to show and compare: what follows NAME= in the output, or a regular expression finds."},
      {"combine", word({"product", "zip"}),
       "How lists make members. product: each value with each of the others; zip: the first of all lists, then the second of all. Left out: product."},
      {"search", search(), "Members that are drawn, which of them is the best, and what ends them."},
      {"concurrency", integer(1, 1'000'000), "Members of a set that run at once. Left out: as many as fit."},
      {"priority", integer(0, 100), "Higher goes first. Left out: 50."},
      {"preemptible", boolean(), "Gives its place to what waits and has a higher priority, and goes on later. Left out: false."},
      {"suspend", boolean(), "Waits until dtrain resume. Left out: false."},
      {"after", experiments(), "Waits until these are FINISHED, and fails where one of them ends otherwise."},
      {"after-end", experiments(), "Waits until these are over, however they end."},
      {"install", lines("a command, or a list of commands"), "Steps that make its own environment, once for all with the same."},
      {"data", dict("a map name: /path", kDataName, text(kAbsolutePath)),
       "Data sets of the hosts, read only."},
      {"env", environment(), "Environment variables; a NAME alone is taken from your shell."},
      {"outputs", list("a list of paths", text(kInnerPath)),
       "Paths of the work tree, or patterns such as \"*.pt\", that are collected into OUTPUT_DIR."},
      {"python", text(kPythonChoice), "Which python the command finds. Left out: auto."},
      {"restart",
       map("a map of limit and backoff",
           {{"limit", integer(0, 1000),
             "Launches after the first; where a role or a rule of failure-policy restarts, it is 3. Left out: 0, for the engine 3."},
            {"backoff", duration(), "Wait before each of them. Left out: 5s, for the engine 1s."}}),
       "Launch again after a failure."},
      {"failure-policy", failure_policy(), "What failures mean; the first rule that fits one decides, before what its role or 'restart' says."},
      {"max-duration", duration(), "Ended after this much running time. Left out: never."},
      {"max-away", duration(), "A host that is out of reach for so long has ended what runs there, which then counts as lost; with 'restart' after 10m anyway. Left out: never."},
      {"finish-grace", duration(), "What other workers get after the master succeeded. Left out: 10s."},
      {"stop-grace", duration(), "Time between the signals TERM and KILL. Left out: 10s."},
      {"completion", word({"decider", "all-workers"}),
       "Whose success ends it: the master's (or chief's), or all workers'. Left out: decider."},
      {"limits",
       map("a map of cpus and mem", {{"cpus", word({"soft", "hard"}), "hard: a cap. Left out: soft."},
                                     {"mem", word({"soft", "hard"}), "hard: a cap. Left out: soft."}}),
       "Makes caps of what resources promise."},
      {"image", image(), "A container's image that the command runs in, by its name for podman or docker, or the /path of a directory with its files."},
      {"mounts", either("a list of SOURCE[:PATH][:ro]", {nothing(), list("a list of SOURCE[:PATH][:ro]", text(kMount))}),
       "Places of the host that are seen in the image."},
      {"hosts", hosts(), "Where it may be placed: names, pools, labels or GPUs of hosts, patterns of these, and with ! before it where not."},
      {"params", refused("this key is now called 'parameters'")},
      {"concurrent-experiments", refused("this key is now called 'concurrency'")},
      {"max-parallel-experiments", refused("this key is now called 'concurrency'")},
      {"ps-count", refused("write it as tensorflow.distributed.ps")},
      {"worker-count", refused("write it as tensorflow.distributed.worker")},
      {"inputs", refused("write data sets as 'data: {name: /path}'")},
      {"retries", refused("write it as 'restart: {limit: 3}'")},
      {"timeout", refused("this key is called 'max-duration'")},
  };
}

Shape make_spec_shape() {
  return map("a map with project and train",
             {{"project", text(kProjectName), "What the experiments belong to.", true},
              {"name", text(kAnyText), "A name for this experiment."},
              {"note", text(kAnyText), "A note for this experiment."},
              {"train", map("a map", train_keys()), "What is run.", true},
              {"deploy", refused("deploying models is not part of dtrain; remove this key")}});
}

}  // namespace

const Shape& spec_shape() {
  static const Shape shape = make_spec_shape();
  return shape;
}

bool takes_value(const Shape& shape) {
  switch (shape.kind) {
    case Kind::Boolean:
    case Kind::Integer:
    case Kind::Number:
    case Kind::Text:
    case Kind::Word:
      return true;
    case Kind::Either:
      return std::any_of(shape.parts.begin(), shape.parts.end(), takes_value);
    case Kind::False:
    case Kind::Nothing:
    case Kind::List:
    case Kind::Map:
    case Kind::Dict:
    case Kind::Refused:
      return false;
  }
  return false;
}

std::string expectation(const Shape& shape) {
  constexpr double kLowest = std::numeric_limits<double>::lowest();
  constexpr double kHighest = std::numeric_limits<double>::max();
  if (shape.kind == Kind::Word) {
    std::string all;
    for (size_t i = 0; i < shape.words.size(); ++i) {
      if (i > 0) all += i + 1 == shape.words.size() ? " or " : ", ";
      all += shape.words[i];
    }
    return all;
  }
  const bool counts = shape.kind == Kind::Integer || shape.kind == Kind::Number;
  if (!counts || !shape.expected.empty()) return std::string(shape.expected);
  std::string said = shape.kind == Kind::Integer ? "a whole number" : "a number";
  if (shape.minimum != kLowest && shape.maximum != kHighest) {
    said += fmt::format(" from {} to {}", shape.minimum, shape.maximum);
  }
  return said;
}

}  // namespace dtrain
