#include "schema/suggest.h"

#include <doctest/doctest.h>

#include <string>

using namespace dtrain;

TEST_CASE("the distance counts edits and swaps") {
  CHECK(edit_distance("cpus", "cpus") == 0);
  CHECK(edit_distance("cpu", "cpus") == 1);
  CHECK(edit_distance("cpsu", "cpus") == 1);
  CHECK(edit_distance("CPUS", "cpus") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("the nearest word is suggested only when it is near") {
  const std::vector<std::string_view> known{"cpus", "mem", "gpus"};
  CHECK(nearest("cpu", known) == "cpus");
  CHECK(nearest("gpu", known) == "gpus");
  CHECK(nearest("memory", known) == "mem");
  CHECK(nearest("colour", known).empty());
  CHECK(nearest("imagePullPolcy", {"image", "imagePullPolicy", "imagePullSecrets"}) == "imagePullPolicy");
  CHECK(nearest("", known).empty());
  CHECK(nearest(std::string(100000, 'c'), known).empty());
}
