#include "engine/server/client.h"

#include <poll.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "engine/comm/place.h"
#include "engine/comm/token.h"
#include "engine/norm.h"
#include "engine/optimizer.h"
#include "engine/server/server.h"
#include "engine/server/shards.h"

namespace dtrain::engine {

using server::Frame;
using server::Lane;
using server::ServerOp;
using server::Request;

namespace {

constexpr int kRedial_ms = 20;

double divisor(uint64_t samples) {
  return static_cast<double>(std::max<uint64_t>(1, samples));
}

}  // namespace

ServerClient::ServerClient(const ServerClientConfig& config, const Layout& layout)
    : config_(config),
      arenas_(1 + OptimizerKernel(config.spec.optimizer, layout).states()),
      introduction_{.job = server_job(config.experiment, config.spec, config.servers.size(), config.workers.size()),
                    .data = config.data,
                    .layout = layout.hash(),
                    .generation = config.rank == 0 ? new_token() : 0,
                    .attempt = config.attempt,
                    .rank = config.rank,
                    .threads = static_cast<uint64_t>(config.threads),
                    .local_sockets = config.local_sockets && config.through.addresses.empty()} {
  const auto servers = static_cast<int>(config.servers.size());
  const std::vector<Range> ranges = shards_of(layout.size(), servers);
  for (int i = 0; i < servers; ++i) {
    const Range range = ranges[static_cast<size_t>(i)];
    if (range.size() == 0) continue;
    const std::string& address = config.servers[static_cast<size_t>(i)];
    lanes_.emplace_back(config.through.addresses.empty()
                            ? address
                            : config.through.addresses[static_cast<size_t>(i)],
                        process_name(Role::Ps, i, address), range);
  }
}

Result<std::unique_ptr<ServerClient>> ServerClient::join(const ServerClientConfig& config,
                                                         const Layout& layout) {
  std::unique_ptr<ServerClient> client(new ServerClient(config, layout));
  for (Lane& lane : client->lanes_) {
    // For each its own: the one before may have had this worker wait for longer.
    auto deadline = Deadline::after(config.spec.deadline_seconds);
    TRY(client->connect(lane, deadline));
    client->introduction_.generation = lane.welcome().generation;
    client->updates_ = client->lanes_.front().welcome().updates;
    client->begun_at_ = lane.welcome().begun_at;
    client->deal_ = client->lanes_.front().welcome().deal;
  }
  client->catch_up(&Lane::welcome);
  // A worker that computes for long is waited for; in step with each other, only worker 0 while it tests and writes.
  if (config.spec.strategy.mode != ServerMode::Sync || config.rank == 0) {
    client->heart_ = std::thread([raw = client.get()] { raw->beat(); });
  }
  return client;
}

ServerClient::~ServerClient() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  if (heart_.joinable()) heart_.join();
}

double ServerClient::beats_every() const { return std::min(2.0, config_.spec.deadline_seconds / 10); }

void ServerClient::beat() {
  const std::chrono::duration<double> pause(beats_every());
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, pause, [this] { return ends_; })) {
    for (Lane& lane : lanes_) {
      if (lane.connected() && !lane.beat(introduction_).ok()) lane.close();
      if (!lane.connected() && config_.rank == 0) find_again(lane, Deadline::after(pause.count()));
    }
  }
}

// A server that was started again hears that worker 0 lives. If it lost its state, the next call says so; before it is
// filled it has none to lose, and others wait there as long as worker 0 has a connection.
void ServerClient::find_again(Lane& lane, Deadline deadline) {
  const bool found = lane.connect(introduction_, deadline).ok();
  if (!found || (filled_ && (lane.welcome().flags & server::kFilled) == 0)) lane.close();
}

// Until it is there, or the deadline, which begins anew whenever the server has this worker wait: who is lost after that
// has as long to start again.
Status ServerClient::connect(Lane& lane, Deadline& deadline) {
  while (true) {
    Status connected = lane.connect(introduction_, deadline);
    if (connected.ok()) break;
    lane.close();
    if (connected.error().code != Code::Unavailable || deadline.expired()) return connected;
    ::poll(nullptr, 0, kRedial_ms);
  }
  const uint64_t generation = lane.welcome().generation;
  if (introduction_.generation != 0 && generation != introduction_.generation) {
    return Error{Code::Aborted, lane.name() + " is of another attempt", ""};
  }
  return ok();
}

Frame ServerClient::frame(ServerOp op) const {
  return {.op = op,
          .generation = introduction_.generation,
          .rank = static_cast<uint32_t>(config_.rank)};
}

// Until each lane has its last answer. Those that have it hear meanwhile that this worker lives: beat() can't tell
// them.
Status ServerClient::exchange(bool fills) {
  struct Watch {
    Deadline deadline;
    bool lost = false;
  };
  const auto anew = [&] { return Deadline::after(config_.spec.deadline_seconds); };
  std::vector<Watch> watches(lanes_.size(), {anew()});
  std::vector<pollfd> polled;
  std::vector<size_t> indices;
  const bool beats = heart_.joinable();
  auto next_beat = Deadline::after(beats_every());
  while (true) {
    polled.clear();
    indices.clear();
    int timeout_ms = INT_MAX;
    if (beats) {
      if (next_beat.expired()) {
        next_beat = Deadline::after(beats_every());
        for (Lane& lane : lanes_) {
          if (lane.done() && lane.connected() && !lane.beat(introduction_).ok()) lane.close();
        }
      }
      timeout_ms = next_beat.remaining_ms();
    }
    for (size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[i];
      if (lane.done()) continue;
      if (!lane.connected()) {
        TRY(connect(lane, watches[i].deadline));
        const bool filled = (lane.welcome().flags & server::kFilled) != 0;
        if (fills && filled) {
          lane.take_welcome();  // all of it came before the connection was lost
          continue;
        }
        if (!fills && !filled) {
          return Error{Code::FailedPrecondition,
                       lane.name() + " was started again without its state",
                       "training goes on from the last checkpoint once all start again"};
        }
      }
      const short writes = lane.writes() ? POLLOUT : 0;
      polled.push_back({lane.socket().fd(), static_cast<short>(POLLIN | writes), 0});
      indices.push_back(i);
      timeout_ms = std::min(timeout_ms, watches[i].deadline.remaining_ms());
    }
    if (indices.empty()) return ok();
    if (::poll(polled.data(), polled.size(), timeout_ms) < 0 && errno != EINTR) {
      return errno_error("poll", errno);
    }
    for (size_t k = 0; k < indices.size(); ++k) {
      Lane& lane = lanes_[indices[k]];
      Watch& watch = watches[indices[k]];
      const short events = polled[k].revents;
      const bool broken = (events & (POLLERR | POLLHUP)) != 0;
      const Status advanced =
          lane.advance(broken || (events & POLLIN) != 0, (events & POLLOUT) != 0);
      if (!advanced.ok()) {
        if (advanced.error().code != Code::Unavailable) return advanced;
        lane.close();
        if (watch.lost) ::poll(nullptr, 0, kRedial_ms);
        // The first time it has as long to start again, however long its answer was waited for.
        if (!std::exchange(watch.lost, true)) watch.deadline = anew();
      }
      // A server that dies of what it is sent is not tried for ever.
      const bool sent = lane.has_sent(), received = lane.has_received();
      if (received || (sent && !watch.lost)) watch.deadline = anew();
      if (watch.deadline.expired() && !lane.done()) return lane.socket().silent(watch.deadline);
    }
  }
}

Status ServerClient::fill(std::span<const float* const> arenas, uint64_t updates, uint64_t begun_at) {
  INVARIANT(arenas.size() == static_cast<size_t>(arenas_), "all arenas are filled");
  const std::scoped_lock lock(mutex_);
  for (Lane& lane : lanes_) {
    std::vector<Request> requests;
    for (size_t i = 0; i < arenas.size(); ++i) {
      Request request{.frame = frame(ServerOp::Write), .payload = arenas[i] + lane.range().begin};
      request.frame.arena = static_cast<uint32_t>(i);
      request.frame.payload = bytes_of(lane);
      requests.push_back(request);
    }
    requests.push_back({.frame = frame(ServerOp::Ready)});
    requests.back().frame.updates = updates;
    requests.back().frame.begun_at = begun_at;
    lane.ask(std::move(requests));
  }
  TRY(exchange(true));
  note_answers();
  updates_ = updates;
  begun_at_ = begun_at;
  filled_ = true;
  return ok();
}

Status ServerClient::ask_all(Frame frame, float* data) {
  const std::scoped_lock lock(mutex_);
  for (Lane& lane : lanes_) {
    lane.data_to(data);
    lane.ask({{.frame = frame}});
  }
  TRY(exchange());
  note_answers();
  return ok();
}

Status ServerClient::pull(float* params) {
  Frame pull = frame(ServerOp::Pull);
  pull.sequence = pushes_;
  return ask_all(pull, params);
}

Status ServerClient::pull_last(float* params) {
  Frame pull = frame(ServerOp::Pull);
  pull.flags = server::kEnds;
  pull.sequence = pushes_;
  return ask_all(pull, params);
}

Status ServerClient::read(int arena, float* values) {
  INVARIANT(arena >= 0 && arena < arenas_, "an arena that the optimiser has");
  Frame read = frame(ServerOp::Read);
  read.arena = static_cast<uint32_t>(arena);
  return ask_all(read, values);
}

Status ServerClient::let_go() {
  return ask_all(frame(ServerOp::GoOn), nullptr);
}

Status ServerClient::leave() {
  return ask_all(frame(ServerOp::Leave), nullptr);
}

Status ServerClient::finish() {
  return ask_all(frame(ServerOp::Finish), nullptr);
}

Outcome ServerClient::learned() const {
  if (lanes_.empty()) return {};
  const Frame& answer = lanes_.front().answer();
  return {.loss = answer.loss, .rows = static_cast<int64_t>(answer.rows)};
}

Status ServerClient::push(const float* grads, double learning_rate, double gradient_scale,
                          float* params, const Outcome& of) {
  const std::scoped_lock lock(mutex_);
  for (Lane& lane : lanes_) {
    Request push{.frame = frame(ServerOp::Push), .payload = grads + lane.range().begin};
    push.frame.flags = params != nullptr ? server::kWantsParams : uint16_t{0};
    push.frame.sequence = pushes_ + 1;
    push.frame.payload = bytes_of(lane);
    push.frame.learning_rate = learning_rate;
    push.frame.gradient_scale = gradient_scale;
    push.frame.deal = deal_;
    push.frame.loss = of.loss;
    push.frame.rows = static_cast<uint64_t>(of.rows);
    lane.data_to(params);
    lane.ask({push});
  }
  TRY(exchange());
  ++pushes_;
  // Who was silent for too long goes on where the slowest are: else these would wait for it to come there.
  if (config_.spec.strategy.mode == ServerMode::Ssp && params != nullptr) catch_up(&Lane::answer);
  note_answers();
  return ok();
}

// In sync no server is left out of a step: one may have done it without this worker, and another wait for it.
void ServerClient::catch_up(const Frame& (Lane::*said)() const) {
  const auto [least, most] = std::ranges::minmax(
      lanes_ | std::views::transform([&](const Lane& lane) { return (lane.*said)().sequence; }));
  pushes_ = std::max(pushes_, config_.spec.strategy.mode == ServerMode::Sync ? least : most);
}

Status ServerClient::push_step(std::span<const NodeSums> nodes, const Outcome& of,
                               double learning_rate, float* params, bool needs_first) {
  INVARIANT(!nodes.empty() && params != nullptr, "a step has gradients and gives parameters");
  const std::scoped_lock lock(mutex_);
  const auto requests_of = [&](const Lane& lane) {
    std::vector<Request> requests;
    for (const NodeSums& node : nodes) {
      Request request{.frame = frame(ServerOp::Node),
                      .payload = node.values + lane.range().begin,
                      .answered = &node == &nodes.back()};
      if (request.answered) request.frame.flags = server::kLast;
      if (needs_first) request.frame.flags |= server::kNeedsFirst;
      request.frame.sequence = pushes_ + 1;
      request.frame.payload = bytes_of(lane);
      request.frame.learning_rate = learning_rate;
      request.frame.samples = static_cast<uint64_t>(of.rows);
      request.frame.loss = of.loss;
      request.frame.leaf_begin = static_cast<uint16_t>(node.begin);
      request.frame.leaf_end = static_cast<uint16_t>(node.end);
      requests.push_back(request);
    }
    return requests;
  };
  for (Lane& lane : lanes_) {
    lane.data_to(params);
    lane.ask(requests_of(lane));
  }
  TRY(exchange());
  if (config_.spec.clip_norm != 0) {
    const Clip clip = clipped();
    for (Lane& lane : lanes_) {
      if (!lane.has_squares()) continue;  // it has applied the step and sent the parameters
      std::vector<Request> requests = requests_of(lane);
      requests.push_back({.frame = frame(ServerOp::Apply)});
      requests.back().frame.sequence = pushes_ + 1;
      // Without the slowest workers, servers may have summed over other samples.
      requests.back().frame.gradient_scale = clip.scale * (clip.samples / divisor(lane.samples()));
      lane.ask(std::move(requests), nodes.size());
    }
    TRY(exchange());
  }
  ++pushes_;
  catch_up(&Lane::answer);
  note_answers();
  return ok();
}

// So that the norm over all servers is not too large; a server that has applied the step already says how.
ServerClient::Clip ServerClient::clipped() const {
  const double samples = divisor(lanes_.front().samples());
  std::vector<double> squares;
  for (const Lane& lane : lanes_) {
    if (const Frame& done = lane.answer(); !lane.has_squares()) return {done.gradient_scale, divisor(done.samples)};
    const double weight = samples / divisor(lane.samples());
    for (const double each : lane.squares()) squares.push_back(each * weight * weight);
  }
  return {clipped_scale(sum_of(squares), 1 / samples, config_.spec.clip_norm), samples};
}

void ServerClient::note_answers() {
  if (lanes_.empty()) return;
  updates_ = lanes_.front().answer().updates;
  deal_ = lanes_.front().answer().deal;
}

uint64_t ServerClient::bytes_of(const Lane& lane) {
  return static_cast<uint64_t>(lane.range().size()) * sizeof(float);
}

}  // namespace dtrain::engine
