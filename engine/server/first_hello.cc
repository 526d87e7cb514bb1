#include "engine/server/first_hello.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace dtrain::engine::server {

namespace {

constexpr size_t kMostLinks = 1024;  // who has waited longest is a stranger: workers say hello at once
constexpr int kNoRoom_ms = 1000;     // until connections are accepted again

// True once its hello is whole. An error: it is none.
Result<bool> read_hello(Link& link) {
  while (true) {
    const bool had_header = link.has_header();
    TRY(const size_t count, link.read());
    if (count == 0) return false;
    if (!link.has_header()) continue;
    if (!had_header) {
      TRY(check(link.in, false));
      if (link.in.op != ServerOp::Hello || link.in.payload != sizeof(DataFacts)) {
        return Error{Code::InvalidArgument, "not a hello", ""};
      }
      link.payload_left = link.in.payload;
      link.sink = link.room_of_data();
    }
    if (link.payload_left == 0) return true;
  }
}

}  // namespace

Result<std::optional<FirstHello>> wait_for_first_hello(Doors& doors, uint64_t job, size_t workers, const MakePlan& make_plan,
                                                       int ending) {
  std::vector<std::unique_ptr<Link>> links;
  while (true) {
    std::vector<pollfd> polled{{ending, POLLIN, 0}, {doors.tcp.fd(), POLLIN, 0}, {doors.local.fd(), POLLIN, 0}};
    for (const auto& link : links) polled.push_back({link->socket.fd(), POLLIN, 0});
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return errno_error("poll", errno);
    if (polled[0].revents != 0) return std::optional<FirstHello>();
    for (auto at = links.begin(); at != links.end();) {
      Link& link = **at;
      const auto whole = read_hello(link);
      if (whole.ok() && !*whole) {
        ++at;
        continue;
      }
      if (whole.ok()) {
        auto plan = link.in.job == job && link.in.rank < workers ? make_plan(link.data) : other_job();
        if (plan.ok()) {
          plan->data = link.data;
          plan->told_by = static_cast<int>(link.in.rank);
          std::rotate(links.begin(), at, at + 1);
          return std::optional(FirstHello{std::move(*plan), std::move(links)});
        }
        link.refuse(plan.error());
        static_cast<void>(link.flush());
      }
      at = links.erase(at);
    }
    for (Listener* door : {&doors.tcp, &doors.local}) {
      if (!*door) continue;
      auto socket = door->accept(Deadline::after(0));
      if (socket.ok()) {
        if (links.size() == kMostLinks) links.erase(links.begin());
        links.push_back(std::make_unique<Link>(std::move(*socket)));
      } else if (socket.error().code != Code::DeadlineExceeded) {
        // Who waits to be accepted would wake this loop again at once.
        ::poll(polled.data(), 1, kNoRoom_ms);
      }
    }
  }
}

}  // namespace dtrain::engine::server
