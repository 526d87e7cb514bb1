// Copies of a model on several hosts, whose gradients travel in buckets while backward goes on.
#include "engine/strategies/all_reduce.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "../models_beside.h"
#include "engine/data/digits.h"
#include "trained_on_hosts.h"

namespace dtrain::engine {
namespace {

using Json = nlohmann::json;

TEST_CASE("copies on several hosts come to the bits of one process, in whatever buckets their gradients travel") {
  const test::TemporaryFolder files;
  write_text(files.path());
  REQUIRE(generate_digits(files.path(), {.train = 400, .test = 50, .seed = 1}).ok());
  const Json text = {{"train", files / "train.txt"}}, images = {{"train", files / "train"}};
  struct Case {
    Json model, data;
  };
  for (const Case& one : std::vector<Case>{
           {{{"mlp", {{"hidden", {300, 200, 200}}}}}, images},
           {{{"lenet", {{"channels", {4, 6}}, {"hidden", {400, 400}}}}}, images},
           {{{"lenet", {{"kernel", 3}, {"channels", {16, 17}}, {"hidden", {300}}}}}, images},
           {{{"gpt", {{"layers", 3}, {"heads", 2}, {"width", 96}, {"context", 16}}}}, text}}) {
    CAPTURE(one.model.dump());
    for (const double clip : {0.0, 1.0}) {
      CAPTURE(clip);
      const auto spec = [&](double bucket_mb) {
        return Json{{"model", one.model},
                    {"data", one.data},
                    {"batch", 16},
                    {"steps", 4},
                    {"clip", clip},
                    {"strategy", {{"kind", "multi-worker-mirrored"}, {"bucket-mb", bucket_mb}}},
                    {"optimizer", {{"kind", "adamw"}, {"learning-rate", 0.003}}},
                    {"deadline", kPatience_seconds}};
      };
      const test::TemporaryFolder alone;
      const std::string expected = trained(spec(0), {{1}}, alone);
      REQUIRE(!expected.empty());
      for (const double bucket_mb : {0.001, 0.0}) {
        CAPTURE(bucket_mb);
        for (const Cast& cast : {Cast{{1, 1}, {0, 1}}, Cast{{2, 1}, {0, 1}}, Cast{{1, 1, 1}, {0, 1, 1}}}) {
          CAPTURE(cast.threads.size());
          const test::TemporaryFolder folder;
          CHECK(trained(spec(bucket_mb), cast, folder) == expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace dtrain::engine
