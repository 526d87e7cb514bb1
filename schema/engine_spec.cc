#include "schema/engine_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "schema/engine_check.h"
#include "schema/engine_limits.h"
#include "schema/quote.h"

namespace dtrain {

namespace {

using Json = nlohmann::ordered_json;
using engine_limits::Range;
namespace limits = engine_limits;

constexpr size_t kJsonBytesMax = 1 << 20;

template <typename Enum>
struct Word {
  std::string_view word;
  Enum value;
};
constexpr std::array<Word<Strategy>, 8> kStrategies{
    {{"single", Strategy::Single},
     {"mirrored", Strategy::Mirrored},
     {"multi-worker-mirrored", Strategy::MultiWorkerMirrored},
     {"central-storage", Strategy::CentralStorage},
     {"parameter-server", Strategy::ParameterServer},
     {"pipeline", Strategy::Pipeline},
     {"tensor", Strategy::Tensor},
     {"mesh", Strategy::Mesh}}};
constexpr std::array<Word<ServerMode>, 3> kModes{
    {{"async", ServerMode::Async}, {"ssp", ServerMode::Ssp}, {"sync", ServerMode::Sync}}};
constexpr std::array<Word<DataPath>, 2> kDataPaths{
    {{"raw", DataPath::Raw}, {"grpc", DataPath::Grpc}}};
constexpr std::array<Word<Optimizer>, 3> kOptimizers{
    {{"sgd", Optimizer::Sgd}, {"adam", Optimizer::Adam}, {"adamw", Optimizer::AdamW}}};
constexpr std::array<Word<Schedule>, 4> kSchedules{{{"constant", Schedule::Constant},
                                                    {"step", Schedule::Step},
                                                    {"cosine", Schedule::Cosine},
                                                    {"linear", Schedule::Linear}}};
constexpr std::array<Word<Precision>, 4> kPrecisions{{{"auto", Precision::Auto},
                                                      {"fp32", Precision::Fp32},
                                                      {"tf32", Precision::Tf32},
                                                      {"bf16", Precision::Bf16}}};
constexpr std::array<Word<bool>, 2> kScalings{{{"strong", false}, {"weak", true}}};

// Both know the same calls, one for each kind of field, so that what is written and what is read
// are one list: fields_of() below.
class JsonWriter {
 public:
  template <typename Number>
  void number(std::string_view key, Number& field, Range) {
    json[std::string(key)] = field;
  }
  void seed(std::string_view key, uint64_t& field) { json[std::string(key)] = field; }
  void flag(std::string_view key, bool& field) { json[std::string(key)] = field; }
  void text(std::string_view key, std::string& field) { json[std::string(key)] = field; }
  void list(std::string_view key, std::vector<int>& field, Range, size_t, size_t) {
    json[std::string(key)] = field;
  }
  template <typename Enum, size_t n>
  void word(std::string_view key, Enum& field, const std::array<Word<Enum>, n>& words) {
    for (const Word<Enum>& each : words) {
      if (each.value == field) json[std::string(key)] = std::string(each.word);
    }
  }
  template <typename Fields>
  void part(std::string_view key, const Fields& fields) {
    JsonWriter inner;
    fields(inner);
    json[std::string(key)] = std::move(inner.json);
  }
  void model(ModelSpec& field);

  Json json = Json::object();
};

// Keeps the first thing that is wrong. What is left out keeps the value it has.
class EngineReader {
 public:
  EngineReader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  template <typename Number>
  void number(std::string_view key, Number& field, Range range) {
    const Json* value = take(key);
    if (value == nullptr) return;
    const bool right =
        std::is_floating_point_v<Number> ? value->is_number() : value->is_number_integer();
    const double as_double = right ? value->get<double>() : 0;
    if (!right || !std::isfinite(as_double) || as_double < range.least || as_double > range.most) {
      return refuse(key,
                    fmt::format("{} from {} to {}",
                                std::is_floating_point_v<Number> ? "a number" : "a whole number",
                                range.least, range.most));
    }
    field = value->get<Number>();
  }
  void seed(std::string_view key, uint64_t& field) {
    const Json* value = take(key);
    if (value == nullptr) return;
    if (!value->is_number_unsigned()) return refuse(key, "a whole number of 64 bits, 0 or more");
    field = value->get<uint64_t>();
  }
  void flag(std::string_view key, bool& field) {
    const Json* value = take(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return refuse(key, "true or false");
    field = value->get<bool>();
  }
  void text(std::string_view key, std::string& field) {
    const Json* value = take(key);
    if (value == nullptr) return;
    if (!value->is_string() ||
        value->get_ref<const std::string&>().size() > limits::kPathBytesMax ||
        value->get_ref<const std::string&>().find('\0') != std::string::npos) {
      return refuse(key, fmt::format("a path of at most {} bytes", limits::kPathBytesMax));
    }
    field = value->get<std::string>();
  }
  void list(std::string_view key, std::vector<int>& field, Range range, size_t fewest,
            size_t most) {
    const Json* value = take(key);
    if (value == nullptr) return;
    const auto fits = [&](const Json& item) {
      return item.is_number_integer() && item.get<double>() >= range.least &&
             item.get<double>() <= range.most;
    };
    if (!value->is_array() || value->size() < fewest || value->size() > most ||
        !std::all_of(value->begin(), value->end(), fits)) {
      return refuse(key, fmt::format("a list of {} to {} whole numbers from {} to {}", fewest, most,
                                     range.least, range.most));
    }
    field = value->get<std::vector<int>>();
  }
  template <typename Enum, size_t n>
  void word(std::string_view key, Enum& field, const std::array<Word<Enum>, n>& words) {
    const Json* value = take(key);
    if (value == nullptr) return;
    std::string expected;
    for (const Word<Enum>& each : words) {
      if (value->is_string() && value->get_ref<const std::string&>() == each.word) {
        field = each.value;
        return;
      }
      expected += fmt::format("{}{}", expected.empty() ? "" : ", ", each.word);
    }
    refuse(key, "one of " + expected);
  }
  template <typename Fields>
  void part(std::string_view key, const Fields& fields) {
    const Json* value = take(key);
    if (value == nullptr) return;
    if (!value->is_object()) return refuse(key, "an object");
    EngineReader inner(*value, at(key));
    fields(inner);
    inner.end();
    if (problem_.empty()) problem_ = inner.problem_;
  }
  void model(ModelSpec& field);

  // To be called last: says which key nobody asked for.
  void end() {
    if (!problem_.empty()) return;
    for (const auto& [key, value] : json_.items()) {
      if (std::find(taken_.begin(), taken_.end(), key) != taken_.end()) continue;
      problem_ = fmt::format("{}: unknown key", at(in_quotes(key)));
      return;
    }
  }
  const std::string& problem() const { return problem_; }

 private:
  const Json* take(std::string_view key) {
    taken_.emplace_back(key);
    const auto found = json_.find(std::string(key));
    return found == json_.end() ? nullptr : &*found;
  }
  std::string at(std::string_view key) const {
    return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  }
  void refuse(std::string_view key, std::string_view expected) {
    if (problem_.empty()) problem_ = fmt::format("{}: expected {}", at(key), expected);
  }

  const Json& json_;
  std::string path_;
  std::vector<std::string> taken_;
  std::string problem_;
};

template <typename Io>
void fields_of(Io& io, MlpSpec& model) {
  io.list("hidden", model.hidden, limits::kWidth, 0, limits::kLayersMax);
}

template <typename Io>
void fields_of(Io& io, LenetSpec& model) {
  io.number("kernel", model.kernel, limits::kKernel);
  io.list("channels", model.channels, limits::kChannels, 2, 2);
  io.list("hidden", model.hidden, limits::kWidth, 0, limits::kLayersMax);
  io.flag("padding", model.padding);
  io.list("pool", model.pool, limits::kPool, 2, 2);
}

template <typename Io>
void fields_of(Io& io, GptSpec& model) {
  io.number("layers", model.layers, limits::kGptLayers);
  io.number("heads", model.heads, limits::kGptHeads);
  io.number("width", model.width, limits::kGptWidth);
  io.number("context", model.context, limits::kGptContext);
  io.number("vocabulary", model.vocabulary, limits::kGptVocabulary);
}

template <typename Io>
void fields_of(Io& io, StrategySpec& strategy) {
  io.word("kind", strategy.kind, kStrategies);
  io.number("devices", strategy.devices, limits::kDevices);
  io.word("mode", strategy.mode, kModes);
  io.number("staleness", strategy.staleness, limits::kStaleness);
  io.number("apply-every", strategy.apply_every, limits::kApplyEvery);
  io.number("backup", strategy.backup, limits::kBackup);
  io.word("data-path", strategy.data_path, kDataPaths);
  io.number("micro-batches", strategy.micro_batches, limits::kMicroBatches);
  io.number("mesh-data", strategy.mesh_data, limits::kMesh);
  io.number("mesh-model", strategy.mesh_model, limits::kMesh);
  io.number("bucket-mb", strategy.bucket_mb, limits::kBucketMb);
}

template <typename Io>
void fields_of(Io& io, OptimizerSpec& optimizer) {
  io.word("kind", optimizer.kind, kOptimizers);
  io.number("learning-rate", optimizer.learning_rate, limits::kLearningRate);
  io.number("momentum", optimizer.momentum, limits::kMomentum);
  io.flag("nesterov", optimizer.nesterov);
  io.number("beta1", optimizer.beta1, limits::kBeta);
  io.number("beta2", optimizer.beta2, limits::kBeta);
  io.number("epsilon", optimizer.epsilon, limits::kEpsilon);
  io.number("weight-decay", optimizer.weight_decay, limits::kWeightDecay);
}

template <typename Io>
void fields_of(Io& io, ScheduleSpec& schedule) {
  io.word("kind", schedule.kind, kSchedules);
  io.number("warm-up-epochs", schedule.warm_up_epochs, limits::kEpochsOrNone);
  io.number("warm-up-steps", schedule.warm_up_steps, limits::kStepsOrNone);
  io.number("every-epochs", schedule.every_epochs, limits::kEpochs);
  io.number("every-steps", schedule.every_steps, limits::kStepsOrNone);
  io.number("factor", schedule.factor, limits::kFraction);
  io.number("final", schedule.final_fraction, limits::kFraction);
  io.number("scale-with-batch", schedule.scale_with_batch, limits::kBatchOrNone);
}

template <typename Io>
void fields_of(Io& io, EngineSpec& spec) {
  io.model(spec.model);
  io.part("data", [&](auto& inner) {
    inner.text("train", spec.train_data);
    inner.text("test", spec.test_data);
  });
  io.part("strategy", [&](auto& inner) { fields_of(inner, spec.strategy); });
  io.number("batch", spec.batch, limits::kBatch);
  io.word("scaling", spec.weak_scaling, kScalings);
  io.number("micro-batch", spec.micro_batch, limits::kBatchOrNone);
  io.word("precision", spec.precision, kPrecisions);
  io.number("epochs", spec.epochs, limits::kEpochs);
  io.number("steps", spec.steps, limits::kStepsOrNone);
  io.number("epoch-samples", spec.epoch_samples, limits::kStepsOrNone);
  io.part("optimizer", [&](auto& inner) { fields_of(inner, spec.optimizer); });
  io.part("schedule", [&](auto& inner) { fields_of(inner, spec.schedule); });
  io.number("clip", spec.clip_norm, limits::kClip);
  io.part("checkpoint", [&](auto& inner) {
    inner.number("steps", spec.checkpoint_steps, limits::kStepsOrNone);
    inner.number("epochs", spec.checkpoint_epochs, limits::kEpochs);
    inner.number("keep", spec.checkpoint_keep, limits::kKeep);
    inner.text("from", spec.checkpoint_from);
  });
  io.seed("seed", spec.seed);
  io.number("threads", spec.threads, limits::kThreads);
  io.number("deadline", spec.deadline_seconds, limits::kDeadlineSeconds);
}

void JsonWriter::model(ModelSpec& field) {
  const char* name = std::holds_alternative<MlpSpec>(field)     ? "mlp"
                     : std::holds_alternative<LenetSpec>(field) ? "lenet"
                                                                : "gpt";
  part("model", [&](JsonWriter& outer) {
    std::visit([&](auto& one) { outer.part(name, [&](JsonWriter& inner) { fields_of(inner, one); }); },
               field);
  });
}

void EngineReader::model(ModelSpec& field) {
  const Json* value = take("model");
  if (value == nullptr) return;
  if (!value->is_object() || value->size() != 1) {
    return refuse("model", "an object with one of mlp, lenet, gpt");
  }
  const std::string& name = value->begin().key();
  if (name == "lenet") field = LenetSpec{};
  if (name == "gpt") field = GptSpec{};
  if (name == "mlp") field = MlpSpec{};
  if (name != "mlp" && name != "lenet" && name != "gpt") {
    return refuse("model", "an object with one of mlp, lenet, gpt");
  }
  part("model", [&](EngineReader& outer) {
    std::visit([&](auto& one) { outer.part(name, [&](EngineReader& inner) { fields_of(inner, one); }); },
               field);
  });
}

Error unusable(std::string_view problem) {
  return {Code::InvalidArgument, fmt::format("{}: {}", kEngineVariable, problem), ""};
}

}  // namespace

std::string to_json(const EngineSpec& spec) {
  EngineSpec copy = spec;  // fields_of() takes what it may read into
  JsonWriter writer;
  fields_of(writer, copy);
  return writer.json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

EngineSpec without_paths(EngineSpec spec) {
  spec.train_data = spec.test_data = spec.checkpoint_from = "";
  return spec;
}

Result<EngineSpec> engine_spec_from_json(std::string_view text) {
  if (text.size() > kJsonBytesMax) {
    return unusable(fmt::format("this is more than {} bytes", kJsonBytesMax));
  }
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return unusable("this is no JSON");
  if (!json.is_object()) return unusable("expected an object");
  EngineSpec spec;
  EngineReader reader(json, "");
  fields_of(reader, spec);
  reader.end();
  if (!reader.problem().empty()) return unusable(reader.problem());
  if (const auto problems = check_engine(spec); !problems.empty()) {
    return unusable(fmt::format("{}: {}", problems.front().key, problems.front().text));
  }
  return spec;
}

}  // namespace dtrain
