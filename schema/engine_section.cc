#include "schema/engine_section.h"

#include <algorithm>

#include "schema/engine_keys.h"
#include "schema/engine_limits.h"
#include "schema/spec_check.h"
#include "schema/spec_read.h"
#include "schema/text_formats.h"

namespace dtrain {

namespace {


// One section with all its values in place. A problem is reported where it stands, and the value is
// as if left out.
class SectionReader {
 public:
  SectionReader(const YamlNode& section, const EngineRoles& roles, Problems& problems)
      : section_(section), roles_(roles), problems_(problems) {}

  EngineSpec read() {
    EngineSpec spec;
    read_model(spec.model);
    const YamlNode* data = value_of(&section_, "data");
    spec.train_data = path_in(data, "data", "train");
    spec.test_data = path_in(data, "data", "test");
    read_strategy(spec.strategy);
    spec.batch = integer<int>(&section_, "batch", spec.batch);
    spec.weak_scaling = word(&section_, "scaling") == "weak";
    spec.micro_batch = integer<int>(&section_, "micro-batch", spec.micro_batch);
    spec.precision = read_precision();
    read_length(spec);
    read_optimizer(spec.optimizer);
    read_schedule(spec.schedule);
    spec.clip_norm = number(&section_, "clip", spec.clip_norm);
    read_checkpoint(spec);
    spec.seed = integer<uint64_t>(&section_, "seed", spec.seed);
    spec.threads = integer<int>(&section_, "threads", spec.threads);
    read_deadline(spec);
    return spec;
  }

 private:
  struct Choice {
    std::string_view name;              // empty: left out, or refused
    const YamlNode* options = nullptr;  // the map below it; null: none
    std::string path;
  };

  // `key: word`, or `key: {word: {...}}` with exactly one entry.
  Choice choice(std::string_view key, std::string_view expected) {
    const YamlNode* node = value_of(&section_, key);
    if (node == nullptr) return {};
    const std::string path = join_path(kEnginePath, key);
    if (node->kind == YamlNode::Kind::Scalar) return {node->text, nullptr, path};
    if (node->entries.size() != 1) {
      problems_.add(
          node->place, path,
          fmt::format("got a map of {}, expected one of {}", node->entries.size(), expected));
      return {};
    }
    const YamlEntry& entry = node->entries.front();
    if (entry.value.refused) return {};
    return {entry.key, &entry.value, join_path(path, entry.key)};
  }

  template <typename Integer>
  static Integer integer(const YamlNode* map, std::string_view key, Integer otherwise) {
    const YamlNode* node = value_of(map, key);
    const auto value = node ? as_integer(*node) : std::nullopt;
    return value ? static_cast<Integer>(*value) : otherwise;
  }
  static double number(const YamlNode* map, std::string_view key, double otherwise) {
    const YamlNode* node = value_of(map, key);
    return node ? as_number(*node).value_or(otherwise) : otherwise;
  }
  static bool flag(const YamlNode* map, std::string_view key, bool otherwise = false) {
    const YamlNode* node = value_of(map, key);
    return node ? as_boolean(*node).value_or(otherwise) : otherwise;
  }
  static std::string_view word(const YamlNode* map, std::string_view key) {
    const YamlNode* node = value_of(map, key);
    return node ? std::string_view(node->text) : std::string_view();
  }

  std::string path_in(const YamlNode* map, std::string_view name, std::string_view key) {
    const YamlNode* node = value_of(map, key);
    if (node == nullptr) return "";
    if (node->text.size() > engine_limits::kPathBytesMax) {
      problems_.add(
          node->place, join_path(join_path(kEnginePath, name), key),
          fmt::format("expected a path of at most {} bytes", engine_limits::kPathBytesMax));
    }
    return node->text;
  }

  static std::vector<int> widths(const YamlNode* map, std::vector<int> otherwise,
                                 std::string_view key = "hidden") {
    const YamlNode* node = value_of(map, key);
    if (node == nullptr) return otherwise;
    std::vector<int> all;
    const auto take = [&](const YamlNode& item) {
      if (const auto width = as_integer(item)) all.push_back(static_cast<int>(*width));
    };
    take(*node);
    for (const YamlNode& item : node->items) take(item);
    const bool is_none = node->kind == YamlNode::Kind::List && node->items.empty();
    return all.empty() && !is_none ? otherwise : all;  // a placeholder is no width yet
  }

  void read_model(ModelSpec& model) {
    const Choice chosen = choice("model", "mlp, lenet and gpt");
    if (chosen.name == "gpt") {
      GptSpec gpt;
      gpt.layers = integer<int>(chosen.options, "layers", gpt.layers);
      gpt.heads = integer<int>(chosen.options, "heads", gpt.heads);
      gpt.width = integer<int>(chosen.options, "width", gpt.width);
      gpt.context = integer<int>(chosen.options, "context", gpt.context);
      gpt.vocabulary = integer<int>(chosen.options, "vocabulary", gpt.vocabulary);
      model = gpt;
    } else if (chosen.name == "lenet") {
      LenetSpec lenet;
      lenet.kernel = integer<int>(chosen.options, "kernel", lenet.kernel);
      lenet.channels = widths(chosen.options, lenet.channels, "channels");
      lenet.hidden = widths(chosen.options, lenet.hidden);
      lenet.padding = flag(chosen.options, "padding", lenet.padding);
      lenet.pool = widths(chosen.options, lenet.pool, "pool");
      model = lenet;
    } else {
      model = MlpSpec{widths(chosen.options, MlpSpec().hidden)};
    }
  }

  void read_strategy(StrategySpec& strategy) {
    const Choice chosen = choice("strategy", "the strategies");
    if (chosen.name.empty()) {
      strategy.kind = roles_.servers > 0   ? Strategy::ParameterServer
                      : roles_.workers > 1 ? Strategy::MultiWorkerMirrored
                      : roles_.gpus > 1    ? Strategy::Mirrored
                                           : Strategy::Single;
      return;
    }
    const YamlNode* options = chosen.options;
    for (const Strategy kind : {Strategy::Single, Strategy::Mirrored, Strategy::MultiWorkerMirrored,
                                Strategy::CentralStorage, Strategy::ParameterServer,
                                Strategy::Pipeline, Strategy::Tensor, Strategy::Mesh}) {
      if (chosen.name == to_string(kind)) strategy.kind = kind;
    }
    if (chosen.name == "allreduce") strategy.kind = Strategy::MultiWorkerMirrored;
    strategy.devices = integer<int>(options, "devices", strategy.devices);
    strategy.mode = word(options, "mode") == "ssp"    ? ServerMode::Ssp
                    : word(options, "mode") == "sync" ? ServerMode::Sync
                                                      : ServerMode::Async;
    strategy.staleness = integer<int>(options, "staleness", strategy.staleness);
    strategy.apply_every = integer<int>(options, "apply-every", strategy.apply_every);
    strategy.backup = integer<int>(options, "backup", strategy.backup);
    if (word(options, "data-path") == "grpc") strategy.data_path = DataPath::Grpc;
    strategy.micro_batches = integer<int>(options, "micro-batches", strategy.micro_batches);
    strategy.bucket_mb = number(options, "bucket-mb", strategy.bucket_mb);
    if (strategy.kind == Strategy::Mesh) {
      strategy.mesh_data = integer<int>(options, "data", strategy.mesh_data);
      strategy.mesh_model = integer<int>(options, "model", strategy.mesh_model);
    }
    if (strategy.mode != ServerMode::Ssp) belongs_to("staleness", "'mode: ssp'", chosen);
    if (strategy.mode != ServerMode::Sync) belongs_to("backup", "'mode: sync'", chosen);
    if (strategy.mode == ServerMode::Sync) belongs_to("apply-every", "'mode: async' or 'mode: ssp'", chosen);
  }

  void belongs_to(std::string_view key, std::string_view modes, const Choice& chosen) {
    const YamlNode* node = value_of(chosen.options, key);
    if (node == nullptr) return;
    problems_.add(
        node->place, join_path(chosen.path, key),
        fmt::format("only {} has this; write it beside, or remove this key", modes));
  }

  void read_length(EngineSpec& spec) {
    const YamlNode* steps = value_of(&section_, "steps");
    if (steps != nullptr && value_of(&section_, "epochs") != nullptr) {
      problems_.add(steps->place, join_path(kEnginePath, "steps"),
                    "epochs are given, too; write one of the two");
    }
    spec.epochs = number(&section_, "epochs", spec.epochs);
    spec.steps = integer<int64_t>(&section_, "steps", spec.steps);
    spec.epoch_samples =
        integer<int64_t>(value_of(&section_, "epoch"), "samples", spec.epoch_samples);
  }

  void read_optimizer(OptimizerSpec& optimizer) {
    const Choice chosen = choice("optimizer", "sgd, adam and adamw");
    if (chosen.name == "adam") optimizer.kind = Optimizer::Adam;
    if (chosen.name == "adamw") optimizer.kind = Optimizer::AdamW;
    if (optimizer.kind != Optimizer::Sgd) optimizer.learning_rate = 0.001;
    if (optimizer.kind == Optimizer::AdamW) optimizer.weight_decay = 0.01;
    const YamlNode* options = chosen.options;
    optimizer.learning_rate = number(options, "learning-rate", optimizer.learning_rate);
    optimizer.momentum = number(options, "momentum", optimizer.momentum);
    optimizer.nesterov = flag(options, "nesterov");
    optimizer.beta1 = number(options, "beta1", optimizer.beta1);
    optimizer.beta2 = number(options, "beta2", optimizer.beta2);
    optimizer.epsilon = number(options, "epsilon", optimizer.epsilon);
    optimizer.weight_decay = number(options, "weight-decay", optimizer.weight_decay);
  }

  void read_schedule(ScheduleSpec& schedule) {
    const Choice chosen = choice("schedule", "constant, step, cosine and linear");
    if (chosen.name == "step") schedule.kind = Schedule::Step;
    if (chosen.name == "cosine") schedule.kind = Schedule::Cosine;
    if (chosen.name == "linear") schedule.kind = Schedule::Linear;
    if (const auto span = span_in(chosen.options, "warm-up", chosen.path, MayBeNothing::Yes)) {
      schedule.warm_up_epochs = span->epochs ? span->count : 0;
      schedule.warm_up_steps = span->epochs ? 0 : static_cast<int64_t>(span->count);
    }
    if (const auto span = span_in(chosen.options, "every", chosen.path, MayBeNothing::No)) {
      if (span->epochs) schedule.every_epochs = span->count;
      if (!span->epochs) schedule.every_steps = static_cast<int64_t>(span->count);
    }
    schedule.factor = number(chosen.options, "factor", schedule.factor);
    schedule.final_fraction = number(chosen.options, "final", schedule.final_fraction);
    schedule.scale_with_batch =
        integer<int>(chosen.options, "scale-with-batch", schedule.scale_with_batch);
  }

  void read_checkpoint(EngineSpec& spec) {
    const YamlNode* map = value_of(&section_, "checkpoint");
    spec.checkpoint_keep = integer<int>(map, "keep", spec.checkpoint_keep);
    spec.checkpoint_from = path_in(map, "checkpoint", "from");
    const auto every = span_in(map, "every", join_path(kEnginePath, "checkpoint"), MayBeNothing::No);
    if (!every) return;
    if (every->epochs) {
      spec.checkpoint_epochs = every->count;
    } else {
      spec.checkpoint_steps = static_cast<int64_t>(every->count);
    }
  }

  enum class MayBeNothing { No, Yes };
  std::optional<TrainingSpan> span_in(const YamlNode* map, std::string_view key,
                                      const std::string& path, MayBeNothing may_be_nothing) {
    const YamlNode* node = value_of(map, key);
    const auto span = node ? parse_training_span(node->text) : std::nullopt;
    if (!span) return std::nullopt;
    const double least = span->epochs ? engine_limits::kEpochs.least : engine_limits::kSteps.least;
    if (span->count >= least || (span->count == 0 && may_be_nothing == MayBeNothing::Yes))
      return span;
    problems_.add(node->place, join_path(path, key),
                  fmt::format("got {}, expected at least {}", node->text,
                              span->epochs ? "0.0001 epochs" : "1 step"));
    return std::nullopt;
  }

  Precision read_precision() {
    const std::string_view name = word(&section_, "precision");
    return name == "fp32"   ? Precision::Fp32
           : name == "tf32" ? Precision::Tf32
           : name == "bf16" ? Precision::Bf16
                            : Precision::Auto;
  }

  void read_deadline(EngineSpec& spec) {
    const YamlNode* node = value_of(&section_, "deadline");
    if (node == nullptr) return;
    const auto plain_seconds = as_number(*node);
    const auto read_ms = parse_duration_ms(node->text);
    const double seconds =
        plain_seconds ? *plain_seconds : static_cast<double>(read_ms.value_or(0)) / 1000.0;
    const engine_limits::Range range = engine_limits::kDeadlineSeconds;
    if (seconds < range.least || seconds > range.most) {
      problems_.add(node->place, join_path(kEnginePath, "deadline"),
                    fmt::format("got {}, expected 100ms to 24h", node->text));
      return;
    }
    spec.deadline_seconds = seconds;
  }

  const YamlNode& section_;
  const EngineRoles roles_;
  Problems& problems_;
};

// Where the key stands, or the nearest above it that is there.
Place place_of(const YamlNode& section, std::string_view key) {
  const YamlNode* node = &section;
  while (!key.empty()) {
    const size_t dot = std::min(key.find('.'), key.size());
    const YamlNode* below = node->find(key.substr(0, dot));
    if (below == nullptr) break;
    node = below;
    key.remove_prefix(std::min(dot + 1, key.size()));
  }
  return node->place;
}

}  // namespace

EngineSpec read_engine_section(const YamlNode& section, const EngineRoles& roles,
                               Problems& problems) {
  const size_t before = problems.size();
  EngineSpec spec = SectionReader(section, roles, problems).read();
  // Between values that are wrong themselves there is nothing to say.
  if (problems.size() != before) return spec;
  for (const auto& found : {check_engine(spec), check_engine_roles(spec, roles)}) {
    for (const EngineProblem& problem : found) {
      problems.add(place_of(section, problem.key), fmt::format("{}.{}", kEnginePath, problem.key),
                   problem.text);
    }
  }
  return spec;
}

}  // namespace dtrain
