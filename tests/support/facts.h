// What a command printed with --json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/process.h"

namespace dtrain::tests {

using Json = nlohmann::json;

class Cluster;

// Fails the test when the command failed or printed anything but one JSON value.
Json facts(const Output& output);

// What `dtrain status ID` says.
Json status_of(Cluster& cluster, const std::string& id);

// The entry of `list` whose "id" is this; fails the test when there is none.
const Json& with_id(const Json& list, const std::string& id);

}  // namespace dtrain::tests
