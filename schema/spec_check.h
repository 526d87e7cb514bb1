// Holds a tree against the table of keys: unknown keys, wrong types, impossible values.
#pragma once

#include <optional>
#include <string_view>

#include "schema/problems.h"
#include "schema/spec_keys.h"
#include "schema/yaml_tree.h"

namespace dtrain {

// Reports every disagreement and marks the node it is about as refused, so that whoever reads the
// tree afterwards can take what is left at its word.
void check_tree(YamlNode& root, const Shape& shape, Problems& problems);

// A part of a tree by itself, which stands at `path` of the whole.
void check_part(YamlNode& node, const Shape& shape, const std::string& path, Problems& problems);

// A part of a tree that was checked before, at `path` of it, with other values in some places: those
// that are wrong are reported. What was refused before stays so.
void check_again(YamlNode& node, const Shape& shape, const std::string& path, Problems& problems);

// The alternative of an Either that the value is written as (other shapes are their own
// alternative); null when it is none.
const Shape* select_shape(const Shape& shape, const YamlNode& node);

// A plain scalar as YAML 1.2 reads it.
std::optional<bool> as_boolean(const YamlNode& node);
std::optional<double> as_number(const YamlNode& node);
std::optional<int64_t> as_integer(const YamlNode& node);

}  // namespace dtrain
