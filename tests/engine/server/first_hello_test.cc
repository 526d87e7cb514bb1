#include "engine/server/first_hello.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "servers.h"

namespace dtrain::engine {
namespace {

using server::Frame;
using server::ServerOp;

constexpr uint64_t kJob = 7;

// A server that waits to be told, and what it was told.
class Told {
 public:
  explicit Told(const server::MakePlan& make_plan)
      : doors_(required(server::Doors::open("127.0.0.1:0", DataPath::Raw, kJob))),
        plan_(std::async(std::launch::async, [this, make_plan] {
          return server::wait_for_first_hello(doors_, kJob, 2, make_plan, ending_.get());
        })) {}
  ~Told() { end(); }

  Socket connect() const { return required(Socket::connect(fmt::format("127.0.0.1:{}", doors_.tcp.port()), Deadline::after(10))); }
  Socket connect_locally() const { return required(Socket::connect(doors_.local_address, Deadline::after(10))); }
  void end() {
    const uint64_t one = 1;
    CHECK(::write(ending_.get(), &one, sizeof(one)) == sizeof(one));
  }
  std::optional<ServerPlan> plan() {
    auto first = required(plan_.get());
    if (!first) return std::nullopt;
    CHECK(first->links.front()->in.rank == static_cast<uint32_t>(first->plan.told_by));
    return first->plan;
  }

 private:
  Fd ending_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  server::Doors doors_;
  std::future<Result<std::optional<server::FirstHello>>> plan_;
};

Result<ServerPlan> plan_of(const DataFacts& data) {
  if (data.samples == 0) return Error{Code::InvalidArgument, "there is nothing to learn from", ""};
  Layout layout;
  layout.add({.name = "a", .shape = {data.samples}});
  return ServerPlan{.layout = layout};
}

std::string refusal(Socket socket) {
  Frame frame;
  require_ok(socket.read(&frame, sizeof(frame), Deadline::after(10)));
  CHECK(frame.op == ServerOp::Failure);
  std::string text(frame.payload, '\0');
  require_ok(socket.read(text.data(), text.size(), Deadline::after(10)));
  return text;
}

TEST_CASE("a server hears of the data from the first worker that comes, of whatever rank") {
  Told told(plan_of);
  Socket socket = told.connect_locally();
  say_hello(socket, {.job = kJob, .rank = 1}, {.shape = {}, .samples = 64, .hash = 5});
  const auto plan = told.plan();
  REQUIRE(plan);
  CHECK(plan->layout.size() == 64);
  CHECK(plan->data == DataFacts{.shape = {}, .samples = 64, .hash = 5});
  CHECK(plan->told_by == 1);
}

TEST_CASE("who is of another job, or has data of which nothing can be made, is told so and tells nothing") {
  Told told(plan_of);
  Socket other = told.connect(), empty = told.connect(), unknown = told.connect(), silent = told.connect(),
         garbage = told.connect();
  say_hello(other, {.job = kJob + 1}, {.shape = {}, .samples = 32});
  CHECK(refusal(std::move(other)).find("another experiment") != std::string::npos);
  say_hello(unknown, {.job = kJob, .rank = 2}, {.shape = {}, .samples = 32});
  CHECK(refusal(std::move(unknown)).find("another experiment") != std::string::npos);
  say_hello(empty, {.job = kJob}, {.shape = {}, .samples = 0});
  CHECK(refusal(std::move(empty)).find("nothing to learn from") != std::string::npos);
  const std::string text(200, 'x');
  require_ok(garbage.write(text.data(), text.size(), Deadline::after(10)));
  char byte = 0;
  CHECK(garbage.read(&byte, 1, Deadline::after(10)).error().code == Code::Unavailable);
  Socket socket = told.connect();
  say_hello(socket, {.job = kJob}, {.shape = {}, .samples = 16});
  CHECK(told.plan()->layout.size() == 16);
}

TEST_CASE("a server that nobody came to ends when it is asked to") {
  Told told(plan_of);
  const Socket silent = told.connect();
  told.end();
  CHECK_FALSE(told.plan());
}

}  // namespace
}  // namespace dtrain::engine
