// From a Spec with a grid to the members of its set; pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain {

// The parameters of member `member` (1-based; 0 or 1 for an experiment that is no set), as combination() has them.
// name -> value text.
std::map<std::string, std::string> member_parameters(const Spec& spec, uint32_t member);

// A set larger than this is refused by parse_spec: killing it takes the daemon a second or two, in which nobody else is answered.
inline constexpr uint64_t kMaxMembers = 100'000;

// The Spec of one member: each parameter has its one value and every run line has its {{ name }}
// replaced ({{name}} too). Never fails on a Spec that parse_spec accepted. Member 0 of a set is what
// all members share: its TensorBoard.
Spec member_spec(const Spec& spec, uint32_t member);

// What the members of a set are placed as, where that is not simply the Spec: at 0 what they share,
// then each kind of member. Empty: they are all as the Spec says. shape_of() is the index in it.
std::vector<Spec> shapes_of(const Spec& spec);
size_t shape_of(const Spec& spec, uint32_t member);

// A text that holds one, as a regular expression.
inline constexpr const char* kPlaceholderPattern =
    "\\{\\{[ \\t]*[A-Za-z_][A-Za-z0-9_-]{0,99}[ \\t]*\\}\\}";

// The names in {{ }} of one run line, in order, repeats included.
std::vector<std::string> placeholders(std::string_view line);

// The line with each {{ name }} that has a value replaced by it.
std::string substitute(std::string_view line, const std::map<std::string, std::string>& values);

// What looks like a placeholder of `name` with a brace missing: "{{ name }" or "{ name }}". Empty
// when there is none.
std::string broken_placeholder(std::string_view line, std::string_view name);

// "learning-rate" -> "LEARNING_RATE": the parameter's name in a replica's environment.
std::string parameter_env_name(std::string_view name);

}  // namespace dtrain
