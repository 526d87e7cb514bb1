#include "schema/engine_keys.h"

#include <charconv>

#include "schema/decimal.h"
#include "schema/engine_limits.h"
#include "schema/result.h"
#include "schema/shapes.h"

namespace dtrain {

namespace {

using namespace shapes;
namespace limits = engine_limits;
using limits::Range;

const TextFormat kSpanText{
    "a span such as 500 steps or 0.5 epochs",
    "^([0-9]{1,12} *steps?|[0-9]{1,6}(\\.[0-9]{1,9})? *epochs?)$",
    [](std::string_view text) { return parse_training_span(text).has_value(); }};

Shape whole(Range range) {
  return integer(range.least, range.most);
}
Shape real(Range range) {
  return number(range.least, range.most);
}
Shape widths() {
  return either(
      "a width, or a list of widths",
      {whole(limits::kWidth), list("a list of widths", whole(limits::kWidth), limits::kLayersMax, 0)});
}
// A map whose keys all have defaults, so that the name alone will do: `lenet:`.
Shape options(std::string_view expected, std::vector<Key> keys) {
  return either(expected, {nothing(), map(expected, std::move(keys))});
}

Shape model() {
  const auto mlp = options("a map of hidden",
                           {{"hidden", widths(), "Widths of its hidden layers. Left out: 128."}});
  const auto lenet =
      options("a map of kernel, channels, hidden, padding and pool",
              {{"kernel", whole(limits::kKernel), "Width of its convolutions. Left out: 5."},
               {"channels", list("a list of two numbers of channels", whole(limits::kChannels), 2, 2),
                "Of its two convolutions. Left out: 6 and 16."},
               {"hidden", widths(), "Widths of the layers after them. Left out: 120 and 84."},
               {"padding", boolean(), "Zeros around the image, so that the first keeps its size. Left out: true."},
               {"pool", list("a list of two sizes", whole(limits::kPool), 2, 2),
                "After each the largest of 2 by 2 values, or with 1 all of them. Left out: 2 and 2."}});
  const auto gpt =
      options("a map of layers, heads, width, context and vocabulary",
              {{"layers", whole(limits::kGptLayers), "Blocks. Left out: 4."},
               {"heads", whole(limits::kGptHeads),
                "Heads of attention, which divide the width. Left out: 4."},
               {"width", whole(limits::kGptWidth), "Of the embedding. Left out: 128."},
               {"context", whole(limits::kGptContext), "Tokens that it sees. Left out: 128."},
               {"vocabulary", whole(limits::kGptVocabulary),
                "Left out: as the data has it, 256 for bytes."}});
  const std::string_view expected = "mlp, lenet or gpt, or a map of one of them";
  return either(expected,
                {word({"mlp", "lenet", "gpt"}),
                 map(expected, {{"mlp", mlp, "Fully connected layers."},
                                {"lenet", lenet, "Two convolutions, then fully connected layers."},
                                {"gpt", gpt, "The architecture of GPT-2."}})});
}

Shape data() {
  return map(
      "a map of train and test",
      {{"train", text(kSomeText), "A path within the project, or of a data set below /data.", true},
       {"test", text(kSomeText),
        "The same, for what is tested after each epoch. Left out: nothing."}});
}

Shape parameter_server() {
  return options("a map of mode, staleness, apply-every, backup and data-path",
                 {{"mode", word({"async", "ssp", "sync"}),
                   "How far workers may drift apart. Left out: async."},
                  {"staleness", whole(limits::kStaleness),
                   "ssp: pushes that the fastest worker may be ahead of the slowest. Left out: 8."},
                  {"apply-every", whole(limits::kApplyEvery),
                   "Parts of batches that a worker sums before it pushes. Left out: 1."},
                  {"backup", whole(limits::kBackup),
                   "sync: the slowest so many are not waited for. Left out: 0."},
                  {"data-path", word({"raw", "grpc"}), "How tensors travel. Left out: raw."}});
}

Shape strategy() {
  const std::string_view expected =
      "single, mirrored, multi-worker-mirrored, allreduce, central-storage, parameter-server, "
      "pipeline, tensor, or a map of one of them or of mesh";
  const auto plain = options("nothing", {});
  const Key count{"devices", whole(limits::kDevices), "How many; 0: one for each CPU. Left out: 0."};
  const Key bucket{"bucket-mb", real(limits::kBucketMb),
                   "Megabytes of gradients that GPUs or hosts sum at once, while backward goes on; 0: "
                   "25 for GPUs, 1 for hosts. Left out: 0."};
  const auto devices = options("a map of devices", {count});
  const auto mirrored = options("a map of devices and bucket-mb", {count, bucket});
  const auto buckets = options("a map of bucket-mb", {bucket});
  const auto pipeline = options("a map of micro-batches",
                                {{"micro-batches", whole(limits::kMicroBatches),
                                  "Parts of the batch that are under way at once. Left out: 4."}});
  const auto mesh =
      map("a map of data, model and bucket-mb",
          {{"data", whole(limits::kMesh), "Groups that split the batch.", true},
           {"model", whole(limits::kMesh), "Workers of each that split the layers.", true},
           bucket});
  return either(
      expected,
      {word({"single", "mirrored", "multi-worker-mirrored", "allreduce", "central-storage",
             "parameter-server", "pipeline", "tensor"}),
       map(expected,
           {{"single", plain, "One process."},
            {"mirrored", mirrored, "One process, several devices with all parameters each."},
            {"multi-worker-mirrored", buckets,
             "Workers with all parameters each; gradients are summed."},
            {"allreduce", buckets, "The same as multi-worker-mirrored."},
            {"central-storage", devices, "One process, parameters in one place for its devices."},
            {"parameter-server", parameter_server(), "Parameters lie with the ps."},
            {"pipeline", pipeline, "Layers are spread over the workers."},
            {"tensor", plain, "Each layer is spread over the workers."},
            {"mesh", mesh, "Groups of workers split the layers, the groups split the batch."}})});
}

Shape optimizer() {
  const Key rate{"learning-rate", real(limits::kLearningRate),
                 "Left out: 0.1 for sgd, else 0.001."};
  const Key decay{"weight-decay", real(limits::kWeightDecay), "Left out: 0, for adamw 0.01."};
  const auto adam = options("a map of learning-rate, beta1, beta2, epsilon and weight-decay",
                            {rate,
                             {"beta1", real(limits::kBeta), "Left out: 0.9."},
                             {"beta2", real(limits::kBeta), "Left out: 0.999."},
                             {"epsilon", real(limits::kEpsilon), "Left out: 1e-8."},
                             decay});
  const auto sgd =
      options("a map of learning-rate, momentum, nesterov and weight-decay",
              {rate,
               {"momentum", real(limits::kMomentum), "Left out: 0."},
               {"nesterov", boolean(), "Nesterov's kind of momentum. Left out: false."},
               decay});
  const std::string_view expected = "sgd, adam or adamw, or a map of one of them";
  return either(expected,
                {word({"sgd", "adam", "adamw"}),
                 map(expected, {{"sgd", sgd, "Gradient descent."},
                                {"adam", adam, "Adam; weight decay is added to the gradient."},
                                {"adamw", adam, "Adam with decoupled weight decay."}})});
}

Shape schedule() {
  const Key warm_up{"warm-up", text(kSpanText),
                    "The learning rate rises from 0. Left out: 0 epochs."};
  const Key scale{"scale-with-batch", whole(limits::kBatch),
                  "The learning rate is for this batch and grows with the real one."};
  const Key last{"final", real(limits::kFraction),
                 "Part of the learning rate that is left at the end. Left out: 0."};
  const auto constant = options("a map of warm-up and scale-with-batch", {warm_up, scale});
  const auto falling =
      options("a map of final, warm-up and scale-with-batch", {last, warm_up, scale});
  const auto step = options("a map of every, factor, warm-up and scale-with-batch",
                            {{"every", text(kSpanText), "When it falls. Left out: 1 epoch."},
                             {"factor", real(limits::kFraction), "To which part. Left out: 0.1."},
                             warm_up,
                             scale});
  const std::string_view expected = "constant, step, cosine or linear, or a map of one of them";
  return either(expected,
                {word({"constant", "step", "cosine", "linear"}),
                 map(expected, {{"constant", constant, "The same learning rate throughout."},
                                {"step", step, "Falls by a factor again and again."},
                                {"cosine", falling, "Falls along half a cosine."},
                                {"linear", falling, "Falls along a line."}})});
}

}  // namespace

std::optional<TrainingSpan> parse_training_span(std::string_view text) {
  TrainingSpan span;
  size_t digits = 0;
  while (digits < text.size() && is_digit(text[digits])) ++digits;
  size_t end = digits;
  if (end < text.size() && text[end] == '.') {
    size_t decimals = 0;
    while (end + 1 + decimals < text.size() && is_digit(text[end + 1 + decimals])) ++decimals;
    if (decimals == 0 || decimals > 9) return std::nullopt;
    end += 1 + decimals;
  }
  std::string_view unit = text.substr(end);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  span.epochs = unit == "epoch" || unit == "epochs";
  if (!span.epochs && unit != "step" && unit != "steps") return std::nullopt;
  if (digits == 0 || digits > (span.epochs ? 6u : 12u)) return std::nullopt;
  if (!span.epochs && end != digits) return std::nullopt;
  std::from_chars(text.data(), text.data() + end, span.count);
  return span;
}

Shape engine_section(Shape distributed) {
  return map(
      "a map with model and data",
      {{"model", model(), "What is trained.", true},
       {"data", data(), "What it is trained with.", true},
       {"strategy", strategy(),
        "How the work is spread. Left out: parameter-server with ps, multi-worker-mirrored with "
        "several workers, mirrored with several GPUs of one, else single."},
       {"batch", whole(limits::kBatch), "Samples of a step. Left out: 64."},
       {"scaling", word({"strong", "weak"}),
        "weak: the batch is that of each worker. Left out: strong."},
       {"micro-batch", whole(limits::kBatch),
        "Samples worked on at once. Left out: all of a thread's."},
       {"epochs", real(limits::kEpochs), "Left out: 1."},
       {"steps", whole(limits::kSteps), "Instead of epochs."},
       {"epoch",
        map("a map of samples",
            {{"samples", whole(limits::kSteps), "Left out: the data set.", true}}),
        "What counts as an epoch."},
       {"optimizer", optimizer(), "Left out: sgd."},
       {"schedule", schedule(), "How the learning rate changes. Left out: constant."},
       {"clip", real(limits::kClip), "The largest norm of a gradient; 0: any. Left out: 0."},
       {"checkpoint",
        map("a map of every, keep and from",
            {{"every", text(kSpanText), "Left out: 1 epoch."},
             {"keep", whole(limits::kKeep), "How many of them stay. Left out: 3."},
             {"from", text(kSomeText),
              "What training starts from: an OUTPUT_DIR, a checkpoint or a model.safetensors."}}),
        "What a restart goes on from."},
       {"precision", word({"auto", "fp32", "tf32", "bf16"}),
        "What GPUs compute with. Left out: auto, which is bf16 on a GPU."},
       {"seed", integer(0, 9'007'199'254'740'992),
        "Of weights and of the order of samples. Left out: 42."},
       {"threads", whole(limits::kThreads), "Of each process; 0: its cpus. Left out: 0."},
       {"deadline",
        either("a duration such as 30s, 1h30m, 500ms or 10 (seconds)",
               {real(limits::kDeadlineSeconds), text(kDurationText)}),
        "How long processes wait for each other. Left out: 30s."},
       {"tensorboard", boolean(), "A TensorBoard beside the experiment. Left out: false."},
       {"distributed", std::move(distributed), "The roles of a distributed experiment."}});
}

const Shape& engine_shape() {
  static const Shape& shape = []() -> const Shape& {
    const Key* found = nullptr;
    for (const Key& key : spec_shape().keys) {
      if (key.name != "train") continue;
      for (const Key& inner : key.shape.keys) {
        if (inner.name == "engine") found = &inner;
      }
    }
    INVARIANT(found != nullptr, "the table has the engine");
    return found->shape;
  }();
  return shape;
}

}  // namespace dtrain
