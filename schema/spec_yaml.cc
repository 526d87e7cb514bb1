// to_yaml: the one serial form of a Spec, short where a default says the same.
#include <algorithm>

#include "schema/decimal.h"
#include "schema/quote.h"
#include "schema/spec.h"
#include "schema/text_formats.h"
#include "schema/variation.h"

namespace dtrain {

namespace {

// Words that YAML, or an older YAML, reads as something else than text.
bool is_reserved_word(std::string_view text) {
  constexpr std::string_view kWords[] = {"null", "Null",  "NULL",  "true",  "True",
                                         "TRUE", "false", "False", "FALSE", "yes",
                                         "no",   "on",    "off",   "y",     "n"};
  return std::find(std::begin(kWords), std::end(kWords), text) != std::end(kWords);
}

// Text that needs no quotes on a line of its own. Numbers don't either: keys that take text take
// them.
bool is_plain(std::string_view text) {
  auto is_first = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '/';
  };
  auto is_other = [](char c) { return c >= ' ' && c <= '~' && c != '#'; };
  return !text.empty() && is_first(text.front()) && text.back() != ' ' && text.back() != ':' &&
         std::all_of(text.begin(), text.end(), is_other) &&
         text.find(": ") == std::string_view::npos && !is_reserved_word(text);
}

// What is the end of a line to some readers of YAML, or a mark at a file's begin, as all of them take it; empty: it is
// another letter.
std::string_view escape_of_mark(std::string_view letter) {
  constexpr std::pair<std::string_view, std::string_view> kMarks[] = {
      {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}, {"\xEF\xBB\xBF", "\\uFEFF"}};
  const auto found = std::find_if(std::begin(kMarks), std::end(kMarks), [&](const auto& mark) { return mark.first == letter; });
  return found == std::end(kMarks) ? "" : found->second;
}

// Lines of "key: value", indented.
class YamlWriter {
 public:
  void key(int depth, std::string_view name, std::string_view value) {
    out_ += fmt::format("{:{}}{}:{}{}\n", "", depth * 2, name, value.empty() ? "" : " ", value);
  }
  void item(int depth, std::string_view value) {
    out_ += fmt::format("{:{}}- {}\n", "", depth * 2, value);
  }
  // One command as a value, several as a list.
  void lines(int depth, std::string_view name, const std::vector<std::string>& values) {
    if (values.size() == 1) return key(depth, name, yaml_scalar(values[0]));
    key(depth, name, "");
    for (const std::string& value : values) item(depth + 1, yaml_scalar(value));
  }
  // Lines of YAML as they are, further in.
  void text(int depth, std::string_view lines) {
    while (!lines.empty()) {
      const size_t end = std::min(lines.find('\n'), lines.size());
      out_ += fmt::format("{:{}}{}\n", "", depth * 2, lines.substr(0, end));
      lines.remove_prefix(std::min(end + 1, lines.size()));
    }
  }
  void list(int depth, std::string_view name, const std::vector<std::string>& values) {
    if (values.empty()) return;
    key(depth, name, "");
    for (const std::string& value : values) item(depth + 1, yaml_scalar(value));
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

std::string flow(const Resources& resources) {
  return fmt::format("{{cpus: {}, mem: {}, gpus: {}}}", resources.cpus,
                     format_memory(resources.memory_bytes), resources.gpus);
}

std::string_view to_word(OnFailure on_failure) {
  switch (on_failure) {
    case OnFailure::Fail:
      return "fail";
    case OnFailure::Restart:
      return "restart";
    case OnFailure::Ignore:
      return "ignore";
    case OnFailure::RestartOnSignal:
      return "restart-on-signal";
  }
  return "fail";
}

std::string_view to_word(FailureAction action) {
  switch (action) {
    case FailureAction::Fail:
      return "fail";
    case FailureAction::Restart:
      return "restart";
    case FailureAction::ExcludeHost:
      return "exclude-host";
  }
  return "fail";
}

// The range that stands for exactly these values; empty when none does.
std::string as_range(const std::vector<std::string>& values) {
  if (values.size() < 3) return "";
  const auto first = parse_decimal(values[0]);
  const auto second = parse_decimal(values[1]);
  const auto last = parse_decimal(values.back());
  if (!first || !second || !last) return "";
  // The step is what the first two differ by, written with the digits of the finer one.
  const int scale = std::max(first->scale, second->scale);
  int64_t low = first->mantissa;
  int64_t high = second->mantissa;
  for (int i = first->scale; i < scale; ++i) {
    if (__builtin_mul_overflow(low, int64_t{10}, &low)) return "";
  }
  for (int i = second->scale; i < scale; ++i) {
    if (__builtin_mul_overflow(high, int64_t{10}, &high)) return "";
  }
  int64_t difference = 0;
  if (__builtin_sub_overflow(high, low, &difference) || difference <= 0) return "";
  const std::string step = to_string(Decimal{difference, scale});
  const auto range = DecimalRange::make(*first, *last, *parse_decimal(step));
  if (!range || range->count() != values.size()) return "";
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != range->at(i)) return "";
  }
  return fmt::format("{{range: {{min: {}, max: {}, step: {}}}}}", values[0], values.back(), step);
}

void write_parameters(const Spec& spec, YamlWriter& out) {
  if (spec.parameters.empty()) return;
  out.key(1, "parameters", "");
  for (const Parameter& parameter : spec.parameters) {
    const std::string range = as_range(parameter.values);
    if (!range.empty()) {
      out.key(2, yaml_scalar(parameter.name), range);
    } else if (parameter.values.size() == 1) {
      out.key(2, yaml_scalar(parameter.name), yaml_scalar(parameter.values[0]));
    } else {
      out.list(2, yaml_scalar(parameter.name), parameter.values);
    }
  }
}

void write_metrics(const Spec& spec, YamlWriter& out) {
  const std::vector<Metric>& metrics = spec.metrics;
  if (metrics.empty()) return;
  out.key(1, "metrics", "");
  const bool names_only = std::all_of(metrics.begin(), metrics.end(),
                                      [](const Metric& metric) { return metric.pattern.empty(); });
  for (const Metric& metric : metrics) {
    if (names_only) {
      out.item(2, yaml_scalar(metric.name));
    } else {
      out.key(2, yaml_scalar(metric.name),
              metric.pattern.empty() ? "null" : yaml_scalar(metric.pattern));
    }
  }
}

void write_search(const Search& search, YamlWriter& out) {
  if (search == Search{}) return;
  out.key(1, "search", "");
  if (!search.metric.empty()) {
    out.key(2, "metric", yaml_scalar(search.metric));
    out.key(2, "goal", search.highest_is_best ? "max" : "min");
  }
  if (const auto& stop = search.stop_early) {
    const std::string by = stop->by.empty() ? "" : ", by: " + yaml_scalar(stop->by);
    out.key(2, "stop-early", fmt::format("{{after: {}, factor: {}{}}}", stop->after, stop->factor, by));
  }
  if (search.max_failed != Search::kNoLimit) out.key(2, "max-failed", fmt::format("{}", search.max_failed));
}

void write_per_host(const RoleSpec& role, YamlWriter& out) {
  if (role.per_host > 0) out.key(4, "per-host", fmt::format("{}", role.per_host));
}

void write_image(const RoleSpec& role, YamlWriter& out) {
  if (!role.image.empty()) out.key(4, "image", yaml_scalar(role.image));
}

// Who is the master, and nothing else is written of it here.
void write_sole_worker(const RoleSpec& master, YamlWriter& out) {
  if (master.per_host == 0 && master.image.empty()) return out.key(3, "worker", "1");
  out.key(3, "worker", "");
  out.key(4, "count", "1");
  write_per_host(master, out);
  write_image(master, out);
}

// A role with what it does not share with train (whose values are the decider's).
void write_role(std::string_view name, int count, const RoleSpec& role, const Spec& spec,
                YamlWriter& out) {
  const RoleSpec& shared = spec.decider();
  const OnFailure usual = spec.usual_on_failure(role.role);
  const bool same = role.resources == shared.resources && role.run == shared.run &&
                    role.on_failure == usual && role.image.empty() && role.per_host == 0;
  if (same) return out.key(3, name, fmt::format("{}", count));
  out.key(3, name, "");
  out.key(4, "count", fmt::format("{}", count));
  write_per_host(role, out);
  if (role.resources != shared.resources) out.key(4, "resources", flow(role.resources));
  if (role.run != shared.run) out.lines(4, "run", role.run);
  write_image(role, out);
  if (role.on_failure != usual) out.key(4, "on-failure", to_word(role.on_failure));
}

// The master is written where it would otherwise take what only its fellow workers have.
void write_master(const Spec& spec, const RoleSpec* worker, YamlWriter& out) {
  const RoleSpec& master = spec.decider();
  const RoleSpec& fellow = worker ? *worker : master;
  const OnFailure inherited =
      !worker || fellow.on_failure == OnFailure::Ignore ? spec.restart.usual() : fellow.on_failure;
  const bool same = master.resources == fellow.resources && master.run == fellow.run && master.image == fellow.image &&
                    master.on_failure == inherited;
  if (same) return;
  out.key(3, "master", "");
  out.key(4, "resources", flow(master.resources));
  if (master.run != fellow.run) out.lines(4, "run", master.run);
  if (master.image != fellow.image) out.key(4, "image", yaml_scalar(spec.image_of(master)));
  if (master.on_failure != inherited) out.key(4, "on-failure", to_word(master.on_failure));
}

void write_elastic(const Spec& spec, YamlWriter& out) {
  if (!spec.elastic) return;
  const int64_t grow_ms = spec.elastic->grow_after_ms;
  std::string more;
  if (grow_ms != Elastic().grow_after_ms) {
    more = ", grow-after: " + (grow_ms == Elastic::kNever ? "never" : format_duration_ms(grow_ms));
  }
  out.key(3, "elastic", fmt::format("{{min: {}{}}}", spec.least_workers(), more));
}

void write_roles(const Spec& spec, YamlWriter& out) {
  const RoleSpec& decider = spec.decider();
  if (decider.role == Role::Train) return;
  out.key(2, "distributed", "");
  const RoleSpec* worker = spec.role(Role::Worker);
  if (decider.role == Role::Chief) {
    write_role("chief", 1, decider, spec, out);
    if (!worker) out.key(3, "worker", "0");
    if (worker) write_role("worker", worker->count, *worker, spec, out);
  } else {
    write_master(spec, worker, out);
    if (!worker) write_sole_worker(decider, out);
    if (worker) write_role("worker", worker->count + 1, *worker, spec, out);
  }
  if (const RoleSpec* ps = spec.role(Role::Ps)) write_role("ps", ps->count, *ps, spec, out);
  if (const RoleSpec* evaluator = spec.role(Role::Evaluator)) {
    write_role("evaluator", evaluator->count, *evaluator, spec, out);
  }
  write_elastic(spec, out);
}

void write_pytorch(const Spec& spec, YamlWriter& out) {
  if (spec.framework != Framework::Pytorch) return;
  const bool roles = spec.decider().role != Role::Train;
  if (spec.pytorch == PytorchOptions{} && !roles) return;
  const int processes = spec.pytorch.nproc_per_node;
  out.key(1, "pytorch", "");
  if (processes == PytorchOptions::kOnePerGpu) out.key(2, "nproc-per-node", "gpu");
  if (processes > 1) out.key(2, "nproc-per-node", fmt::format("{}", processes));
  write_roles(spec, out);
}

void write_jax(const Spec& spec, YamlWriter& out) {
  if (spec.framework != Framework::Jax || spec.decider().role == Role::Train) return;
  out.key(1, "jax", "");
  write_roles(spec, out);
}

// Launcher and workers have no run of their own, and seldom the same resources.
void write_mpi_role(std::string_view name, const RoleSpec& role, const Spec& spec, YamlWriter& out) {
  out.key(3, name, "");
  out.key(4, "count", fmt::format("{}", role.count));
  write_per_host(role, out);
  out.key(4, "resources", flow(role.resources));
  write_image(role, out);
  if (role.on_failure != spec.usual_on_failure(role.role)) out.key(4, "on-failure", to_word(role.on_failure));
}

void write_mpi(const Spec& spec, YamlWriter& out) {
  if (spec.framework != Framework::Mpi) return;
  const RoleSpec* worker = spec.role(Role::Worker);
  if (spec.mpi == MpiOptions{} && worker == nullptr) return;
  out.key(1, "mpi", "");
  if (spec.mpi.slots == MpiOptions::kOnePerGpu) out.key(2, "slots", "gpu");
  if (spec.mpi.slots > 1) out.key(2, "slots", fmt::format("{}", spec.mpi.slots));
  if (worker == nullptr) return;
  out.key(2, "distributed", "");
  write_mpi_role("launcher", spec.decider(), spec, out);
  write_mpi_role("worker", *worker, spec, out);
  write_elastic(spec, out);
}

void write_tensorflow(const Spec& spec, YamlWriter& out) {
  if (spec.framework != Framework::Tensorflow && spec.framework != Framework::Command) return;
  const TensorflowOptions& options = spec.tensorflow;
  const bool roles = spec.decider().role != Role::Train;
  if (options == TensorflowOptions{} && !roles) return;
  out.key(1, "tensorflow", "");
  if (!options.version.empty()) out.key(2, "version", yaml_scalar(options.version));
  if (options.tensorboard) out.key(2, "tensorboard", "true");
  if (options.chief_task != TensorflowOptions{}.chief_task) out.key(2, "chief-task", options.chief_task);
  write_roles(spec, out);
}

void write_engine(const Spec& spec, YamlWriter& out) {
  if (spec.framework != Framework::Engine) return;
  out.key(1, "engine", "");
  out.text(2, spec.engine.section);
  if (spec.tensorflow.tensorboard) out.key(2, "tensorboard", "true");
  write_roles(spec, out);
}

void write_failure_policy(const Spec& spec, YamlWriter& out) {
  if (spec.failure_policy.empty()) return;
  out.key(1, "failure-policy", "");
  for (const FailureRule& rule : spec.failure_policy) {
    std::string text;
    if (!rule.printed.empty()) text += fmt::format("printed: {}, ", yaml_quoted(rule.printed));
    if (rule.at_once) text += "at-once: true, ";
    if (!rule.exit_codes.empty()) text += fmt::format("exit-code: [{}], ", fmt::join(rule.exit_codes, ", "));
    if (rule.silent_for_ms != 0) text += fmt::format("silent-for: {}, ", format_duration_ms(rule.silent_for_ms));
    out.item(2, fmt::format("{{{}action: {}}}", text, to_word(rule.action)));
  }
}

void write_ending(const Spec& spec, YamlWriter& out) {
  const Spec defaults;
  // Left out, the engine would have some.
  write_failure_policy(spec, out);
  if (spec.restart != defaults.restart || spec.framework == Framework::Engine || spec.elastic) {
    const bool limit_left_out = spec.restart.limit == 0 && spec.restarts_most() > 0;   // by a rule
    const std::string limit = limit_left_out ? "" : fmt::format("limit: {}, ", spec.restart.limit);
    out.key(1, "restart", fmt::format("{{{}backoff: {}}}", limit, format_duration_ms(spec.restart.backoff_ms)));
  }
  if (spec.max_duration_ms != 0) {
    out.key(1, "max-duration", format_duration_ms(spec.max_duration_ms));
  }
  if (spec.max_away_ms != 0) out.key(1, "max-away", format_duration_ms(spec.max_away_ms));
  // Left out, MPI would have none.
  if (spec.finish_grace_ms != defaults.finish_grace_ms || spec.framework == Framework::Mpi) {
    out.key(1, "finish-grace", format_duration_ms(spec.finish_grace_ms));
  }
  if (spec.stop_grace_ms != defaults.stop_grace_ms) {
    out.key(1, "stop-grace", format_duration_ms(spec.stop_grace_ms));
  }
  if (spec.completion == Completion::AllWorkers) out.key(1, "completion", "all-workers");
  if (spec.hard_cpus || spec.hard_memory) {
    out.key(1, "limits",
            fmt::format("{{cpus: {}, mem: {}}}", spec.hard_cpus ? "hard" : "soft",
                        spec.hard_memory ? "hard" : "soft"));
  }
}

std::string varied_yaml(const Spec& spec) {
  Problems none("", false);
  auto root = parse_yaml(spec.source, 0, none);
  INVARIANT(root && none.empty(), "a source was written by emit_yaml");
  put_own_keys(*root, spec);
  return emit_yaml(*root);
}

void write_environment(const Spec& spec, YamlWriter& out) {
  if (spec.env.empty() && spec.env_from_shell.empty()) return;
  out.key(1, "env", "");
  for (const auto& [name, value] : spec.env) {
    if (spec.env_from_shell.empty()) {
      out.key(2, yaml_scalar(name), yaml_scalar(value));
    } else {
      out.item(2, yaml_scalar(fmt::format("{}={}", name, value)));
    }
  }
  for (const std::string& name : spec.env_from_shell) out.item(2, yaml_scalar(name));
}

}  // namespace

std::string yaml_scalar(std::string_view text) {
  return is_plain(text) ? std::string(text) : yaml_quoted(text);
}

std::string yaml_quoted(std::string_view text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const size_t length = utf8_length(text, at);
    if (length == 0) {
      out += "\xEF\xBF\xBD";  // no YAML can hold such a byte; the parser never let one in
    } else if (byte == '"' || byte == '\\') {
      out += {'\\', text[at]};
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (const std::string_view mark = escape_of_mark(text.substr(at, length)); !mark.empty()) {
      out += mark;
    } else {
      out += text.substr(at, length);
    }
    at += std::max<size_t>(length, 1);
  }
  return out + "\"";
}

std::string to_yaml(const Spec& spec) {
  if (!spec.source.empty()) return varied_yaml(spec);
  const Spec defaults;
  const RoleSpec& decider = spec.decider();
  YamlWriter out;
  out.key(0, "project", yaml_scalar(spec.project));
  if (!spec.name.empty()) out.key(0, "name", yaml_scalar(spec.name));
  if (!spec.note.empty()) out.key(0, "note", yaml_scalar(spec.note));
  out.key(0, "train", "");
  out.key(1, "framework", to_string(spec.framework));
  out.key(1, "resources", flow(decider.resources));
  write_tensorflow(spec, out);
  write_pytorch(spec, out);
  write_jax(spec, out);
  write_mpi(spec, out);
  write_engine(spec, out);
  write_parameters(spec, out);
  write_metrics(spec, out);
  if (spec.combine == Combine::Zip) out.key(1, "combine", "zip");
  write_search(spec.search, out);
  if (spec.concurrency != 0) out.key(1, "concurrency", fmt::format("{}", spec.concurrency));
  if (spec.priority != 50) out.key(1, "priority", fmt::format("{}", spec.priority));
  if (spec.preemptible) out.key(1, "preemptible", "true");
  if (spec.suspend) out.key(1, "suspend", "true");
  out.list(1, "after", to_strings(spec.after));
  out.list(1, "after-end", to_strings(spec.after_end));
  if (!spec.image.empty()) out.key(1, "image", yaml_scalar(spec.image));
  std::vector<std::string> mounts;
  for (const HostMount& mount : spec.mounts) mounts.push_back(to_string(mount));
  out.list(1, "mounts", mounts);
  out.list(1, "hosts", spec.hosts);
  out.list(1, "install", spec.install);
  if (!spec.data.empty()) out.key(1, "data", "");
  for (const auto& [name, path] : spec.data) out.key(2, yaml_scalar(name), yaml_scalar(path));
  write_environment(spec, out);
  out.list(1, "outputs", spec.outputs);
  if (spec.python != defaults.python) out.key(1, "python", yaml_scalar(spec.python));
  write_ending(spec, out);
  if (spec.framework != Framework::Engine) out.lines(1, "run", decider.run);
  return out.take();
}

}  // namespace dtrain
