// `engine:` from a tree to an EngineSpec, and how parameters get into it.
//
// {{ name }} may stand for any value in it but for what decides about roles: `distributed`,
// `tensorboard`, the strategy and its mode. Each combination of the values it asks for is read and
// checked with the file, so that no member of a set fails for what stood in it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "schema/engine_spec.h"
#include "schema/spec.h"
#include "schema/spec_read.h"
#include "schema/yaml_tree.h"

namespace dtrain {

inline constexpr const char* kEngineProgram = "dtrain-engine";
inline constexpr const char* kEngineCommand = "dtrain-engine train";
// It goes on from its checkpoints: left out, a failure starts it again so often.
inline constexpr int kEngineRestarts = 3;
inline constexpr int64_t kEngineBackoffMs = 1'000;  // others wait for it meanwhile
// Of parameters that the section asks for, with the lists elsewhere; each is read and checked.
inline constexpr uint64_t kMaxEngineCombinations = 4096;

// check_tree of a whole file, but for the section's values that hold {{ name }}: those can't be
// judged yet, and read_engine() does it.
void check_spec_tree(YamlNode& root, Problems& problems);

// ---- of the map `train`, which was checked

bool read_engine_tensorboard(const YamlNode& train);
bool read_in_step(const YamlNode& train);  // see EngineOptions
// The values of the section with their paths, for whoever looks for placeholders.
std::vector<std::pair<const YamlNode*, std::string>> engine_values(const YamlNode& train);
// Fills in spec.engine.section; everything else of the Spec is there already.
void read_engine(const YamlNode& train, Spec& spec, SpecReading& reading);

// The section with the values of one member.
std::string fill_engine(const std::string& section,
                        const std::map<std::string, std::string>& values);

// "digits", of /data/digits/train: which set of `data:` a path of the section is of. Empty: of none.
std::string data_set_of(std::string_view path);

// Of a member (member_spec) or of an experiment that is no set. Never fails on what parse_spec
// accepted.
Result<EngineSpec> engine_spec_of(const Spec& member);

}  // namespace dtrain
