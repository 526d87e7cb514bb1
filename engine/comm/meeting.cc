#include "engine/comm/meeting.h"

#include <algorithm>

namespace dtrain::engine {

Meeting::Meeting(Team& team)
    : team_(team), gang_(team.gang()), wire_(team), own_(static_cast<size_t>(gang_.threads())) {}

Status Meeting::move(int me, Op op, const std::vector<Transfer>& sends, const std::vector<Transfer>& receives,
                     Deadline deadline, const Moment& moment) {
  if (moves(me)) {
    if (auto moved = wire_.run(op, sends, receives, deadline, moment); !moved.ok()) {
      return team_.fail(std::move(moved).error());
    }
  }
  return team_.barrier(me, deadline, moment);
}

int Meeting::write(int me, std::span<const double> notes) {
  INVARIANT(notes.size() <= kMostNotes, "few notes");
  // The other set is written next; this one again only after everyone has been at another barrier.
  const int set = static_cast<int>(own_[static_cast<size_t>(me - gang_.first())].written++ % 2);
  std::ranges::copy(notes, team_.notes(set, me).begin());
  return set;
}

Status Meeting::pass_on(int me, int set, size_t count, Deadline deadline, const Moment& moment) {
  std::vector<Transfer> sends, receives;
  if (moves(me) && gang_.self() == gang_.hosts()[static_cast<size_t>(gang_.host())].front()) {
    const auto rows = [&](int host) {
      Transfer transfer{.process = gang_.hosts()[static_cast<size_t>(host)].front()};
      for (int p = 0; p < gang_.world(); ++p) {
        if (gang_.participant(p).host != host) continue;
        transfer.add(team_.notes(set, p).data(), count * sizeof(double));
      }
      return transfer;
    };
    for (int host = 0; host < static_cast<int>(gang_.hosts().size()); ++host) {
      if (host == gang_.host()) continue;
      receives.push_back(rows(host));
      sends.push_back(rows(gang_.host()));
      sends.back().process = receives.back().process;
    }
  }
  return move(me, Op::Small, sends, receives, deadline, moment);
}

void Meeting::read(int set, size_t count, std::span<double> all) const {
  for (int p = 0; p < gang_.world() && !all.empty(); ++p) {
    std::ranges::copy(team_.notes(set, p).first(count), all.begin() + static_cast<int64_t>(count) * p);
  }
}

Status Meeting::gather(int me, int64_t step, Deadline deadline, std::span<const double> notes, std::span<double> all) {
  const Moment moment{step, "values"};
  const int set = write(me, notes);
  TRY(team_.barrier(me, deadline, moment));
  // Without any, one goes that says nothing: who gets it has been waited for.
  if (several_hosts()) TRY(pass_on(me, set, std::max<size_t>(1, notes.size()), deadline, moment));
  read(set, notes.size(), all);
  return ok();
}

Status Meeting::wait_for_first(int me, int64_t step, double work_seconds, double deadline_seconds) {
  const Moment moment{step, "wait for worker 0"};
  const Deadline work = Deadline::after(work_seconds);
  const auto meet_host = [&](int who_knows) {
    return team_.barrier(me, me == who_knows ? Deadline::after(deadline_seconds) : work, moment);
  };
  if (gang_.host() == 0) TRY(meet_host(0));
  if (!several_hosts()) return ok();
  if (moves(me)) {
    std::vector<Transfer> sends, receives;
    for (size_t host = 1; host < gang_.hosts().size(); ++host) {
      const int front = gang_.hosts()[host].front();
      if (gang_.self() == 0) sends.push_back({.process = front});
      if (gang_.self() == front) receives.push_back({.process = 0});
    }
    for (Transfer& transfer : sends) transfer.add(&came_, sizeof(came_));
    for (Transfer& transfer : receives) transfer.add(&came_, sizeof(came_));
    const Deadline deadline = gang_.self() == 0 ? Deadline::after(deadline_seconds) : work;
    if (auto moved = wire_.run(Op::Small, sends, receives, deadline, moment); !moved.ok()) {
      return team_.fail(std::move(moved).error());
    }
  }
  return gang_.host() == 0 ? ok() : meet_host(team_.first());
}

}  // namespace dtrain::engine
