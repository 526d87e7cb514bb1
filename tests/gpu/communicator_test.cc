// What members of a group tell each other, with as many as one GPU allows: itself alone, and one that never comes.
// Several are tried by trainings on emulated devices.
#include "engine/cuda/communicator.h"

#include <array>

#include "tests/gpu/device_array.h"

namespace dtrain::engine::cuda {
namespace {

// Nothing where NCCL is not, which is said.
std::optional<Communicator::Id> test_id() {
  const auto id = Communicator::make_id();
  if (id.ok()) return *id;
  tests::say_skipped(id.error().message);
  return std::nullopt;
}

std::unique_ptr<Communicator> open_alone(const Communicator::Id& id) {
  auto alone = Communicator::open(id, 0, 1, 30);
  if (!alone.ok()) FAIL(alone.error().message);
  return std::move(*alone);
}

void check_status(Communicator& alone) {
  const Status status = alone.status();
  if (!status.ok()) FAIL(status.error().message);
}

TEST_CASE("a member alone has its own values of all that it is told") {
  const auto context = test_context();
  if (context == nullptr) return;
  const auto id = test_id();
  if (!id) return;
  const auto alone = open_alone(*id);
  const cudaStream_t stream = context->stream();
  const std::vector<double> numbers{1, -2, 3.5, 4, 0.25};
  const auto count = static_cast<int64_t>(numbers.size());
  Array<float> floats(*context, to<float>(numbers)), gathered(*context, numbers.size()), passed(*context, numbers.size());
  Array<double> doubles(*context, numbers);
  Array<Bfloat16> halves(*context, to<Bfloat16>(numbers));
  for (int step = 0; step < 3; ++step) {
    alone->all_reduce(stream, floats.data(), count);
    alone->all_reduce(stream, doubles.data(), count);
    alone->all_reduce(stream, halves.data(), count);
    alone->broadcast(stream, floats.data(), std::array{Range{0, 2}, Range{3, count}}, 0);
    alone->gather(stream, floats.data(), gathered.data(), count);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
    alone->pass(stream, {.out = gathered.data(), .out_bytes = bytes, .to = 0, .in = passed.data(), .in_bytes = bytes, .from = 0});
    alone->pass(stream, {});
    check_status(*alone);
  }
  CHECK(back(floats.read()) == numbers);
  CHECK(doubles.read() == numbers);
  CHECK(back(halves.read()) == numbers);
  CHECK(back(gathered.read()) == numbers);
  CHECK(back(passed.read()) == numbers);
  check_status(*alone);
}

TEST_CASE("a member that never comes is given up at the deadline, and another group meets afterwards") {
  const auto context = test_context();
  if (context == nullptr) return;
  const auto id = test_id();
  if (!id) return;
  const auto pair = Communicator::open(*id, 0, 2, 1);
  REQUIRE(!pair.ok());
  CHECK_MESSAGE(pair.error().code == Code::DeadlineExceeded, pair.error().message);
  const auto alone = open_alone(*test_id());
  Array<float> value(*context, std::vector<float>{7});
  alone->all_reduce(context->stream(), value.data(), 1);
  CHECK(value.read()[0] == 7);
}

TEST_CASE("who has given up is told so, and asks for nothing more") {
  const auto context = test_context();
  if (context == nullptr) return;
  const auto id = test_id();
  if (!id) return;
  const auto alone = open_alone(*id);
  Array<float> value(*context, std::vector<float>{7});
  alone->all_reduce(context->stream(), value.data(), 1);
  finish(*context);
  Communicator::abort({alone.get()});
  Communicator::abort({alone.get()});
  alone->all_reduce(context->stream(), value.data(), 1);
  finish(*context);
  const Status status = alone->status();
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::Aborted);
}

}  // namespace
}  // namespace dtrain::engine::cuda
