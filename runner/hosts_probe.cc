#include "runner/hosts_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "runner/probe_disk.h"
#include "runner/probe_server.h"
#include "schema/endpoint.h"
#include "schema/sha256.h"
#include "schema/small_file.h"

namespace dtrain::runner {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr auto kReachTime = 5s;       // to dial one of the others; all are dialled at once
constexpr auto kDiskTime = 8s;        // a disk that takes longer is left to itself
constexpr auto kGatherTime = 8s;      // from the begin, until who is not reached and has not dialled is left out
constexpr auto kAloneTime = 3s;       // more, for whoever nobody was reached by
constexpr auto kMeasureTime = 8s;     // of one pair
constexpr auto kTournamentTime = 55s; // rounds that would begin later are left out
constexpr auto kAllTime = 80s;
constexpr auto kFarewellTime = 1s;
constexpr size_t kOutputBytes = 64 << 10;
constexpr int kLeader = 0;             // who says who measures
constexpr const char* kMeasured = "measured";
constexpr const char* kNotMeasured = "not measured";

std::string own_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Lines of several threads.
void say_fact(const ProbeFact& fact) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  fmt::print("{}", to_line(fact));
  std::fflush(stdout);
}

struct Gang {
  int own = 0;
  std::vector<ProbePeer> peers;   // with this host
};

Result<Gang> read_gang() {
  Gang gang;
  const std::string text = own_variable("TF_CONFIG");
  if (text.empty()) {   // it is alone
    gang.peers.push_back({0, own_variable("DTRAIN_ADDRESS"), 0});
    return gang;
  }
  const auto config = nlohmann::json::parse(text, nullptr, false);
  const nlohmann::json::json_pointer workers("/cluster/worker"), index("/task/index");
  if (config.is_discarded() || !config.contains(workers) || !config.at(workers).is_array() || !config.contains(index)) {
    return Error{Code::InvalidArgument, "TF_CONFIG is not what dtrain writes", ""};
  }
  gang.own = config.at(index).get<int>();
  for (const auto& worker : config.at(workers)) {
    const auto endpoint = parse_endpoint(worker.get<std::string>());
    if (!endpoint) return Error{Code::InvalidArgument, "TF_CONFIG names a worker that is no address with a port", ""};
    gang.peers.push_back({static_cast<int>(gang.peers.size()), endpoint->host, endpoint->port});
  }
  if (gang.own < 0 || gang.own >= static_cast<int>(gang.peers.size())) return Error{Code::InvalidArgument, "TF_CONFIG has no such task", ""};
  return gang;
}

// In a thread that nobody waits for longer than that: a file server that hangs keeps it for ever. False: it does.
bool look_at_disk(const fs::path& directory, bool is_output) {
  struct Look {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<ProbeDisk> disk;
  };
  const auto look = std::make_shared<Look>();
  std::thread([look, directory, is_output, who = own_variable("DTRAIN_REPLICA")] {
    ProbeDisk disk = probe_disk(directory, who, is_output);
    const std::lock_guard lock(look->mutex);
    look->disk = std::move(disk);
    look->done.notify_all();
  }).detach();
  std::unique_lock lock(look->mutex);
  const bool is_in_time = look->done.wait_for(lock, kDiskTime, [&] { return look->disk.has_value(); });
  say_fact(is_in_time ? *look->disk : ProbeDisk{is_output, 0, 0, fmt::format("writing takes longer than {} s", kDiskTime.count())});
  return is_in_time;
}

void leave_output(int own) {
  const fs::path directory = own_variable("OUTPUT_DIR");
  std::string bytes(kOutputBytes, '\0');
  for (size_t at = 0; at < bytes.size(); at += 256) (void)::getrandom(bytes.data() + at, 256, 0);
  if (write_file(directory / hosts_test_output(own), bytes).ok()) say_fact(ProbeWrote{to_hex(sha256(bytes))});
}

class Probe {
 public:
  explicit Probe(Gang gang)
      : gang_(std::move(gang)),
        experiment_(own_variable("DTRAIN_SUBMISSION")),
        reached_(gang_.peers.size()),
        lines_(gang_.peers.size()),
        server_(experiment_, gang_.own, [this](int fd) {
          follow_orders(fd);
          server_.finish();
        }) {}

  Status run() {
    if (gang_.peers.size() > 1) TRY(server_.listen(std::atoi(own_variable("DTRAIN_PORT").c_str())));
    const auto sent = read_file(kHostsTestSent);
    say_fact(ProbeBegan{sent.ok() && *sent ? to_hex(sha256(**sent)) : ""});
    std::thread reaching([this] { reach_all(); });
    look_at_disk(".", false);
    if (look_at_disk(own_variable("OUTPUT_DIR"), true)) leave_output(gang_.own);
    reaching.join();
    ready_.set_value();
    if (gang_.peers.size() > 1) {
      gang_.own == kLeader ? lead() : follow();
      bid_farewell();
    }
    say_fact(ProbeDone{});
    return ok();
  }

 private:
  int size() const { return static_cast<int>(gang_.peers.size()); }
  ProbeDialled dial(int to, ProbePurpose purpose, ProbeTime deadline, bool waits_for_it = false) const {
    return dial_probe(gang_.peers[static_cast<size_t>(to)], {experiment_, gang_.own, to, purpose}, deadline, waits_for_it);
  }
  // visit(index) for each of the others that is to be, all at once.
  template <class Visit>
  void all_at_once(const std::vector<int>& indices, Visit visit) {
    std::vector<std::thread> threads;
    for (const int index : indices) threads.emplace_back([&visit, index] { visit(index); });
    for (std::thread& one : threads) one.join();
  }

  void reach_all() {
    std::vector<int> others;
    for (int index = 0; index < size(); ++index) {
      if (index != gang_.own) others.push_back(index);
    }
    const auto deadline = Clock::now() + kReachTime;
    all_at_once(others, [&](int index) {
      const ProbeDialled dialled = dial(index, ProbePurpose::Hello, deadline, true);
      reached_[static_cast<size_t>(index)] = dialled.reach == Reach::Reached;
      say_fact(ProbeReach{index, dialled.reach, dialled.error});
    });
  }
  bool has_reached(int index) const { return reached_[static_cast<size_t>(index)]; }

  // False: the other was not reached, now or before.
  bool measure(int to) {
    if (!has_reached(to)) return false;
    const auto deadline = Clock::now() + kMeasureTime;
    const ProbeDialled pings = dial(to, ProbePurpose::Ping, deadline);
    if (!pings.fd) return false;
    const auto pinged = ping(pings.fd.get(), deadline);
    if (!pinged) return false;
    const ProbeDialled up = dial(to, ProbePurpose::Upload, deadline);
    const double sent = up.fd ? send_for_a_while(up.fd.get(), deadline) : 0;
    const ProbeDialled down = dial(to, ProbePurpose::Download, deadline);
    const double received = down.fd ? receive_for_a_while(down.fd.get(), false, deadline) : 0;
    say_fact(ProbeLink{to, pinged->round_trip_ms, sent, received, pinged->clock_ahead_ms});
    return true;
  }

  void follow_orders(int fd) {
    const auto deadline = Clock::now() + kAllTime;
    is_ready_.wait_until(deadline);   // who gives orders was so before
    while (const auto order = read_probe_line(fd, deadline)) {
      const int to = std::atoi(order->c_str());
      const bool is_other = to >= 0 && to < size() && to != gang_.own;
      if (!write_probe_line(fd, is_other && measure(to) ? kMeasured : kNotMeasured, Clock::now() + kFarewellTime)) return;
    }
  }

  // Another than the first: does as that one says.
  void follow() {
    const auto end = Clock::now() + kAllTime;
    if (has_reached(kLeader)) {
      const ProbeDialled work = dial(kLeader, ProbePurpose::Work, Clock::now() + kReachTime);
      if (work.fd) {
        follow_orders(work.fd.get());
        return server_.finish();
      }
    }
    // The first may reach this one all the same, or others may that know when all is measured.
    const bool is_alone = std::none_of(reached_.begin(), reached_.end(), [](const auto& reached) { return reached.load(); }) && !server_.was_reached();
    server_.wait_for_finish(is_alone ? Clock::now() + kAloneTime : end);
  }

  void lead() {
    for (int index = 1; index < size(); ++index) {
      Fd& line = lines_[static_cast<size_t>(index)];
      if (has_reached(index)) line = dial(index, ProbePurpose::Orders, Clock::now() + kFarewellTime).fd;
      if (!line) line = server_.take_worker(index, begin_ + kGatherTime);   // it may reach this one all the same
    }
    play(Clock::now() + kTournamentTime);
    for (Fd& line : lines_) line.reset();
  }

  // Each with each, in rounds of pairs: one stays, the others go round it.
  void play(ProbeTime deadline) {
    const int places = size() + size() % 2;   // who meets the last of an odd number has nothing to do
    for (int round = 0; round < places - 1; ++round) {
      if (Clock::now() > deadline) return say_fact(ProbeLeftOut{round, places - 1});
      std::vector<std::thread> pairs;
      for (int pair = 0; pair < places / 2; ++pair) {
        const int one = pair == 0 ? places - 1 : (round + pair) % (places - 1);
        const int other = (round + places - 1 - pair) % (places - 1);
        if (one >= size() || other >= size()) continue;
        pairs.emplace_back([this, one, other] {
          if (!have_measured(one, other)) have_measured(other, one);
        });
      }
      for (std::thread& pair : pairs) pair.join();
    }
  }

  bool have_measured(int from, int to) {
    if (from == gang_.own) return measure(to);
    Fd& line = lines_[static_cast<size_t>(from)];
    if (!line) return false;
    const auto deadline = Clock::now() + kMeasureTime + kFarewellTime;
    (void)write_probe_line(line.get(), std::to_string(to), deadline);
    const auto answer = read_probe_line(line.get(), deadline);
    if (!answer) line.reset();   // what it answers later would be taken for another answer
    return answer == kMeasured;
  }

  // To whom the first does not reach.
  void bid_farewell() {
    std::vector<int> others;
    for (int index = 0; index < size(); ++index) {
      if (index != gang_.own && has_reached(index)) others.push_back(index);
    }
    all_at_once(others, [&](int index) { (void)dial(index, ProbePurpose::Finish, Clock::now() + kFarewellTime); });
  }

  const ProbeTime begin_ = Clock::now();
  const Gang gang_;
  const std::string experiment_;
  std::vector<std::atomic<bool>> reached_;   // by index
  std::promise<void> ready_;                 // disks are looked at, and all the others were dialled
  std::shared_future<void> is_ready_ = ready_.get_future().share();
  std::vector<Fd> lines_;                    // of the first: by which orders go
  ProbeServer server_;                       // last: its threads use all of these
};

}  // namespace

Status run_hosts_probe() {
  if (own_variable("DTRAIN_SUBMISSION").empty()) {
    return Error{Code::FailedPrecondition, "hosts-probe is what `dtrain hosts test` starts on each host", "dtrain hosts test"};
  }
  TRY(Gang gang, read_gang());
  TRY(Probe(std::move(gang)).run());
  return ok();
}

}  // namespace dtrain::runner
