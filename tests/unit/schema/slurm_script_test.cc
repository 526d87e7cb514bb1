#include "schema/slurm_script.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "schema/expand.h"
#include "schema/run_script.h"
#include "tests/support/golden.h"
#include "tests/unit/schema/exported_text.h"
#include "tests/unit/schema/specs.h"

using namespace dtrain;
using namespace dtrain::tests;

namespace {

Exported script_of(const std::string& train) {
  auto script = slurm_script(spec_of("{project: x, train: {" + train + "}}"));
  if (!script.ok()) FAIL(script.error().message);
  return std::move(script).value();
}

bool leaves_out(const Exported& script, const std::string& key) { return std::ranges::find(script.left_out, key, &LeftOut::key) != script.left_out.end(); }

}  // namespace

TEST_CASE("a dtrain.yml is written as a batch script of Slurm, which says what it leaves out") {
  for (const auto& file : golden_files("slurm", ".yml")) {
    CAPTURE(file.filename().string());
    const auto script = slurm_script(member_spec(spec_of(text_of(file)), 1));
    REQUIRE(script.ok());
    std::string got = script->text;
    for (const LeftOut& one : script->left_out) got += fmt::format("# left out: {}; {}\n", one.key, one.why);
    for (const std::string& note : script->notes) got += "# " + note + "\n";
    check_expected(file, got);
  }
}

TEST_CASE("the engine is no batch script") {
  CHECK(!slurm_script(spec_of(text_of(TESTDATA "/spec/good/engine-small.yml"))).ok());
}

TEST_CASE("each task has a shell of its own for its lines, which get them as dtrain has them") {
  const Exported script = script_of("framework: tensorflow, run: [cd /, 'false; echo go'], tensorflow: {distributed: {worker: 2, ps: {count: 1, run: 'echo a \\'}, evaluator: {count: 1, run: '# none'}}}");
  for (const std::vector<std::string>& run : {std::vector<std::string>{"cd /", "false; echo go"}, {"echo a \\"}, {"# none"}}) {
    CHECK_MESSAGE(has(script, "=$(cat <<'END'\n" + run_script(run) + "\nEND\n)\n"), run.front());
  }
  CHECK(has(script, "\nexec /bin/sh -c \"$dtrain_run\"\n"));
  CHECK(has(script, "dtrain_run=$2\n[ \"$dtrain_number\" -lt 2 ] || { dtrain_run=$3; }\n[ \"$dtrain_number\" -lt 3 ] || { dtrain_run=$4; }\n"));
  CHECK(has(script_of("run: \"a\\nEND\\nb\""), "=$(cat <<'END_'\na\nEND\nb\nEND_\n)\n"));
}

TEST_CASE("how many of a role a node takes is said where all tasks are of that role, and else left out") {
  const auto gang = [](const std::string& roles) { return script_of("framework: tensorflow, run: a, tensorflow: {distributed: {" + roles + "}}"); };
  const Exported workers = gang("worker: {count: 4, per-host: 2}"), mixed = gang("worker: {count: 4, per-host: 2}, ps: 1");
  CHECK(has(workers, "#SBATCH --ntasks-per-node=2\n"));
  CHECK(!leaves_out(workers, "per-host"));
  CHECK(!has(mixed, "--ntasks-per-node"));
  CHECK(leaves_out(mixed, "per-host"));
  const Exported ranks = script_of("framework: mpi, run: mpirun a, mpi: {slots: 3, distributed: {worker: {count: 2, per-host: 1}}}");
  CHECK(has(ranks, "#SBATCH --ntasks=6\n#SBATCH --ntasks-per-node=3\n"));
  CHECK(!has(gang("worker: 4"), "--ntasks-per-node"));
}

TEST_CASE("variables of a task are for what it runs alone") {
  const Exported script = script_of("run: a, env: ['IFS=:', 'PATH=/x y', TOKEN, OMP_NUM_THREADS], parameters: {rate: 2}, data: {set: /s}");
  CHECK(has(script, "\nexec env \\\n  IFS=: \\\n  PATH='/x y' \\\n  RATE=2 \\\n  SET_DIR=/s \\\n  /bin/sh -c \"$dtrain_run\"\n"));
  CHECK(has(script, "export DATA_DIR=\"$OUTPUT_DIR/.data\"\n"));
  CHECK(has(script, "ln -sfn /s \"$DATA_DIR/set\" || exit\n"));
  CHECK(!has(script, "export OMP_NUM_THREADS"));   // it is what the shell says that submits
  const Exported cluster = script_of("framework: tensorflow, run: a, tensorflow: {distributed: {worker: 2}}");
  for (const char* own : {"\nnumber=", "\ntype=", "\nindex=", "\ncluster=", "\ntask=", "PLACES", "\nplaces"}) CHECK_MESSAGE(!has(cluster, own), own);
}

TEST_CASE("lines that were a manifest's find who they are") {
  const Exported script = script_of("framework: pytorch, run: ['export POD=\"p-worker-$((${DTRAIN_REPLICA##*.} - 1))\"', 'cd \"${DTRAIN_IMAGE_DIR}\"', 'a $RESUME_DIR'], pytorch: {distributed: {worker: 3}}");
  CHECK(has(script, "DTRAIN_REPLICA=\"$SLURM_JOB_ID.master\"\n[ \"$dtrain_number\" -lt 1 ] || { DTRAIN_REPLICA=\"$SLURM_JOB_ID.worker.$((dtrain_number - 0))\"; }\nexport DTRAIN_REPLICA\n"));
  CHECK(!has(script, "DTRAIN_IMAGE_DIR"));
  CHECK(says(script, "not set in a job, and in what is run: RESUME_DIR"));
  CHECK(!has(script_of("run: a"), "DTRAIN_REPLICA"));
}

TEST_CASE("what ends a job of Slurm, and what its ranks have, is said where it is otherwise with dtrain") {
  const std::string gang = "framework: tensorflow, run: a, tensorflow: {distributed: {chief: 1, worker: 1, ps: {count: 1, on-failure: ";
  const Exported ignored = script_of(gang + "ignore}}}"), fails = script_of(gang + "fail}}}");
  CHECK(says(fails, "a parameter server or evaluator that fails does not end the job"));
  CHECK(!says(ignored, "a parameter server"));
  CHECK(!leaves_out(ignored, "on-failure: ignore"));
  CHECK(says(fails, "the job ends when all of its workers have: the chief does not decide"));
  CHECK(!says(script_of(gang + "fail}}}, completion: all-workers"), "the job ends when"));
  CHECK(!says(script_of("run: a"), "the job ends when"));
  const Exported mpi = script_of("framework: mpi, run: a, mpi: {slots: 2, distributed: {launcher: {resources: {cpus: 4}}, worker: {count: 2, resources: {cpus: 2, gpus: 1}}}}");
  CHECK(says(mpi, "the launcher runs beside the first ranks"));
  CHECK(says(mpi, "GPUs are asked for by rank, 1 each; with dtrain the 2 ranks of a worker share 1"));
  CHECK(!says(mpi, "the job ends when"));
}
