// The JSON Schema and the parser's checks are made from one table; here each is held to the other.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <sstream>
#include <unordered_map>

#include "schema/combinations.h"
#include "schema/engine_read.h"
#include "schema/spec.h"
#include "schema/spec_check.h"
#include "schema/spec_keys.h"
#include "schema/spec_read.h"
#include "schema/variation.h"
#include "schema/yaml_tree.h"

using namespace dtrain;

namespace {

using Json = nlohmann::json;

bool has_type(const Json& value, const std::string& type) {
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number_integer();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  FAIL("a type this test does not know: " << type);
  return false;
}

// Each pattern is compiled once: doing that for every value takes a sanitizer's build minutes.
bool matches(const std::string& text, const Json& pattern) {
  static std::unordered_map<std::string, std::regex> compiled;
  const auto& wanted = pattern.get_ref<const std::string&>();
  return std::regex_search(text, compiled.try_emplace(wanted, wanted).first->second);
}

// The part of JSON Schema that json_schema() uses. A keyword it does not know fails the test.
bool accepts(const Json& schema, const Json& value) {
  if (schema.is_boolean()) return schema.get<bool>();
  for (const auto& [keyword, rule] : schema.items()) {
    bool good = true;
    if (keyword == "$schema" || keyword == "title" || keyword == "description") {
    } else if (keyword == "type") {
      good = false;
      for (const Json& type : rule.is_array() ? rule : Json::array({rule})) {
        good = good || has_type(value, type.get<std::string>());
      }
    } else if (keyword == "const") {
      good = value == rule;
    } else if (keyword == "enum") {
      good = std::find(rule.begin(), rule.end(), value) != rule.end();
    } else if (keyword == "minimum") {
      good = !value.is_number() || value.get<double>() >= rule.get<double>();
    } else if (keyword == "maximum") {
      good = !value.is_number() || value.get<double>() <= rule.get<double>();
    } else if (keyword == "pattern") {
      good = !value.is_string() || matches(value.get<std::string>(), rule);
    } else if (keyword == "minItems") {
      good = !value.is_array() || value.size() >= rule.get<size_t>();
    } else if (keyword == "maxItems") {
      good = !value.is_array() || value.size() <= rule.get<size_t>();
    } else if (keyword == "maxProperties") {
      good = !value.is_object() || value.size() <= rule.get<size_t>();
    } else if (keyword == "items") {
      for (const Json& item : value.is_array() ? value : Json::array()) {
        good = good && accepts(rule, item);
      }
    } else if (keyword == "anyOf") {
      good = std::any_of(rule.begin(), rule.end(),
                         [&](const Json& part) { return accepts(part, value); });
    } else if (keyword == "required") {
      for (const Json& key : rule) good = good && (!value.is_object() || value.contains(key));
    } else if (keyword == "propertyNames") {
      if (!value.is_object()) continue;
      for (const auto& entry : value.items()) {
        good = good && matches(entry.key(), rule.at("pattern"));
      }
    } else if (keyword == "properties" || keyword == "additionalProperties") {
      if (!value.is_object()) continue;
      const auto known = schema.find("properties");
      for (const auto& [key, one] : value.items()) {
        const bool is_known = known != schema.end() && known->contains(key);
        if (is_known == (keyword == "properties")) {
          good = good && accepts(is_known ? rule.at(key) : rule, one);
        }
      }
    } else {
      FAIL("a keyword this test does not know: " << keyword);
    }
    if (!good) return false;
  }
  return true;
}

// As an editor reads the file.
Json as_json(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::Null:
      return nullptr;
    case YamlNode::Kind::Scalar:
      if (const auto flag = as_boolean(node)) return *flag;
      if (const auto whole = as_integer(node)) return *whole;
      if (const auto number = as_number(node)) return *number;
      return node.text;
    case YamlNode::Kind::List: {
      Json list = Json::array();
      for (const YamlNode& item : node.items) list.push_back(as_json(item));
      return list;
    }
    case YamlNode::Kind::Map: {
      Json map = Json::object();
      for (const YamlEntry& entry : node.entries) map[entry.key] = as_json(entry.value);
      return map;
    }
  }
  return nullptr;
}

bool table_accepts(const YamlNode& root) {
  Problems problems("dtrain.yml");
  const std::vector<Parameter> variations = find_variations(root, spec_shape(), problems);
  const YamlNode* const train = root.find("train");
  const Combine combine = train == nullptr ? Combine::Product : combine_of(*train);
  for (uint64_t kind = 0; kind < combination_count(variations, combine); ++kind) {
    YamlNode tree = choose_variation(root, variations, combine, kind);
    check_spec_tree(tree, problems);
  }
  return problems.empty();
}

YamlNode tree_of(const std::string& yaml) {
  Problems problems("dtrain.yml");
  auto root = parse_yaml(yaml, 0, problems);
  REQUIRE(root);
  REQUIRE(problems.empty());
  return *root;
}

std::vector<YamlNode> good_trees() {
  std::vector<YamlNode> trees;
  for (const auto& file : std::filesystem::directory_iterator(TESTDATA "/spec/good")) {
    if (file.path().extension() != ".yml") continue;
    std::ostringstream text;
    text << std::ifstream(file.path()).rdbuf();
    trees.push_back(tree_of(text.str()));
  }
  REQUIRE(trees.size() > 5);
  return trees;
}

void collect(YamlNode& node, std::vector<YamlNode*>& nodes) {
  nodes.push_back(&node);
  for (YamlNode& item : node.items) collect(item, nodes);
  for (YamlEntry& entry : node.entries) collect(entry.value, nodes);
}

// Calls visit(schema of the key or null, key, path) for each key of the table.
template <typename Visit>
void each_key(const Shape& shape, const Json& schema, const Visit& visit) {
  for (const Key& key : shape.keys) {
    // One of a map and lists of such.
    const Json& properties =
        (schema.contains("anyOf") ? schema.at("anyOf").at(0) : schema).at("properties");
    const std::string name(key.name);
    visit(key, properties.contains(name) ? &properties.at(name) : nullptr);
    if (properties.contains(name)) each_key(key.shape, properties.at(name), visit);
  }
  if (shape.kind == Shape::Kind::Either) {
    for (size_t i = 0; i < shape.parts.size(); ++i) {
      each_key(shape.parts[i], schema.at("anyOf").at(i), visit);
    }
  } else if (shape.kind == Shape::Kind::List) {
    each_key(shape.parts[0], schema.at("items"), visit);
  } else if (shape.kind == Shape::Kind::Dict) {
    each_key(shape.parts[0], schema.at("additionalProperties"), visit);
  }
}

}  // namespace

TEST_CASE("the schema lists exactly the keys that can be used, each with a sentence") {
  const Json schema = Json::parse(json_schema());
  size_t keys = 0;
  each_key(spec_shape(), schema, [&](const Key& key, const Json* found) {
    CAPTURE(std::string(key.name));
    ++keys;
    if (key.shape.kind == Shape::Kind::Refused) {
      CHECK(found == nullptr);
    } else {
      REQUIRE(found != nullptr);
      CHECK_FALSE(found->at("description").get<std::string>().empty());
    }
  });
  CHECK(keys > 60);
}

TEST_CASE("good files please both") {
  const Json schema = Json::parse(json_schema());
  for (const YamlNode& tree : good_trees()) {
    CAPTURE(as_json(tree).dump());
    CHECK(table_accepts(tree));
    CHECK(accepts(schema, as_json(tree)));
  }
  CHECK(accepts(schema, as_json(tree_of(starter_yaml("p")))));
}

TEST_CASE("a misspelt or repeated level of a key displeases both") {
  const Json schema = Json::parse(json_schema());
  size_t tried = 0;
  for (const YamlNode& tree : good_trees()) {
    YamlNode changed = tree;
    std::vector<YamlNode*> nodes;
    collect(changed, nodes);
    for (YamlNode* node : nodes) {
      for (YamlEntry& entry : node->entries) {
        const std::string key = entry.key;
        entry.key = "9 " + key;  // a form that no kind of name has
        CAPTURE(entry.key);
        CHECK_FALSE(table_accepts(changed));
        CHECK_FALSE(accepts(schema, as_json(changed)));
        entry.key = key;
        ++tried;
      }
    }
  }
  CHECK(tried > 70);
}

TEST_CASE("any value put anywhere is judged alike") {
  const Json schema = Json::parse(json_schema());
  const std::vector<YamlNode> trees = good_trees();
  std::vector<YamlNode> pool;
  for (const char* yaml : {"~",
                           "true",
                           "false",
                           "3",
                           "0",
                           "-1",
                           "0.5",
                           "100000000",
                           "'3'",
                           "text",
                           "''",
                           "5s",
                           "16GiB",
                           "/abs",
                           "../x",
                           "hard",
                           "ignore",
                           "[]",
                           "[1]",
                           "[a, [b]]",
                           "{}",
                           "{count: 2}",
                           "{limit: 1}",
                           "{cpus: 1, mem: 1GiB}",
                           "{range: {min: 1, max: 2}}",
                           "{range: {min: 1}}",
                           "{worker: 2}",
                           "{nproc-per-node: gpu}",
                           "{name: x}",
                           "{A: b}",
                           "[A, B=c]",
                           "{x: {y: z}}",
                           "tensorflow",
                           "pytorch",
                           "mpi",
                           "{slots: gpu}",
                           "2.15",
                           "engine",
                           "single",
                           "500 steps",
                           "0.5 epochs",
                           "{data: 2, model: 2}",
                           "{train: x}",
                           "{mlp: {hidden: 3}}",
                           "{sgd: }",
                           "'{{ a }}'"}) {
    pool.push_back(tree_of(yaml));
  }
  std::mt19937 random(20240601);
  size_t refused = 0;
  for (int round = 0; round < 6000; ++round) {
    YamlNode tree = trees[random() % trees.size()];
    std::vector<YamlNode*> nodes;
    collect(tree, nodes);
    const YamlNode& value = pool[random() % pool.size()];
    *nodes[random() % nodes.size()] = value;
    const Json json = as_json(tree);
    CAPTURE(json.dump());
    const bool by_table = table_accepts(tree);
    const bool by_schema = accepts(schema, json);
    refused += by_table ? 0 : 1;
    // A schema can't hold the digits of a number to the pattern of a text; there it is the milder
    // one.
    const auto is_number = [](const YamlNode& node) { return as_number(node) || as_boolean(node); };
    const bool number =
        is_number(value) || (value.kind == YamlNode::Kind::List && !value.items.empty() &&
                             std::all_of(value.items.begin(), value.items.end(), is_number));
    if (by_table || !number) CHECK(by_table == by_schema);
  }
  CHECK(refused > 2000);
  CHECK(refused < 5900);
}

namespace {

struct ToldDefault {
  std::string path;   // of the key: train.resources.cpus
  std::string value;  // what is said to stand there when it is left out
};

// "Left out: 5s, for the engine 1s." and "Left out: 0.1 for sgd, else 0.001."
std::string told_default(const std::string& about, const std::string& path) {
  static const std::regex told(
      R"(Left out: (.+?)(?:(?: for (\S+), else (\S+))|(?:, for (?:the )?(\S+) (\S+)))?\.$)");
  std::smatch found;
  if (!std::regex_search(about, found, told)) return "";
  const auto is_of = [&](const std::string& which) {
    return !which.empty() && path.find("." + which + ".") != std::string::npos;
  };
  if (found[2].matched) return is_of(found[2]) ? found[1] : found[3];
  return is_of(found[4]) ? found[5] : found[1];
}

void collect_defaults(const Shape& shape, const std::string& path, std::vector<ToldDefault>& all) {
  for (const Key& key : shape.keys) {
    const std::string at = join_path(path, key.name);
    if (const std::string value = told_default(std::string(key.about), at); !value.empty()) {
      all.push_back({at, value});
    }
    collect_defaults(key.shape, at, all);
  }
  const std::string below = shape.kind == Shape::Kind::Dict ? join_path(path, "a") : path;
  for (const Shape& part : shape.parts) collect_defaults(part, below, all);
}

// The least in which the key at `path` may stand. Resources of a role are those of train.
std::string file_around(const std::string& path) {
  static const std::pair<const char*, const char*> kFiles[] = {
      {"train.restart.backoff", "run: x, restart: {limit: 1}"},
      {"train.search.seed", "run: 'x {{ a }}', parameters: {a: [1, 2]}, search: {samples: 3}"},
      {"train.search.stop-early", "run: x, metrics: [loss], search: {metric: loss, goal: min, stop-early: {after: 2}}"},
      {"train.parameters.a", "run: x, parameters: {a: {range: {min: 1, max: 2}}}"},
      {"train.tensorflow.distributed.elastic", "run: x, framework: tensorflow, tensorflow: {distributed: {elastic: {max: 3}}}"},
      {"train.pytorch.distributed.elastic", "run: x, framework: pytorch, pytorch: {distributed: {elastic: {max: 3}}}"},
      {"train.jax.distributed.elastic", "run: x, framework: jax, jax: {distributed: {elastic: {max: 3}}}"},
      {"train.jax.distributed.worker", "run: x, framework: jax, jax: {distributed: {master: 1}}"},
      {"train.jax", "run: x, framework: jax, jax: {distributed: {worker: 2}}"},
      {"train.mpi.distributed.elastic", "run: x, framework: mpi, mpi: {distributed: {elastic: {max: 3}}}"},
      {"train.tensorflow.distributed.worker",
       "run: x, framework: tensorflow, tensorflow: {distributed: {ps: 1}}"},
      {"train.tensorflow", "run: x, framework: tensorflow, tensorflow: {distributed: {worker: 2}}"},
      {"train.pytorch.distributed.worker",
       "run: x, framework: pytorch, pytorch: {distributed: {master: {resources: {cpus: 2}}}}"},
      {"train.pytorch", "run: x, framework: pytorch, pytorch: {distributed: {worker: 2}}"},
      {"train.mpi.distributed.worker", "run: x, framework: mpi, mpi: {distributed: {launcher: 1}}"},
      {"train.mpi", "run: x, framework: mpi, mpi: {distributed: {worker: 2}}"},
      {"train", "run: x"},
  };
  static const std::pair<const char*, const char*> kEngines[] = {
      {"model.mlp", "model: {mlp: {}}"},
      {"model.lenet", "model: {lenet: {}}"},
      {"model.gpt", "model: {gpt: {}}"},
      {"optimizer.sgd", "optimizer: {sgd: {}}"},
      {"optimizer.adam.", "optimizer: {adam: {}}"},
      {"optimizer.adamw", "optimizer: {adamw: {}}"},
      {"schedule.constant", "schedule: {constant: {}}"},
      {"schedule.step", "schedule: {step: {}}"},
      {"schedule.cosine", "schedule: {cosine: {}}"},
      {"schedule.linear", "schedule: {linear: {}}"},
      {"strategy.mirrored", "strategy: {mirrored: {}}"},
      {"strategy.central-storage", "strategy: {central-storage: {}}"},
      {"strategy.multi", "strategy: {multi-worker-mirrored: {}}, distributed: {worker: 2}"},
      {"strategy.allreduce", "strategy: {allreduce: {}}, distributed: {worker: 2}"},
      {"strategy.parameter-server.staleness",
       "strategy: {parameter-server: {mode: ssp}}, distributed: {worker: 2, ps: 1}"},
      {"strategy.parameter-server.backup",
       "strategy: {parameter-server: {mode: sync}}, distributed: {worker: 2, ps: 1}"},
      {"strategy.parameter-server",
       "strategy: {parameter-server: {}}, distributed: {worker: 2, ps: 1}"},
      {"strategy.pipeline", "strategy: {pipeline: {}}, distributed: {worker: 2}"},
      {"strategy.mesh", "strategy: {mesh: {data: 2, model: 2}}, distributed: {worker: 4}"},
      {"distributed.elastic", "distributed: {elastic: {max: 3}}"},
      {"distributed.worker", "distributed: {ps: 1}"},
      {"distributed", "distributed: {worker: 2}"},
      {"", ""},
  };
  const std::string_view engine = "train.engine.";
  if (!path.starts_with(engine)) {
    for (const auto& [prefix, train] : kFiles) {
      if (path.starts_with(prefix)) return fmt::format("project: p\ntrain: {{{}}}\n", train);
    }
  }
  for (const auto& [prefix, keys] : kEngines) {
    if (!std::string_view(path).substr(engine.size()).starts_with(prefix)) continue;
    const std::string model = std::string_view(keys).starts_with("model") ? "" : "model: mlp, ";
    return fmt::format(
        "project: p\ntrain: {{framework: engine, engine: {{{}{}data: {{train: x}}}}}}\n", model,
        *keys == '\0' ? "" : fmt::format("{}, ", keys));
  }
  return "";
}

struct Understood {
  Spec spec;
  std::optional<EngineSpec> engine;
  bool operator==(const Understood&) const = default;
};

std::optional<Understood> understood(const std::string& yaml, const ParseOptions& options) {
  Result<Spec> spec = parse_spec(yaml, options);
  if (!spec.ok()) return std::nullopt;
  Understood result{std::move(spec).value(), std::nullopt};
  if (result.spec.framework == Framework::Engine) {
    Result<EngineSpec> engine = engine_spec_of(result.spec);
    REQUIRE(engine.ok());
    result.engine = std::move(engine).value();
    result.spec.engine.section.clear();  // as it was written
  }
  return result;
}

}  // namespace

TEST_CASE("what a key is said to be when it is left out is what it is") {
  // Words for what no value of the key says.
  const std::vector<std::string> words{"the host's own python",
                                       "never",
                                       "all of a thread's",
                                       "the data set",
                                       "nothing",
                                       "as the data has it, 256 for bytes",
                                       "as many as fit",
                                       "fail, or restart where 'restart' has a limit",
                                       "restart; of a worker with async or ssp, ignore",
                                       "parameter-server with ps, multi-worker-mirrored with "
                                       "several workers, mirrored with several GPUs of one, else "
                                       "single",
                                       "auto, which is bf16 on a GPU"};
  std::vector<ToldDefault> all;
  collect_defaults(spec_shape(), "", all);
  size_t tried = 0;
  for (const auto& [path, value] : all) {
    if (std::ranges::find(words, value) != words.end()) continue;
    if (path.find(".distributed.") != path.npos && path.find(".resources.") != path.npos) continue;
    CAPTURE(path);
    CAPTURE(value);
    std::string written = value;
    if (const size_t both = value.find(" and "); both != std::string::npos) {
      written = fmt::format("[{}, {}]", value.substr(0, both), value.substr(both + 5));
    }
    const std::string yaml = file_around(path);
    const auto without = understood(yaml, {});
    REQUIRE(without);
    const auto with = understood(yaml, {.set = {{path, written}}});
    REQUIRE(with);
    CHECK((with == without));
    ++tried;
  }
  CHECK(tried > 70);
}
