// The same ten steps by PyTorch. tests/run.sh takes that of the system; by another:
//
//   python3 -m venv venv && venv/bin/pip install torch safetensors tensorboard
//   DTRAIN_TEST_PYTHON=venv/bin/python build/release/bin/engine_tests --source-file='*pytorch*'
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "tests/support/skipped.h"

namespace {

TEST_CASE("PyTorch computes the same losses, gradients and weights, and reads the files") {
  const char* python = std::getenv("DTRAIN_TEST_PYTHON");
  if (python == nullptr) return dtrain::tests::say_skipped("DTRAIN_TEST_PYTHON names no python with torch");
  const std::string has_torch = fmt::format("'{}' -c 'import torch' 2> /dev/null", python);
  if (std::system(has_torch.c_str()) != 0) return dtrain::tests::say_skipped(std::string(python) + " has no torch");
  const std::string command =
      fmt::format("'{}' '{}/tests/engine/with_pytorch.py' '{}/dtrain-engine'", python, SOURCE_DIR, BIN_DIR);
  CHECK(std::system(command.c_str()) == 0);
}

}  // namespace
