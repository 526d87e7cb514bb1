// Lists where the YAML wants one value, `worker: [1, 2, 4]`: each is a dimension of the set, as a
// parameter with several values is, and may be asked for as {{ worker }} like one.
#pragma once

#include <string>
#include <vector>

#include "schema/problems.h"
#include "schema/spec.h"
#include "schema/spec_keys.h"
#include "schema/yaml_tree.h"

namespace dtrain {

// The combinations of all such lists together; each is read and checked for itself.
inline constexpr uint64_t kMaxVariations = 256;
inline constexpr size_t kMaxVariedValues = 100;  // of one list

// Those of a tree, sorted by name, each with its path. A name is the last key that says something,
// with the one above it where two would have the same: worker, ps-gpus. Parameters of the same name
// are a problem.
std::vector<Parameter> find_variations(const YamlNode& root, const Shape& shape,
                                       Problems& problems);

// The tree with one value in the place of each list: number `kind` of the combinations.
YamlNode choose_variation(const YamlNode& root, const std::vector<Parameter>& variations, Combine combine,
                          uint64_t kind);

// The tree as a text that reads as the same tree, but for places, comments and quotes.
std::string emit_yaml(const YamlNode& root);

// Keys whose values a Spec holds beside its source, since a command line changes them after.
void drop_own_keys(YamlNode& root);
void put_own_keys(YamlNode& root, const Spec& spec);

// ---- of a Spec that has variations

std::vector<Parameter> variations_of(const Spec& spec);
// Which combination a member is.
uint64_t variation_of(const Spec& spec, uint32_t member);
// The Spec of one combination, or of all in order. Parameters are those that are no variation.
Spec varied_spec(const Spec& spec, uint64_t kind);
std::vector<Spec> varied_specs(const Spec& spec);

}  // namespace dtrain
