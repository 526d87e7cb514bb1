#include <doctest/doctest.h>

#include <sstream>

#include "engine/bench/trainings.h"
#include "tests/support/project.h"
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

}  // namespace
}  // namespace dtrain::engine
