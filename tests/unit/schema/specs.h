// Specs as a dtrain.yml has them.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "schema/spec.h"

namespace dtrain::tests {

inline Spec spec_of(const std::string& yaml, const ParseOptions& options = {}) {
  auto spec = parse_spec(yaml, options);
  if (!spec.ok()) FAIL(spec.error().message);
  return std::move(spec).value();
}

// The message of a refusal; a text that is none when it was accepted.
inline std::string refusal(const std::string& yaml, const ParseOptions& options = {}) {
  const auto spec = parse_spec(yaml, options);
  return spec.ok() ? "accepted" : spec.error().message;
}

}  // namespace dtrain::tests
