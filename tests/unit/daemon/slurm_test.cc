#include "daemon/slurm.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace dtrain::daemon::slurm {

namespace {

SlurmPool a_pool() {
  SlurmPool pool;
  pool.name = "gpu";
  pool.cpus = 8;
  pool.memory_bytes = uint64_t{32} << 30;
  pool.gpus = 4;
  pool.hosts_max = 4;
  pool.time_ms = 90 * 60'000;
  pool.partition = "a100";
  pool.options = {"--account=lab"};
  return pool;
}

Request a_request() {
  return {"dtrain-0a1b-gpu-3", 2, {KeyOf::Host, "gpu-3", "10.0.0.1:7077", "authority\n", "certificate\n", "secret\n"},
          "/opt/it's/dtrain", "/home/anna/gpu-3.log", {20'500, 20'999}};
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

TEST_CASE("a job asks for whole hosts, as the pool says") {
  const auto words = submit_words(a_pool(), a_request());
  for (const char* word : {"--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=8", "--mem=32768M", "--time=90",
                           "--partition=a100", "--gpus-per-node=4", "--job-name=dtrain-0a1b-gpu-3", "--no-requeue",
                           "--output=/dev/null"}) {
    CHECK_MESSAGE(has(words, word), word);
  }
  CHECK(words.back() == "--account=lab");   // last, so that it wins
  SlurmPool bare = a_pool();
  bare.gpus = 0;
  bare.partition.clear();
  bare.time_ms = 61'000;
  const auto fewer = submit_words(bare, a_request());
  CHECK(has(fewer, "--time=2"));
  for (const std::string& word : fewer) {
    CHECK_FALSE(word.starts_with("--partition"));
    CHECK_FALSE(word.starts_with("--gpus"));
  }
}

TEST_CASE("the key goes by standard input, and a path is one word for every shell it passes") {
  const std::string text = script(a_pool(), a_request());
  CHECK(text.find("dtrain host key 1\nhost: gpu-3\n") != std::string::npos);
  CHECK(text.find("secret") > text.find("<< 'end of the key'"));
  CHECK(text.find("date +%s) + 5400))") != std::string::npos);
  CHECK(text.find("--cpus 8 --mem 32768MiB --ports 20500-20999") != std::string::npos);
  CHECK(text.find("log=/home/anna/gpu-3.log\n") != std::string::npos);
  CHECK(text.find(R"(/opt/it'\''\'\'''\''s/dtrain)") != std::string::npos);
}

TEST_CASE("what sbatch says") {
  CHECK(submitted_job("4711\n").value() == "4711");
  CHECK(submitted_job("4711;cluster\n").value() == "4711");
  for (const char* said : {"", "\n", "Submitted batch job 17", "x17"}) CHECK_FALSE(submitted_job(said).ok());
}

TEST_CASE("what squeue says") {
  const auto jobs = queued_jobs("17|PENDING|Resources|dtrain-0a1b-gpu-3\n18|RUNNING|None|other\n\nnonsense\n"
                                "19|TIMEOUT|TimeLimit|dtrain-0a1b-gpu-4");
  REQUIRE(jobs.size() == 3);
  CHECK(jobs.at("dtrain-0a1b-gpu-3").id == "17");
  CHECK(jobs.at("dtrain-0a1b-gpu-3").reason == "Resources");
  CHECK_FALSE(is_over(jobs.at("dtrain-0a1b-gpu-3")));
  CHECK_FALSE(is_over(jobs.at("other")));
  CHECK(is_over(jobs.at("dtrain-0a1b-gpu-4")));
}

}  // namespace dtrain::daemon::slurm
