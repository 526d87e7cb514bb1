#include "schema/engine_spec.h"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

using namespace dtrain;

namespace {

// Each field with another value than its default.
EngineSpec unusual() {
  EngineSpec spec;
  spec.model = GptSpec{6, 3, 48, 256, 50'257};
  spec.train_data = "data/\"train\" \xC3\xA9";
  spec.test_data = "/data/mnist/test";
  spec.strategy = {Strategy::ParameterServer, 3, ServerMode::Ssp, 5, 2, 1, DataPath::Grpc, 7, 2, 4, 1.5};
  spec.batch = 96;
  spec.weak_scaling = true;
  spec.micro_batch = 16;
  spec.precision = Precision::Tf32;
  spec.epochs = 0.1;
  spec.steps = 123'456'789'012;
  spec.epoch_samples = 1000;
  spec.optimizer = {Optimizer::AdamW, 1e-3, 0.9, true, 0.8, 0.95, 1e-5, 0.01};
  spec.schedule = {Schedule::Cosine, 0.5, 100, 2.5, 40, 0.3, 0.1, 256};
  spec.clip_norm = 1.0 / 3;
  spec.checkpoint_steps = 500;
  spec.checkpoint_epochs = 0.25;
  spec.checkpoint_keep = 7;
  spec.checkpoint_from = "/data/start/checkpoints";
  spec.seed = std::numeric_limits<uint64_t>::max();
  spec.threads = 2;
  spec.deadline_seconds = 2.5;
  return spec;
}

std::string json_refusal(std::string_view text) {
  const auto spec = engine_spec_from_json(text);
  if (spec.ok()) return "accepted";
  CHECK(spec.error().code == Code::InvalidArgument);
  return spec.error().message;
}

void check_round_trip(const EngineSpec& spec) {
  const std::string text = to_json(spec);
  CAPTURE(text);
  const auto read = engine_spec_from_json(text);
  if (!read.ok()) FAIL(read.error().message);
  CHECK(*read == spec);
}

}  // namespace

TEST_CASE("every field comes back from JSON as it was") {
  check_round_trip({});
  check_round_trip(unusual());
  EngineSpec lenet = unusual();
  lenet.model = LenetSpec{3, {32, 64}, {128}, false, {1, 2}};
  check_round_trip(lenet);
  EngineSpec mlp = unusual();
  mlp.model = MlpSpec{{}};
  check_round_trip(mlp);
}

TEST_CASE("no field is left out of the JSON") {
  // A field that was forgotten would be the default's in both texts: every value must differ.
  const auto usual = nlohmann::json::parse(to_json(EngineSpec())).flatten();
  const auto changed = nlohmann::json::parse(to_json(unusual())).flatten();
  size_t same = 0;
  for (const auto& [path, value] : usual.items()) {
    CAPTURE(path);
    if (!path.starts_with("/model/")) CHECK(changed.at(path) != value);
    same += changed.contains(path) ? 1 : 0;
  }
  CHECK(same == 44);  // fields outside of the model
}

TEST_CASE("what is left out has its default") {
  const auto spec =
      engine_spec_from_json(R"({"model": {"lenet": {}}, "strategy": {"devices": 2}})");
  REQUIRE(spec.ok());
  EngineSpec expected;
  expected.model = LenetSpec{};
  expected.strategy.devices = 2;
  CHECK(*spec == expected);
  REQUIRE(engine_spec_from_json("{}").ok());
}

TEST_CASE("what is wrong is named by its key") {
  CHECK(json_refusal("") == "DTRAIN_ENGINE: this is no JSON");
  CHECK(json_refusal("{\"batch\": 1") == "DTRAIN_ENGINE: this is no JSON");
  CHECK(json_refusal("[]") == "DTRAIN_ENGINE: expected an object");
  CHECK(json_refusal("null") == "DTRAIN_ENGINE: expected an object");
  CHECK(json_refusal(std::string((1 << 20) + 1, ' ')) ==
        "DTRAIN_ENGINE: this is more than 1048576 bytes");
  CHECK(json_refusal(std::string(500'000, '[')) == "DTRAIN_ENGINE: this is no JSON");
  CHECK(json_refusal(R"({"batches": 1})") == "DTRAIN_ENGINE: 'batches': unknown key");
  CHECK(json_refusal(R"({"strategy": {"kindred": 1}})") ==
        "DTRAIN_ENGINE: strategy.'kindred': unknown key");
  CHECK(json_refusal(R"({"batch": 0})") ==
        "DTRAIN_ENGINE: batch: expected a whole number from 1 to 16777216");
  for (const char* value : {"-1", "1.5", "16777217", "99999999999999999999", "1e400", "\"8\"",
                            "null", "[8]", "{}", "true", "-9223372036854775808"}) {
    CAPTURE(value);
    CHECK(json_refusal(fmt::format("{{\"batch\": {}}}", value)) != "accepted");
    CHECK(json_refusal(fmt::format("{{\"strategy\": {{\"kind\": {}}}}}", value)) != "accepted");
    CHECK(json_refusal(fmt::format("{{\"data\": {{\"train\": {}}}}}", value)) !=
          (std::strcmp(value, "\"8\"") == 0 ? "" : "accepted"));
    CHECK(json_refusal(fmt::format("{{\"model\": {}}}", value)) != "accepted");
    CHECK(json_refusal(fmt::format("{{\"model\": {{\"mlp\": {{\"hidden\": [{}]}}}}}}", value)) !=
          "accepted");
  }
  CHECK(json_refusal(R"({"seed": -1})").find("seed") != std::string::npos);
  CHECK(json_refusal(R"({"seed": 18446744073709551616})").find("seed") != std::string::npos);
  CHECK(json_refusal(R"({"model": {"mlp": {}, "gpt": {}}})").find("one of mlp") != std::string::npos);
  CHECK(json_refusal(R"({"model": {"resnet": {}}})").find("one of mlp") != std::string::npos);
  CHECK(json_refusal(R"({"model": {"lenet": {"channels": [6]}}})").find("model.lenet.channels") !=
        std::string::npos);
  CHECK(json_refusal(R"({"strategy": {"kind": "ring"}})") ==
        "DTRAIN_ENGINE: strategy.kind: expected one of single, mirrored, multi-worker-mirrored, "
        "central-storage, parameter-server, pipeline, tensor, mesh");
  CHECK(json_refusal(R"({"optimizer": {"nesterov": 1}})") ==
        "DTRAIN_ENGINE: optimizer.nesterov: expected true or false");
  CHECK(json_refusal(R"({"data": {"train": "a\u0000b"}})").find("data.train") != std::string::npos);
  CHECK(json_refusal(R"({"model": {"gpt": {"heads": 3, "width": 128}}})").find("model.gpt.heads") !=
        std::string::npos);
}

TEST_CASE("whatever bytes come, there is an answer") {
  std::mt19937 random(20240607);
  const std::string good = to_json(unusual());
  size_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int change = 0; change < 3; ++change) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.erase(at, random() % 9);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 9));
          break;
      }
    }
    const auto spec = engine_spec_from_json(text);
    if (!spec.ok()) ++refused;
    if (spec.ok()) check_round_trip(*spec);
  }
  CHECK(refused > 1000);
}
