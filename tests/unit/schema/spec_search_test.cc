#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>

#include "schema/expand.h"
#include "schema/spec.h"
#include "schema/variation.h"

namespace dtrain {
namespace {

Spec read(const std::string& train, ParseOptions options = {}) {
  const auto spec = parse_spec("project: p\ntrain: {run: x, " + train + "}\n", options);
  REQUIRE_MESSAGE(spec.ok(), (spec.ok() ? "" : spec.error().message));
  CHECK(*parse_spec(to_yaml(*spec), {}) == *spec);
  return *spec;
}

std::string refused(const std::string& train) {
  const auto spec = parse_spec("project: p\ntrain: {run: x, " + train + "}\n", {});
  return spec.ok() ? "" : spec.error().message;
}

// "a=1 b=2", a line each.
std::string members(const Spec& spec) {
  std::string text;
  for (uint32_t member = 1; member <= spec.member_count(); ++member) {
    std::string line;
    for (const auto& [name, value] : member_parameters(spec, member)) line += (line.empty() ? "" : " ") + name + "=" + value;
    text += line + "\n";
  }
  return text;
}

TEST_CASE("what is drawn are members like others, and the YAML that travels has their values") {
  const std::string train = "parameters: {rate: {log-uniform: {min: 1e-4, max: 0.1}}, layers: [2, 4, 8], epochs: 10}, search: {samples: 12}";
  const Spec spec = read(train);
  CHECK(spec.member_count() == 12);
  CHECK(spec.combine == Combine::Zip);
  std::set<std::string> rates;
  std::map<std::string, int> layers;
  for (uint32_t member = 1; member <= 12; ++member) {
    const Spec one = member_spec(spec, member);
    CHECK_FALSE(one.is_set());
    const auto values = member_parameters(spec, member);
    CHECK(values.at("epochs") == "10");
    rates.insert(values.at("rate"));
    ++layers[values.at("layers")];
  }
  CHECK(rates.size() == 12);
  CHECK(layers == std::map<std::string, int>{{"2", 4}, {"4", 4}, {"8", 4}});
  CHECK(to_yaml(spec).find("log-uniform") == std::string::npos);
  CHECK(read(train).parameters == spec.parameters);
  CHECK(read(train + ", concurrency: 3").parameters == spec.parameters);
  ParseOptions other;
  other.set = {{"train.search.seed", "5"}};
  CHECK(read(train, other).parameters != spec.parameters);
}

TEST_CASE("of lists some combinations are drawn, and a value that is given is nobody's to draw") {
  const std::string train = "parameters: {a: {range: {min: 1, max: 1000}}, b: {range: {min: 1, max: 2000}}}, search: {samples: 7}";
  CHECK(read(train).member_count() == 7);
  ParseOptions given;
  given.parameters = {{"a", "3"}};
  const Spec fixed = read(train, given);
  CHECK(fixed.member_count() == 7);
  for (uint32_t member = 1; member <= 7; ++member) CHECK(member_parameters(fixed, member).at("a") == "3");
  given.parameters.emplace_back("b", "4");
  CHECK_FALSE(read(train, given).is_set());
  CHECK(read("parameters: {a: [1, 2], b: [1, 2]}, search: {samples: 9}").member_count() == 4);
}

TEST_CASE("lists that go together") {
  const Spec spec = read("parameters: {a: [1, 2, 3], b: [x, y, z], c: 7}, combine: zip");
  CHECK(members(spec) == "a=1 b=x c=7\na=2 b=y c=7\na=3 b=z c=7\n");
  CHECK(refused("parameters: {a: [1, 2, 3], b: [x, y]}, combine: zip") ==
        "dtrain.yml:2:47: train.parameters.b: lists that go together are as long as each other, and 'a' has 3 values, 'b' 2");
  CHECK(members(read("parameters: {a: [1, 2], b: [3, 4]}, combine: product")) == "a=1 b=3\na=1 b=4\na=2 b=3\na=2 b=4\n");
}

TEST_CASE("lists where one value belongs go together, too") {
  const Spec spec = read("framework: tensorflow, tensorflow: {distributed: {worker: [1, 2, 4]}}, parameters: {rate: [0.1, 0.2, 0.4]}, "
                         "resources: {cpus: [1, 2, 3]}, combine: zip");
  CHECK(members(spec) == "cpus=1 rate=0.1 worker=1\ncpus=2 rate=0.2 worker=2\ncpus=3 rate=0.4 worker=4\n");
  CHECK(shapes_of(spec).size() == 4);
  CHECK(member_spec(spec, 3).most_workers() == 4);
  CHECK(member_spec(spec, 3).decider().resources.cpus == 3);
  const std::string drawn = "parameters: {rate: {uniform: {min: 0, max: 1}}}, resources: {cpus: [1, 2]}, search: {samples: 4}";
  CHECK(refused(drawn).find("train.search.samples: it draws from parameters, and train.resources.cpus is a list of something else") != std::string::npos);
  ParseOptions one;
  one.parameters = {{"cpus", "2"}};
  CHECK(read(drawn, one).member_count() == 4);
}

TEST_CASE("of the engine only the combinations that there are have to make sense") {
  const std::string engine = "project: p\ntrain: {framework: engine, parameters: {size: [64, 2]}, combine: zip, engine: {model: mlp, "
                             "data: {train: d}, batch: '{{ size }}', strategy: allreduce, distributed: {worker: [4, 2]}}}\n";
  const auto spec = parse_spec(engine, {});
  REQUIRE_MESSAGE(spec.ok(), (spec.ok() ? "" : spec.error().message));
  CHECK(*parse_spec(to_yaml(*spec), {}) == *spec);
  ParseOptions product;
  product.set = {{"train.combine", "product"}};
  CHECK_FALSE(parse_spec(engine, product).ok());   // a batch of 2 for 4 workers
}

TEST_CASE("what a search goes by") {
  const Search search = read("metrics: [loss, epoch, acc], parameters: {a: [1, 2]}, "
                             "search: {metric: acc, goal: max, stop-early: {after: 3, factor: 4, by: epoch}, max-failed: 0}").search;
  CHECK(search.metric == "acc");
  CHECK(search.highest_is_best);
  REQUIRE(search.stop_early);
  CHECK(*search.stop_early == StopEarly{3, 4, "epoch"});
  CHECK(search.stop_early->rung(0) == 3);
  CHECK(search.stop_early->rung(2) == 48);
  CHECK(search.stop_early->rung(200) == UINT64_MAX);
  CHECK(search.max_failed == 0);
  CHECK(read("metrics: [loss], search: {metric: loss, goal: min, stop-early: {after: 3}}").search.stop_early->factor == 3);
  CHECK(read("search: {}").search == Search());
}

TEST_CASE("what makes no search") {
  const auto says = [](const std::string& train, const std::string& what) {
    const std::string message = refused(train);
    CHECK_MESSAGE(message.find(what) != std::string::npos, message);
  };
  says("parameters: {a: {uniform: {min: 0, max: 1}}}", "train.parameters.a.uniform: say how many members are drawn from it: search: {samples: 20}");
  says("parameters: {a: {uniform: {min: 2, max: 1}}}, search: {samples: 2}", "min 2 is more than max 1");
  says("parameters: {a: {log-uniform: {min: 0, max: 1}}}, search: {samples: 2}", "train.parameters.a.log-uniform.min: got 0, expected more than 0");
  says("parameters: {a: {uniform: {min: 0, max: 1, step: 0}}}, search: {samples: 2}", "got 0, expected more than 0");
  says("parameters: {a: {uniform: {min: 0, max: 1}, range: {min: 1, max: 2}}}, search: {samples: 2}", "expected one of range, uniform and log-uniform");
  says("parameters: {a: {}}", "expected one of range, uniform and log-uniform");
  says("parameters: {a: [1, 2]}, combine: zip, search: {samples: 2}", "train.search.samples: with 'combine' lists are members as they stand");
  says("search: {samples: 2}", "train.search.samples: there is nothing to draw from; give a parameter several values");
  says("parameters: {a: 1, b: [2]}, search: {samples: 2}", "train.search.samples: there is nothing to draw from");
  says("search: {seed: 2}", "nothing is drawn without 'samples'");
  says("search: {samples: 0}", "expected a whole number from 1 to 1000");
  says("metrics: [loss], search: {metric: los, goal: min}", "'los' is none of train.metrics; did you mean 'loss'?");
  says("search: {metric: loss, goal: min}", "loss is none of train.metrics; add it there: metrics: [loss]");
  says("metrics: [loss], search: {metric: loss}", "say beside it which value is the best: goal: min, or goal: max");
  says("search: {goal: min}", "it is about a metric; name it beside this: metric: loss");
  says("metrics: [loss], search: {stop-early: {after: 3}}", "it goes by a metric; name it beside this: metric: loss, goal: min");
  says("metrics: [loss], search: {metric: loss, goal: min, stop-early: {factor: 3}}", "the key 'after' is missing");
  says("metrics: [loss], search: {metric: loss, goal: min, stop-early: {after: 3, by: epoch}}", "epoch is none of train.metrics");
  says("metrics: [loss], search: {metric: loss, goal: min, stop-early: {after: 3, by: loss}}", "train.search.stop-early.by: it is the metric itself");
  says("search: {max-failed: [1, 2]}", "train.search.max-failed: got a list");
  CHECK(refused("parameters: {a: {uniform: {min: 0, max: 1}}}, search: {samples: x}") ==
        "dtrain.yml:2:81: train.search.samples: got 'x', expected a whole number from 1 to 1000");
  says("parameters: {a: {uniform: {min: 0, max: 1, step: 2}}}, search: {samples: 2}", "train.parameters.a.uniform.step: got 2, and from 0 to 1 it is less");
  says("combine: [zip, product]", "train.combine: got a list");
}

}  // namespace
}  // namespace dtrain
