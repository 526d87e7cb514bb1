#include <doctest/doctest.h>

#include <cstdlib>
#include <sstream>

#include "engine/bench/trainings.h"
#include "tests/support/project.h"
#include "tests/support/sanitized.h"
#include "tests/support/skipped.h"

namespace dtrain::engine {
namespace {

Result<std::string> bench(std::vector<std::string> words) {
  words.insert(words.begin(), {BIN_DIR "/dtrain-engine", "bench"});
  return run_command({words});
}

bool says(const Error& error, const std::string& what) {
  return (error.message + error.hint).find(what) != std::string::npos;
}

TEST_CASE("wrong words say what there is, with code 2") {
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"pss"},
                                             {},
                                             {"ps", "--servers", "0"},
                                             {"scaling", "--workers", "many"},
                                             {"step", "gtp"},
                                             {"step", "--python", "/nonexistent/python"},
                                             {"scaling", "--model", "resnet"}}) {
    const auto answer = bench(words);
    REQUIRE(!answer.ok());
    CHECK_MESSAGE(says(answer.error(), "code 2"), answer.error().message, " ", answer.error().hint);
  }
  const auto unknown = bench({"pss"});
  for (const char* name : {"pss", "gemm", "allreduce", "ps ", "step", "scaling"}) {
    CHECK_MESSAGE(says(unknown.error(), name), unknown.error().hint);
  }
  const auto help = bench({"scaling", "--help"});
  REQUIRE(help.ok());
  CHECK(help->find("--quick") != std::string::npos);
}

TEST_CASE("servers are measured by gRPC, too, in a table of 80 columns and as CSV") {
#ifdef __SANITIZE_THREAD__
  return tests::say_skipped("the sanitizer does not see into gRPC");
#endif
  const test::TemporaryFolder folder;
  const std::string csv = folder / "ps.csv";
  const auto said = bench({"ps", "--bytes", "4096", "--servers", "1,2", "--csv", csv});
  REQUIRE_MESSAGE(said.ok(), (said.ok() ? "" : said.error().message + said.error().hint));
  std::istringstream table(*said);
  for (std::string line; std::getline(table, line);) CHECK_MESSAGE(line.size() <= 80, line);
  std::istringstream rows(test::read_file(csv));
  int unix_rows = 0, tcp_rows = 0, grpc_rows = 0;
  for (std::string row; std::getline(rows, row);) {
    unix_rows += row.find(",unix,") != std::string::npos;
    tcp_rows += row.find(",tcp,") != std::string::npos;
    grpc_rows += row.find(",grpc,") != std::string::npos;
  }
  CHECK(unix_rows == 2);
  CHECK(tcp_rows == 2);
  CHECK(grpc_rows == 2);
}

TEST_CASE("products are measured beside what multiply-adds reach, and oneDNN, in a table and as CSV") {
  if (tests::kSanitized) return tests::say_skipped("products that the tests of kernels make, too, and thousands of them");
  const test::TemporaryFolder folder;
  const std::string csv = folder / "gemm.csv";
  const auto said = bench({"gemm", "--csv", csv});
  REQUIRE_MESSAGE(said.ok(), (said.ok() ? "" : said.error().message + said.error().hint));
  std::istringstream rows(test::read_file(csv));
  std::string row;
  REQUIRE(std::getline(rows, row));
  CHECK(row ==
        "m,n,k,plain_gflops,right_transposed_gflops,tree_gflops,peak_gflops,"
        "plain_onednn_gflops,right_transposed_onednn_gflops,left_transposed_onednn_gflops");
  const bool has_peer = said->find("oneDNN ") != std::string::npos;
  int count = 0;
  for (; std::getline(rows, row); ++count) {
    std::istringstream fields(row);
    int64_t size[3] = {};
    double rates[3] = {}, peak = 0;
    char comma;
    for (int64_t& each : size) fields >> each >> comma;
    for (double& rate : rates) fields >> rate >> comma;
    fields >> peak;
    CAPTURE(row);
    for (const double rate : rates) CHECK(rate > 0);
    CHECK(peak > 0);
    double peers[3] = {};
    for (double& rate : peers) fields >> comma >> rate;
    for (const double rate : peers) CHECK((rate > 0) == has_peer);
    CHECK(said->find(fmt::format("{}x{}x{} ", size[0], size[1], size[2])) != std::string::npos);
  }
  CHECK(count >= 5);
}

TEST_CASE("trainings and sums are measured beside a real PyTorch") {
  if (tests::kSanitized) return tests::say_skipped("measured in release alone: half a minute, most of it PyTorch's");
  const char* python = std::getenv("DTRAIN_TEST_PYTHON");
  if (python == nullptr) return tests::say_skipped("DTRAIN_TEST_PYTHON names no python with torch");
  if (!run_command({{python, "-c", "import torch"}}).ok()) {
    return tests::say_skipped(std::string(python) + " has no torch");
  }
  const test::TemporaryFolder folder;
  const std::string csv = folder / "step.csv";
  const auto steps = bench({"step", "mlp-128-two-workers", "--rounds", "1", "--seconds", "0.05", "--python", python,
                            "--csv", csv});
  REQUIRE_MESSAGE(steps.ok(), (steps.ok() ? "" : steps.error().message + steps.error().hint));
  CHECK_MESSAGE(steps->find(" times torch ") != std::string::npos, *steps);
  const std::string rows = test::read_file(csv);
  const double peer = std::atof(rows.c_str() + rows.rfind(',') + 1);
  CHECK_MESSAGE(peer > 0, rows);
  const auto sums = bench({"allreduce", "--python", python});
  REQUIRE_MESSAGE(sums.ok(), (sums.ok() ? "" : sums.error().message + sums.error().hint));
  CHECK_MESSAGE(sums->find("torch") != std::string::npos, *sums);
}

}  // namespace
}  // namespace dtrain::engine
