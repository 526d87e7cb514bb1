#include "tests/support/facts.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/support/cluster.h"

namespace dtrain::tests {

Json facts(const Output& output) {
  REQUIRE_MESSAGE(output.code == 0, output.all());
  Json value = Json::parse(output.out, nullptr, false);
  REQUIRE_MESSAGE(!value.is_discarded(), "not JSON: " << output.out);
  return value;
}

Json status_of(Cluster& cluster, const std::string& id) { return facts(cluster.run({"status", id, "--json"})); }

const Json& with_id(const Json& list, const std::string& id) {
  for (const Json& entry : list) {
    if (entry.value("id", "") == id) return entry;
  }
  FAIL("no " << id << " in " << list.dump());
  std::abort();  // FAIL throws
}

}  // namespace dtrain::tests
