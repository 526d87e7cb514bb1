#include "cli/roles_text.h"

#include <doctest/doctest.h>

using namespace dtrain;

TEST_CASE("replicas are counted in the right plural") {
  Spec spec;
  spec.roles.resize(3);
  spec.roles[0].role = Role::Master;
  spec.roles[1].role = Role::Worker;
  spec.roles[1].count = 2;
  spec.roles[2].role = Role::Ps;
  spec.roles[2].count = 3;
  CHECK(cli::roles_text(spec) == "1 master, 2 workers, 3 ps");
  spec.roles[1].count = 1;
  spec.roles[2].count = 1;
  CHECK(cli::roles_text(spec) == "1 master, 1 worker, 1 ps");
}
