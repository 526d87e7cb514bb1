#include "engine/comm/exchange.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <future>
#include <mutex>

#include "forked.h"
#include "teams.h"

namespace dtrain::engine {
namespace {

constexpr int kSteps = 3;

// The gradient of leaf `leaf` at element `i` in a step: any of very different sizes, so that
// another order of sums shows.
float gradient(int64_t step, int leaf, int64_t i) {
  uint64_t x = static_cast<uint64_t>(step * 1'000'003 + leaf * 7'919 + i * 104'729 + 1);
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  const auto mantissa = static_cast<float>(static_cast<int64_t>(x % 2001) - 1000);
  return mantissa * static_cast<float>(1 << (x / 2001 % 20)) * 1e-4f;
}

float node_gradient(int64_t step, Node node, int64_t i) {
  if (node.level == 0) return gradient(step, static_cast<int>(node.index), i);
  return node_gradient(step, {node.level - 1, 2 * node.index}, i) +
         node_gradient(step, {node.level - 1, 2 * node.index + 1}, i);
}

// One step of one element; the state is a momentum.
void update(float& param, float& state, float sum) {
  state = 0.9f * state + sum;
  param -= 0.01f * state;
}

struct Trained {
  std::vector<float> params, state;
  std::vector<double> blocks;  // of the last step
};

Trained reference(int64_t elements) {
  Trained trained;
  trained.params.resize(static_cast<size_t>(elements), 1);
  trained.state.resize(static_cast<size_t>(elements), 0);
  for (int64_t step = 1; step <= kSteps; ++step) {
    trained.blocks.clear();
    for (int64_t i = 0; i < elements; ++i) {
      const float sum = node_gradient(step, {3, 0}, i);
      if (i % kBlock == 0) trained.blocks.push_back(0);
      trained.blocks.back() += double{sum} * sum;
      update(trained.params[static_cast<size_t>(i)], trained.state[static_cast<size_t>(i)], sum);
    }
  }
  return trained;
}

// What one participant does; the error that ends it.
Status train(Exchange& exchange, Meeting& meeting, Team& team, int me, Deadline deadline) {
  const int world = team.gang().world();
  // Only process 0's host knows where to start.
  if (me == 0) std::ranges::fill(team.params(), 1.0f);
  TRY(exchange.scatter(me, 0, deadline, team.params()));
  TRY(exchange.all_gather_params(me, 0, deadline));
  for (int64_t step = 1; step <= kSteps; ++step) {
    const std::vector<Node> nodes = exchange.nodes_of(me);
    for (size_t a = 0; a < nodes.size(); ++a) {
      const std::span<float> arena = team.gradients(me, static_cast<int>(a));
      for (size_t i = 0; i < arena.size(); ++i) {
        arena[i] = node_gradient(step, nodes[a], static_cast<int64_t>(i));
      }
    }
    const double notes[] = {static_cast<double>(me), static_cast<double>(step)};
    std::vector<double> all(static_cast<size_t>(world) * 2);
    // Backward may tell of what it has, or nothing at all.
    const auto size = static_cast<int64_t>(team.gradients(me).size());
    for (int64_t part = step == 3 ? 0 : 4; part-- > 0;) exchange.ready(me, step, size * part / 4);
    TRY(exchange.collect(me, step, deadline, notes, all));
    for (int p = 0; p < world; ++p) {
      if (all[static_cast<size_t>(2 * p)] != p) return Error{Code::Internal, "wrong note", ""};
      if (all[static_cast<size_t>(2 * p + 1)] != static_cast<double>(step)) {
        return Error{Code::Internal, "wrong step of a note", ""};
      }
    }
    for (const Range slice : exchange.slices(me)) {
      // Block by block, or all of a slice, is the same.
      const int64_t at_once = step == 2 ? kBlock : std::max<int64_t>(1, slice.size());
      for (int64_t at = slice.begin; at < slice.end; at += at_once) {
        const Range part{at, std::min(slice.end, at + at_once)};
        exchange.sum(me, part, team.gradients(me).data() + at);
      }
      for (int64_t i = slice.begin; i < slice.end; ++i) {
        double& block = team.blocks()[static_cast<size_t>(i / kBlock)];
        if (i % kBlock == 0) block = 0;
        const float sum = team.gradients(me)[static_cast<size_t>(i)];
        block += double{sum} * sum;
        update(team.params()[static_cast<size_t>(i)], team.state(0)[static_cast<size_t>(i)], sum);
      }
    }
    TRY(exchange.gather_blocks(me, step, deadline));
    TRY(exchange.all_gather_params(me, step, deadline));
  }
  TRY(exchange.gather(me, kSteps, deadline, team.state(0)));
  const double note[] = {me * 0.5};
  std::vector<double> all(static_cast<size_t>(world));
  TRY(meeting.gather(me, kSteps, deadline, note, all));
  if (all.back() != (world - 1) * 0.5) return Error{Code::Internal, "wrong last note", ""};
  return ok();
}

template <class T>
bool same_bits(std::span<const T> a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TeamPlan plan_for(int64_t elements, int world) {
  return {.elements = elements, .states = 1, .arenas = most_nodes(world, leaf_count(world))};
}

void check_training(const Cast& cast, int64_t elements, const Overlap& overlap = {}) {
  const Trained expected = reference(elements);
  with_gangs(cast, [&](Gang& gang) {
    const auto deadline = Deadline::after(kPatience_seconds);
    auto team = Team::open(gang, plan_for(elements, gang.world()), deadline);
    if (!team.ok()) FAIL_CHECK(team.error().message);
    if (!team.ok()) return;
    Meeting meeting(**team);
    Exchange exchange(**team, meeting, overlap);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < gang.threads(); ++thread) {
      threads.emplace_back([&, thread] {
        const auto status = train(exchange, meeting, **team, gang.first() + thread, deadline);
        if (!status.ok()) FAIL_CHECK(status.error().message);
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(same_bits<float>((*team)->params(), expected.params));
    CHECK(same_bits<double>((*team)->blocks(), expected.blocks));
    if (gang.host() == 0) CHECK(same_bits<float>((*team)->state(0), expected.state));
  });
}

TEST_CASE("every world trains the same bits, over one host and over several") {
  const Cast casts[] = {
      {.threads = {1}},
      {.threads = {2}},
      {.threads = {1, 1}},
      {.threads = {3}},
      {.threads = {4}},
      {.threads = {8}},
      {.threads = {2, 1, 2}},
      {.threads = {1, 1}, .hosts = {0, 1}},
      {.threads = {2, 2}, .hosts = {0, 1}},
      {.threads = {1, 1, 1, 1}, .hosts = {0, 1, 0, 1}},
      {.threads = {1, 1, 1}, .hosts = {0, 1, 2}},
      {.threads = {1, 2, 1, 1}, .hosts = {0, 0, 0, 1}},
      {.threads = {1, 1, 2, 3}, .hosts = {0, 1, 1, 2}},
  };
  for (const Cast& cast : casts) {
    // Less than a slice, less than one each, and not a whole number of blocks.
    for (const int64_t elements : {16, 5 * 4096, 11 * 4096 + 48}) {
      CAPTURE(cast.threads.size());
      CAPTURE(cast.hosts.size());
      CAPTURE(elements);
      check_training(cast, elements);
    }
  }
}

TEST_CASE("the same bits where gradients go to other hosts while backward goes on") {
  const Cast casts[] = {
      {.threads = {1, 1}, .hosts = {0, 1}},
      {.threads = {2, 2}, .hosts = {0, 1}},
      {.threads = {1, 1, 1, 1}, .hosts = {0, 1, 0, 1}},
      {.threads = {1, 1, 1}, .hosts = {0, 1, 2}},
      {.threads = {1, 2, 1, 1}, .hosts = {0, 0, 0, 1}},
  };
  // One bucket, and several that aren't even.
  for (const Cast& cast : casts) {
    for (const int64_t elements : {16, 70 * 4096 + 48}) {
      CAPTURE(cast.threads.size());
      CAPTURE(cast.hosts.size());
      CAPTURE(elements);
      check_training(cast, elements, {.bucket_elements = 8 * 4096, .deadline_seconds = kPatience_seconds});
    }
  }
}

// What process 0 has sent to the others by now.
uint64_t bytes_sent(const Gang& gang) {
  uint64_t sent = 0;
  for (int other = 1; other < gang.size(); ++other) {
    struct tcp_info info = {};
    socklen_t size = sizeof(info);
    CHECK(::getsockopt(gang.peer(other).socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
    sent += info.tcpi_bytes_sent;
  }
  return sent;
}

TEST_CASE("process 0 sends no parameter more than twice, to however many hosts") {
  constexpr int64_t kElements = 64 * 4096;
  with_teams({.threads = {1, 1, 1, 1, 1}, .hosts = {0, 1, 2, 3, 4}}, plan_for(kElements, 5), [=](Team& team, int me) {
    const auto deadline = Deadline::after(kPatience_seconds);
    Meeting meeting(team);
    Exchange exchange(team, meeting);
    const uint64_t before = me == 0 ? bytes_sent(team.gang()) : 0;
    if (me == 0) std::ranges::fill(team.params(), 1.0f);
    CHECK(exchange.scatter(me, 0, deadline, team.params()).ok());
    CHECK(exchange.all_gather_params(me, 0, deadline).ok());
    CHECK(std::ranges::count(team.params(), 1.0f) == kElements);
    if (me == 0) CHECK(bytes_sent(team.gang()) - before < 2 * kElements * sizeof(float));
  });
}

TEST_CASE("gradients that are ready go before the others are computed") {
  constexpr int64_t kElements = 64 * 4096;
  std::promise<void> seen;
  with_gangs({.threads = {1, 1}, .hosts = {0, 1}}, [&](Gang& gang) {
    const auto deadline = Deadline::after(kPatience_seconds);
    auto team = Team::open(gang, plan_for(kElements, 2), deadline);
    if (!team.ok()) FAIL_CHECK(team.error().message);
    if (!team.ok()) return;
    if (gang.self() == 1) {
      FrameHeader header;
      CHECK(gang.peer(0).socket.read(&header, sizeof(header), deadline).ok());
      CHECK(header.op == Op::Gradients);
      CHECK(header.bytes == kElements / 4 * sizeof(float));
      seen.set_value();
      return;
    }
    Meeting meeting(**team);
    Exchange exchange(**team, meeting, {.bucket_elements = kElements / 2, .deadline_seconds = kPatience_seconds});
    exchange.ready(0, 1, kElements / 2 + 16);  // not all of the first bucket
    exchange.ready(0, 1, kElements / 2);
    CHECK(seen.get_future().wait_until(deadline.at()) == std::future_status::ready);
    // Nobody answers any more, and that is found where it is waited for.
    const auto status = exchange.collect(0, 1, deadline);
    CHECK(!status.ok());
    if (!status.ok()) CHECK(status.error().message.find("worker 1 at 127.0.0.1:") == 0);
  });
}

// Trains over three pretended hosts, of which the second does `end` in the middle of a frame.
std::vector<std::string> broken_frame(const Overlap& overlap, double deadline_seconds, const std::function<void()>& end) {
  constexpr int64_t kElements = 6'000'000;
  return forked({.threads = {1, 1, 1}, .hosts = {0, 1, 2}}, [&](Gang& gang) -> std::string {
    auto team = Team::open(gang, plan_for(kElements, 3), Deadline::after(kPatience_seconds));
    if (!team.ok()) return team.error().message;
    Meeting meeting(**team);
    Exchange exchange(**team, meeting, overlap);
    if (gang.self() == 1) {
      FrameHeader header{.magic = frame_magic(gang.key()), .op = Op::Gradients, .sequence = 1};
      const std::vector<Node> nodes = exchange.nodes_of(1);
      header.bytes = static_cast<uint64_t>(exchange.slices(0).front().size()) * sizeof(float) * nodes.size();
      const std::vector<char> some(1000);
      const iovec parts[] = {{&header, sizeof(header)},
                             {const_cast<char*>(some.data()), some.size()}};
      if (!gang.peer(0).socket.write(parts, Deadline::after(kPatience_seconds)).ok()) return "?";
      end();
    }
    exchange.ready(gang.first(), 7, kElements / 2);
    const auto status = exchange.collect(gang.first(), 7, Deadline::after(deadline_seconds));
    return status.ok() ? "passed" : status.error().message;
  });
}

const Overlap kOverlaps[] = {{}, {.bucket_elements = 1'000'000, .deadline_seconds = 1e4}};

TEST_CASE("a process killed in the middle of a frame is named at once") {
  for (const Overlap& overlap : kOverlaps) {
    CAPTURE(overlap.bucket_elements);
    const auto texts = broken_frame(overlap, 1e4, [] { ::raise(SIGKILL); });
    CHECK(texts[0].find("worker 1 at 127.0.0.1:") != std::string::npos);
    CHECK(texts[0].find(" after step 7 (all-reduce)") != std::string::npos);
    CHECK(texts[0].find("worker 2") == std::string::npos);
    CHECK(texts[2].find("worker 1 at 127.0.0.1:") != std::string::npos);
  }
}

TEST_CASE("a process that stopped in the middle of a frame is named on the deadline") {
  for (Overlap overlap : kOverlaps) {
    CAPTURE(overlap.bucket_elements);
    overlap.deadline_seconds = 0.5;
    const auto texts = broken_frame(overlap, 0.5, [] { ::raise(SIGSTOP); });
    CHECK(texts[0].find("worker 1 at 127.0.0.1:") == 0);
    CHECK(texts[0].find(" did not answer for 0.5 s after step 7 (all-reduce)") != std::string::npos);
    CHECK(texts[2].find("worker 1 at 127.0.0.1:") == 0);
  }
}

TEST_CASE(
    "who waits for gradients goes on where those it waits for still move data among themselves") {
  std::mutex mutex;
  std::vector<std::string> texts;
  with_gangs({.threads = {2, 1, 1}, .hosts = {0, 1, 2}}, [&](Gang& gang) {
    auto team = Team::open(gang, {.elements = 60 * kBlock, .arenas = 8},
                           Deadline::after(kPatience_seconds));
    REQUIRE(team.ok());
    Meeting meeting(**team);
    Exchange exchange(**team, meeting, {.bucket_elements = 20 * kBlock, .deadline_seconds = 0.5});
    const auto collect = [&](int me) {
      Status status = ok();
      for (const auto busy = Deadline::after(2.5);
           gang.self() > 0 && status.ok() && !busy.expired();) {
        gang.asking().has_moved();
        status = (*team)->look({17, "all-reduce"}, [&] { return gang.self(); });
      }
      if (status.ok()) status = exchange.collect(me, 17, Deadline::after(0.5));
      const std::lock_guard lock(mutex);
      texts.push_back(status.ok() ? "passed" : status.error().message);
    };
    std::vector<std::thread> threads;
    for (int thread = 0; thread < gang.threads(); ++thread)
      threads.emplace_back(collect, gang.first() + thread);
    for (std::thread& thread : threads) thread.join();
  });
  CHECK(texts.size() == 4);
  for (const std::string& text : texts) CHECK_MESSAGE(text == "passed", text);
}

TEST_CASE("what a process said before it ended is told, not that it is gone") {
  const auto texts = forked({.threads = {1, 1}, .hosts = {0, 1}}, [](Gang& gang) -> std::string {
    auto team = Team::open(gang, plan_for(16, 2), Deadline::after(kPatience_seconds));
    if (!team.ok()) return team.error().message;
    if (gang.self() == 0) return (*team)->fail({Code::DataLoss, "the loss is not a number", ""}).message;
    Meeting meeting(**team);
    Exchange exchange(**team, meeting);
    while (!gang.peer(0).socket.has_hung_up()) std::this_thread::yield();
    const auto status = exchange.collect(1, 1, Deadline::after(kPatience_seconds));
    return status.ok() ? "passed" : status.error().message;
  });
  CHECK(texts[1] == "the loss is not a number");
}

TEST_CASE("processes out of step say so") {
  std::mutex mutex;
  std::string text;
  with_gangs({.threads = {1, 1}, .hosts = {0, 1}}, [&](Gang& gang) {
    const auto deadline = Deadline::after(kPatience_seconds);
    auto team = Team::open(gang, plan_for(10'000, 2), deadline);
    if (!team.ok()) return;
    Meeting meeting(**team);
    Exchange exchange(**team, meeting);
    const auto status = gang.self() == 0 ? exchange.all_gather_params(0, 1, deadline)
                                         : exchange.collect(1, 1, deadline);
    const std::lock_guard lock(mutex);
    if (!status.ok()) text += status.error().message + "\n";
  });
  CHECK(text.find("is out of step: it sends") != std::string::npos);
}

}  // namespace
}  // namespace dtrain::engine
