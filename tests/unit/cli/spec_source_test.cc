#include "cli/spec_source.h"

#include <doctest/doctest.h>

namespace dtrain::cli {

TEST_CASE("a project is called after its directory, by what names are made of") {
  CHECK(project_name_of("/home/anna/mnist_2-b") == "mnist_2-b");
  CHECK(project_name_of("/home/anna/größe (neu)") == "gr-e-neu");
  CHECK(project_name_of("/home/anna/a--b") == "a--b");
  CHECK(project_name_of("/home/anna/.hidden.") == "hidden");
  CHECK(project_name_of("/home/anna/日本") == "project");
}

}  // namespace dtrain::cli
