#include "runner/thread_count.h"

#include <doctest/doctest.h>

namespace dtrain::runner {
namespace {

long threads(const std::string& line, double cpus = 8, const std::vector<int>& gpus = {}) {
  Spec spec;
  spec.roles.emplace_back().run = {"cd src", line};
  Seat seat;
  seat.replica = {{4, 0}, Role::Train, 0};
  seat.cpus = cpus;
  seat.gpus = gpus;
  return threads_each(spec, seat);
}

TEST_CASE("one process has all cpus, and at least one thread") {
  CHECK(threads("python train.py") == 8);
  CHECK(threads("python train.py", 2.5) == 3);
  CHECK(threads("python train.py", 0.2) == 1);
  CHECK(threads("python train.py -np 4") == 8);
  CHECK(threads("torchrun train.py") == 8);
}

TEST_CASE("several that a launcher starts share them") {
  CHECK(threads("torchrun --nproc-per-node 4 train.py") == 2);
  CHECK(threads("torchrun --nnodes=1 --nproc_per_node=3 train.py") == 3);
  CHECK(threads("python -m torch.distributed.run \\\n  --nproc-per-node 16 \\\n  train.py") == 1);
  CHECK(threads("/usr/bin/mpirun --oversubscribe -np 2 python train.py -n 8") == 4);
  CHECK(threads("mpiexec -n 2 python train.py") == 4);
  CHECK(threads("horovodrun -np 4 python train.py") == 2);
  CHECK(threads("accelerate launch --num_processes 4 train.py") == 2);
  CHECK(threads("python train.py --num_processes 4") == 8);
}

TEST_CASE("one a GPU, where it says so") {
  CHECK(threads("torchrun --nproc-per-node gpu train.py", 8, {0, 1}) == 4);
  CHECK(threads("torchrun --nproc-per-node=auto train.py", 8, {0, 1, 2, 3}) == 2);
  CHECK(threads("torchrun --nproc-per-node gpu train.py") == 8);
}

TEST_CASE("what is no number says nothing") {
  for (const char* line : {"torchrun --nproc-per-node $N train.py", "torchrun --nproc-per-node",
                           "torchrun --nproc-per-node= train.py", "mpirun -np -1 x",
                           "mpirun -np 99999999999999999999 x", ""}) {
    CAPTURE(line);
    CHECK(threads(line) == 8);
  }
}

}  // namespace
}  // namespace dtrain::runner
