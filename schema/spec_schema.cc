// json_schema and starter_yaml: what an editor and a newcomer start from.
#include <nlohmann/json.hpp>

#include "schema/expand.h"
#include "schema/spec.h"
#include "schema/spec_keys.h"
#include "schema/variation.h"

namespace dtrain {

namespace {

using Json = nlohmann::ordered_json;
using Kind = Shape::Kind;

struct Where {
  bool varied = false;    // a list of values may stand for any value: see variation.h
  bool may_ask = false;   // {{ name }} may, too: see engine_read.h
  bool of_engine = false;  // a list of maps as well
};

Json schema_of(const Shape& shape, Where where);

Json of_any(Json schema) {
  if (!schema.contains("anyOf")) schema = {{"anyOf", Json::array({std::move(schema)})}};
  return schema;
}

Json with_placeholder(const Shape& shape, Json schema) {
  if (!takes_value(shape)) return schema;
  schema = of_any(std::move(schema));
  schema["anyOf"].push_back({{"type", "string"}, {"pattern", kPlaceholderPattern}});
  return schema;
}

void add_values(const Shape& shape, bool maps, Json& values, bool& lists) {
  if (shape.kind == Kind::Either) {
    for (const Shape& part : shape.parts) add_values(part, maps, values, lists);
    return;
  }
  lists = lists || shape.kind == Kind::List;
  const bool is_value =
      shape.kind == Kind::False || takes_value(shape) || (maps && shape.kind == Kind::Map);
  if (is_value) values.push_back(schema_of(shape, {}));
}

Json with_lists(const Shape& shape, bool maps, Json schema) {
  Json values = Json::array();
  bool lists = false;
  add_values(shape, maps, values, lists);
  if (values.empty() || lists) return schema;
  const Json list{{"type", "array"},
                  {"items", {{"anyOf", std::move(values)}}},
                  {"minItems", 1},
                  {"maxItems", kMaxVariedValues}};
  schema = of_any(std::move(schema));
  schema["anyOf"].push_back(list);
  return schema;
}

void add_bounds(const Shape& shape, Json& out) {
  if (shape.minimum != std::numeric_limits<double>::lowest()) out["minimum"] = shape.minimum;
  if (shape.maximum != std::numeric_limits<double>::max()) out["maximum"] = shape.maximum;
}

Where below(const Key& key, Where where) {
  where.varied = (where.varied || key.name == "train") && key.name != "search";
  where.may_ask = (where.may_ask || key.name == "engine") && key.name != "distributed" &&
                  key.name != "tensorboard";
  where.of_engine = where.of_engine || key.name == "engine";
  return where;
}

Json schema_of_map(const Shape& shape, Where where) {
  Json out{{"type", "object"}, {"additionalProperties", false}};
  out["properties"] = Json::object();
  Json required = Json::array();
  for (const Key& key : shape.keys) {
    if (key.shape.kind == Kind::Refused) continue;
    const bool of_the_set = key.name == "concurrency" || key.name == "priority" || key.name == "preemptible" || key.name == "suspend" || key.name == "search" || key.name == "combine" || key.name.starts_with("after");
    const Where inside = below(key, where);
    Json value = schema_of(key.shape, inside);
    if (inside.may_ask) value = with_placeholder(key.shape, std::move(value));
    if (where.varied && !of_the_set) value = with_lists(key.shape, where.of_engine, std::move(value));
    if (!key.about.empty()) value["description"] = key.about;
    out["properties"][std::string(key.name)] = std::move(value);
    if (key.required) required.push_back(key.name);
  }
  if (!required.empty()) out["required"] = std::move(required);
  return out;
}

Json schema_of_text(const Shape& shape) {
  // 2.15 without quotes is a number to an editor, and the same text to the parser.
  const TextFormat& format = *shape.format;
  Json types = Json::array({"string"});
  if (format.accepts("7") || format.accepts("2.5")) types.push_back("number");
  if (format.accepts("true")) types.push_back("boolean");
  Json out{{"type", std::move(types)}};
  if (!shape.format->pattern.empty()) out["pattern"] = shape.format->pattern;
  return out;
}

Json schema_of_list(const Shape& shape, Where where) {
  const Shape& item = shape.parts[0];
  Json items = schema_of(item, {false, where.may_ask, false});
  if (where.may_ask) items = with_placeholder(item, std::move(items));
  return {{"type", "array"}, {"items", std::move(items)}, {"minItems", shape.least}, {"maxItems", shape.most}};
}

Json schema_of(const Shape& shape, Where where) {
  Json out = Json::object();
  switch (shape.kind) {
    case Kind::Boolean:
      return {{"type", "boolean"}};
    case Kind::False:
      return {{"const", false}};
    case Kind::Nothing:
      return {{"type", "null"}};
    case Kind::Integer:
    case Kind::Number:
      out["type"] = shape.kind == Kind::Integer ? "integer" : "number";
      add_bounds(shape, out);
      return out;
    case Kind::Text:
      return schema_of_text(shape);
    case Kind::Word:
      return {{"enum", shape.words}};
    case Kind::List:
      return schema_of_list(shape, where);
    case Kind::Map:
      return schema_of_map(shape, where);
    case Kind::Dict:
      return {{"type", "object"},
              {"propertyNames", {{"pattern", shape.format->pattern}}},
              {"additionalProperties", schema_of(shape.parts[0], {})},
              {"maxProperties", shape.most}};
    case Kind::Either:
      for (const Shape& part : shape.parts) out["anyOf"].push_back(schema_of(part, where));
      return out;
    case Kind::Refused:
      break;
  }
  return false;
}

}  // namespace

std::string json_schema() {
  Json out{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
           {"title", "dtrain.yml"},
           {"description", "An experiment of dtrain: what to run, with what, and how many of it."}};
  out.update(schema_of(spec_shape(), {}));
  return out.dump(2) + "\n";
}

std::string starter_yaml(std::string_view project) {
  return fmt::format(R"(# yaml-language-server: $schema=dtrain.schema.json
# For help from your editor: dtrain schema > dtrain.schema.json

project: {}

train:
  # What each process is promised, and with how many threads PyTorch and NumPy compute: cpus of them.
  # mem counts MiB, or write 2GiB.
  resources: {{cpus: 1, mem: 512, gpus: 0}}

  # Several values make a set, one experiment for each: [0.5, 0.1]
  parameters:
    learning-rate: 0.5
    steps: 5

  # To run workers and parameter servers that find each other through TF_CONFIG:
  # framework: tensorflow
  # tensorflow: {{distributed: {{worker: 3, ps: 1}}}}

  # Or with PyTorch, by RANK, WORLD_SIZE, MASTER_ADDR and what torchrun reads:
  # framework: pytorch
  # pytorch: {{distributed: {{worker: 2}}}}

  # Or with JAX, by JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID:
  # framework: jax
  # jax: {{distributed: {{worker: 2}}}}

  # To train with the engine that comes with dtrain; then there is no `run`. Digits to try it on:
  # dtrain-engine data digits
  # framework: engine
  # engine: {{model: lenet, data: {{train: data/train, test: data/test}}, epochs: 3}}

  # Your command goes here. This one stands in for a training: it minimises x * x and leaves the
  # result where `dtrain output` finds it.
  run: >-
    awk 'BEGIN {{ x = 8; for (i = 1; i <= {{{{ steps }}}}; i++) {{ x -= {{{{ learning-rate }}}} * x;
    printf "step %d loss %.4f\n", i, x * x; fflush() }}
    print x > (ENVIRON["OUTPUT_DIR"] "/model.txt") }}'
)",
                     project);
}

}  // namespace dtrain
