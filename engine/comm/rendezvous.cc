#include "engine/comm/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "engine/comm/hash.h"
#include "engine/comm/hello.h"
#include "engine/comm/share_host.h"
#include "engine/comm/token.h"

namespace dtrain::engine {
namespace {

// Between two tries to reach one that does not listen yet.
constexpr double kRetry_seconds = 0.02;
// To one that does not answer at all: the others wait meanwhile.
constexpr double kConnect_seconds = 0.5;

// A connection of which the hello has not come whole.
struct Arrival {
  Socket socket;
  Hello hello;
  size_t got = 0;

  // True once it is whole.
  Result<bool> read() {
    TRY(const size_t count,
        socket.read_some(reinterpret_cast<char*>(&hello) + got, sizeof(hello) - got));
    got += count;
    return got == sizeof(hello);
  }
};

// One other process of the place.
struct Expected {
  std::string name;
  std::optional<Arrival> asked;  // connected to, its answer has not come
  Socket socket;                 // once met
  Hello hello;
  bool met = false;
};

class Rendezvous {
 public:
  Rendezvous(const Attendance& own, Hello hello, Listener& listener, Deadline deadline)
      : own_(own), hello_(hello), listener_(listener), deadline_(deadline) {
    for (size_t i = 0; i < own.place.workers.size(); ++i) {
      others_.emplace_back();
      others_.back().name = process_name(Role::Worker, static_cast<int>(i), own.place.workers[i]);
    }
    self().met = true;
    self().hello = hello;
  }

  Status run() {
    while (true) {
      TRY(ask());
      if (complete()) return ok();
      if (deadline_.expired()) TRY(wait_on());
      TRY(wait());
      TRY(read_answers());
      TRY(accept());
      TRY(read_arrivals());
    }
  }

  std::vector<Expected>& all() { return others_; }

 private:
  Expected& self() { return others_[static_cast<size_t>(own_.place.index)]; }
  bool complete() const {
    return std::ranges::all_of(others_, [](const Expected& other) { return other.met; });
  }

  template <class Is>
  std::string names_of_missing(Is is) const {
    std::string names;
    for (const Expected& other : others_) {
      if (!other.met && is(other)) names += (names.empty() ? "" : ", ") + other.name;
    }
    return names;
  }
  std::string names_of_missing() const {
    return names_of_missing([](const Expected&) { return true; });
  }

  // Those who listen and have nothing to say read their data still.
  Status wait_on() {
    const std::string gone = names_of_missing([this](const Expected& other) { return !listens(other); });
    if (!gone.empty() || last_.expired()) {
      const double waited = gone.empty() ? last_.seconds() : deadline_.seconds();
      return Error{Code::DeadlineExceeded,
                   fmt::format("{} did not come for {:g} s", gone.empty() ? names_of_missing() : gone, waited),
                   "look at the logs of those processes"};
    }
    const std::string late = names_of_missing();
    if (late != waits_on_) fmt::print(stderr, "waiting for {}, which listens and reads its data still\n", late);
    waits_on_ = late;
    deadline_ = Deadline::after(deadline_.seconds());
    return ok();
  }

  bool listens(const Expected& other) const {
    if (other.asked) return !other.asked->socket.has_hung_up();
    return Socket::try_connect(own_.place.workers[static_cast<size_t>(&other - others_.data())], Deadline::after(kConnect_seconds))
        .ok();
  }

  // Connects to those before this one and says hello.
  Status ask() {
    if (Deadline::Clock::now() < next_try_) return ok();
    for (int process = 0; process < own_.place.index; ++process) {
      Expected& other = others_[static_cast<size_t>(process)];
      if (other.met || other.asked) continue;
      const double left = deadline_.remaining_ms() / 1e3;
      auto socket = Socket::try_connect(own_.place.workers[static_cast<size_t>(process)],
                                        Deadline::after(std::min(kConnect_seconds, left)));
      if (!socket.ok()) {
        if (socket.error().code == Code::Unavailable) continue;
        return std::move(socket).error().with_context(other.name);
      }
      // A new socket has room for it.
      if (socket->write(&hello_, sizeof(hello_), deadline_).ok()) {
        other.asked.emplace();
        other.asked->socket = std::move(*socket);
      }
    }
    next_try_ = Deadline::after(kRetry_seconds).at();
    return ok();
  }

  Status wait() {
    std::vector<pollfd> sockets{{listener_.fd(), POLLIN, 0}};
    bool unasked = false;
    for (int process = 0; process < static_cast<int>(others_.size()); ++process) {
      const Expected& other = others_[static_cast<size_t>(process)];
      if (other.asked) sockets.push_back({other.asked->socket.fd(), POLLIN, 0});
      if (other.socket) sockets.push_back({other.socket.fd(), POLLRDHUP, 0});
      unasked |= !other.met && !other.asked && process < own_.place.index;
    }
    for (const Arrival& arrival : arrivals_) sockets.push_back({arrival.socket.fd(), POLLIN, 0});
    const int retry_ms = static_cast<int>(kRetry_seconds * 1e3);
    const int left_ms = deadline_.remaining_ms();
    if (::poll(sockets.data(), sockets.size(), unasked ? std::min(left_ms, retry_ms) : left_ms) <
            0 &&
        errno != EINTR) {
      return errno_error("poll", errno);
    }
    for (const Expected& other : others_) {
      if (other.socket && other.socket.has_hung_up()) {
        return Error{Code::Unavailable,
                     fmt::format("{} ended while waiting for {}", other.name, names_of_missing()),
                     "look at the log of that process"};
      }
    }
    return ok();
  }

  Status read_answers() {
    for (int process = 0; process < own_.place.index; ++process) {
      Expected& other = others_[static_cast<size_t>(process)];
      if (!other.asked) continue;
      auto whole = other.asked->read();
      if (whole.ok() && !*whole) continue;
      const Hello& answer = other.asked->hello;
      // Who else may be there is on its way out, or is no process of ours: try again.
      if (!whole.ok() || !is_of_us(answer) || answer.process != static_cast<uint32_t>(process)) {
        other.asked.reset();
        continue;
      }
      TRY(check(process, answer));
      admit(other, std::move(other.asked->socket), answer);
      other.asked.reset();
    }
    return ok();
  }

  Status accept() {
    while (true) {
      auto socket = listener_.accept(Deadline::after(0));
      if (socket.ok()) {
        // Those of ours say hello at once: who has waited longest is a stranger.
        if (arrivals_.size() == kMostArrivals) arrivals_.erase(arrivals_.begin());
        arrivals_.emplace_back();
        arrivals_.back().socket = std::move(*socket);
      } else if (socket.error().code == Code::DeadlineExceeded) {
        return ok();
      } else {
        return std::move(socket).error();
      }
    }
  }

  Status read_arrivals() {
    for (size_t i = 0; i < arrivals_.size();) {
      auto whole = arrivals_[i].read();
      if (whole.ok() && !*whole) {
        ++i;
        continue;
      }
      Arrival arrival = std::move(arrivals_[i]);
      arrivals_.erase(arrivals_.begin() + static_cast<long>(i));
      const auto process = static_cast<int64_t>(arrival.hello.process);
      if (!whole.ok() || !is_of_us(arrival.hello) || process <= own_.place.index) continue;
      // It is told who we are even if we do not fit, so that both can say why.
      if (!arrival.socket.write(&hello_, sizeof(hello_), deadline_).ok()) continue;
      TRY(check(static_cast<int>(process), arrival.hello));
      admit(others_[static_cast<size_t>(process)], std::move(arrival.socket), arrival.hello);
    }
    return ok();
  }

  bool is_of_us(const Hello& hello) const {
    return hello.magic == Hello::kMagic && hello.purpose == Purpose::Gang &&
           hello.key == hello_.key;
  }

  Status check(int process, const Hello& hello) {
    const auto differ = [&](const char* what, uint64_t theirs, uint64_t ours) {
      const std::string name = process < static_cast<int>(others_.size())
                                   ? others_[static_cast<size_t>(process)].name
                                   : fmt::format("worker {}", process);
      return Error{Code::FailedPrecondition,
                   fmt::format("{} and {} do not fit: {} is {:#x} there and {:#x} here", name,
                               self().name, what, theirs, ours),
                   "start all replicas with the same configuration, data and engine"};
    };
    if (hello.version != hello_.version) {
      return differ("the protocol", hello.version, hello_.version);
    }
    if (hello.processes != hello_.processes || hello.process >= hello_.processes) {
      return differ("the number of workers", hello.processes, hello_.processes);
    }
    if (hello.layout_hash != hello_.layout_hash) {
      return differ("the model's layout", hello.layout_hash, hello_.layout_hash);
    }
    if (hello.spec_hash != hello_.spec_hash) {
      return differ("the configuration, or the data,", hello.spec_hash, hello_.spec_hash);
    }
    if (hello.threads == 0 || hello.threads > kMostThreads) {
      return differ("the number of threads", hello.threads, hello_.threads);
    }
    return ok();
  }

  void admit(Expected& other, Socket socket, const Hello& hello) {
    other.socket = std::move(socket);
    other.socket.set_name(other.name);
    other.hello = hello;
    other.met = true;
  }

  static constexpr uint32_t kMostThreads = 4096;
  static constexpr size_t kMostArrivals = 1024;

  const Attendance& own_;
  const Hello hello_;
  Listener& listener_;
  Deadline deadline_;  // of those who don't listen
  const Deadline last_ = Deadline::after(std::max(kReadSeconds, deadline_.seconds()));
  std::string waits_on_;  // as was said last
  std::vector<Expected> others_;
  std::vector<Arrival> arrivals_;
  Deadline::Clock::time_point next_try_{};
};

// What is said of a wait in vain: who waits for one that is gone seems silent, too.
Error name_the_gone(const std::vector<std::unique_ptr<Peer>>& peers, Error error) {
  if (error.code != Code::DeadlineExceeded && error.code != Code::Unavailable) return error;
  std::string names;
  for (const auto& peer : peers) {
    if (peer->socket && peer->socket.has_hung_up()) names += (names.empty() ? "" : ", ") + peer->name;
  }
  if (names.empty()) return error;
  return {Code::Unavailable, names + " closed the connection", "look at the log of that process"};
}

}  // namespace

uint64_t host_identity() {
  const Fd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[64] = {};
  if (!file || ::read(file.get(), text, sizeof(text)) <= 0) return 0;
  // Abstract addresses reach as far as the network namespace.
  struct stat space {};
  if (::stat("/proc/self/ns/net", &space) != 0) return 0;
  const std::string both = fmt::format("{} {}", std::string_view(text), space.st_ino);
  return hash_of(both) | 1;
}

Result<Listener> listen_for_others(const Place& place) {
  if (place.workers.size() < 2) return Listener();
  TRY(const HostPort at, parse_host_port(listening_address(place.address())));
  return Listener::open(at.host, at.port);
}

Result<std::unique_ptr<Gang>> meet(const Attendance& own, Deadline deadline, Listener listener) {
  INVARIANT(own.place.role == Role::Worker, "only workers meet");
  Hello hello;
  hello.key = own.place.key;
  hello.process = static_cast<uint32_t>(own.place.index);
  hello.processes = static_cast<uint32_t>(own.place.workers.size());
  hello.threads = static_cast<uint32_t>(own.threads);
  hello.layout_hash = own.layout_hash;
  hello.spec_hash = own.spec_hash;
  std::copy_n(own.instructions.begin(), std::min(own.instructions.size(), hello.instructions.size()),
              hello.instructions.begin());
  if (const uint64_t host = host_identity(); host != 0) {
    hello.host = hash_of(std::to_string(own.pretended_host), host);
  }

  HostSharing sharing(hello.key, new_token());
  if (hello.processes > 1) {
    if (!listener) {
      TRY(listener, listen_for_others(own.place));
    }
    hello.nonce = sharing.listen();
  }
  Rendezvous meeting(own, hello, listener, deadline);
  TRY(meeting.run());

  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<Hello> hellos;
  for (Expected& other : meeting.all()) {
    auto peer = std::make_unique<Peer>();
    peer->name = other.name;
    peer->address = own.place.workers[other.hello.process];
    peer->threads = static_cast<int>(other.hello.threads);
    const auto& instructions = other.hello.instructions;
    peer->instructions.assign(instructions.begin(), std::ranges::find(instructions, '\0'));
    peer->socket = std::move(other.socket);
    peers.push_back(std::move(peer));
    hellos.push_back(other.hello);
  }
  const Deadline from_now = Deadline::after(deadline.seconds());
  if (auto decided = sharing.decide(hellos, own.place.index, peers, from_now); !decided.ok()) {
    return name_the_gone(peers, std::move(decided).error());
  }
  return std::make_unique<Gang>(own.place.index, own.place.key, std::move(listener),
                                std::move(peers));
}

}  // namespace dtrain::engine
