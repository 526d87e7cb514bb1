// Drawn digits to train on, by the engine's own command, and what a training of them left.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "tests/support/cluster.h"

namespace dtrain::tests {

// Into data/ of the project, train of them and 500 to test on unless `test` says otherwise.
inline void draw_digits(const fs::path& project, const std::string& train, const std::string& test = "500") {
  Command digits;
  digits.argv = {std::string(BIN_DIR) + "/dtrain-engine", "data", "digits", "--train", train, "--test", test};
  digits.directory = project;
  const Output drawn = Process(digits).wait();
  REQUIRE_MESSAGE(drawn.code == 0, drawn.all());
  REQUIRE(drawn.out == train + " digits to learn from in data/train, " + test + " to test on in data/test\n");
}

// A project with this dtrain.yml that has them.
inline fs::path digits_project(Cluster& cluster, const std::string& yaml, const std::string& train = "4000") {
  const fs::path project = cluster.project("digits", {{"dtrain.yml", yaml}});
  draw_digits(project, train);
  return project;
}

inline fs::path output_of(Cluster& cluster, const std::string& id) {
  std::string output = cluster.run({"output", "path", id}).out;
  output.erase(output.find_last_not_of('\n') + 1);
  return output;
}

inline std::string model_of(Cluster& cluster, const std::string& id) {
  return read_file(output_of(cluster, id) / "model.safetensors");
}

}  // namespace dtrain::tests
