#include "engine/comm/group.h"

#include <algorithm>

#include "engine/comm/sum.h"

namespace dtrain::engine {
namespace {

// Of a sum of several, what stays in the first-level cache.
constexpr size_t kAtOnce = 2048;  // elements

// out = ((a + b) + c) + d; `out` may be one of them only if they are two.
void sum_in_order(std::span<float> out, const std::vector<const float*>& parts) {
  for (size_t at = 0; at < out.size(); at += kAtOnce) {
    const auto count = static_cast<int64_t>(std::min(kAtOnce, out.size() - at));
    float* const to = out.data() + at;
    add(to, parts[0] + at, parts[1] + at, count);
    for (size_t i = 2; i < parts.size(); ++i) add(to, to, parts[i] + at, count);
  }
}

}  // namespace

Group::Group(Team& team, int me, std::vector<int> members, int slot)
    : team_(team), me_(me), members_(std::move(members)), slot_(slot) {
  const auto found = std::ranges::find(members_, me);
  INVARIANT(found != members_.end(), "I am a member");
  INVARIANT(slot >= 0 && slot < kGroupSlots, "few groups a participant");
  position_ = static_cast<size_t>(found - members_.begin());
}

Result<std::unique_ptr<Group>> Group::open(Team& team, int me, std::vector<int> members, int slot,
                                           Deadline deadline) {
  std::unique_ptr<Group> group(new Group(team, me, std::move(members), slot));
  const Gang& gang = team.gang();
  const bool one_host = std::ranges::all_of(
      group->members_, [&](int p) { return gang.participant(p).host == gang.host(); });
  if (one_host) return group;
  for (const int member : group->members_) {
    group->channels_.emplace_back();
    if (member == me) continue;
    TRY(Channel channel, Channel::open(team, me, member, deadline, 1 + slot));
    group->channels_.back() = std::make_unique<Channel>(std::move(channel));
  }
  return group;
}

Status Group::all_reduce(std::span<float> values, Deadline deadline, const Moment& moment) {
  if (members_.size() == 1) return ok();
  return channels_.empty() ? reduce_staged(values, deadline, moment)
                           : reduce_sent(values, deadline, moment);
}

Status Group::put(std::span<const float> values, int set, Deadline deadline, const Moment& moment) {
  std::ranges::copy(values, team_.stage(slot_, set, me_).begin());
  return team_.barrier(me_, members_, slot_, deadline, moment);
}

// One barrier a piece is enough: when a set is written again, everyone has been at the barrier of
// the other one, and so is done with reading this.
Status Group::reduce_staged(std::span<float> values, Deadline deadline, const Moment& moment) {
  std::vector<const float*> parts(members_.size());
  while (!values.empty()) {
    const std::span<float> piece =
        values.first(std::min(values.size(), static_cast<size_t>(kStageElements)));
    const int set = std::exchange(set_, 1 - set_);
    TRY(put(piece, set, deadline, moment));
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i] = team_.stage(slot_, set, members_[i]).data();
    }
    sum_in_order(piece, parts);
    values = values.subspan(piece.size());
  }
  return ok();
}

Status Group::all_gather(std::span<const float> mine, std::span<float> all, Deadline deadline,
                         const Moment& moment) {
  INVARIANT(all.size() == mine.size() * members_.size(), "room for all");
  if (channels_.empty()) return gather_staged(mine, all, deadline, moment);
  const auto place = [&](size_t i) { return all.subspan(i * mine.size(), mine.size()); };
  std::ranges::copy(mine, place(position_).begin());
  for (size_t i = 0; i < members_.size(); ++i) {
    if (i != position_) TRY(swap(i, mine, place(i), deadline, moment));
  }
  return ok();
}

Status Group::gather_staged(std::span<const float> mine, std::span<float> all, Deadline deadline,
                            const Moment& moment) {
  for (size_t at = 0; at < mine.size();) {
    const size_t count = std::min(mine.size() - at, static_cast<size_t>(kStageElements));
    const int set = std::exchange(set_, 1 - set_);
    TRY(put(mine.subspan(at, count), set, deadline, moment));
    for (size_t i = 0; i < members_.size(); ++i) {
      std::ranges::copy(team_.stage(slot_, set, members_[i]).first(count),
                        all.begin() + static_cast<int64_t>(i * mine.size() + at));
    }
    at += count;
  }
  return ok();
}

Status Group::swap(size_t i, std::span<const float> out, std::span<float> in, Deadline deadline,
                   const Moment& moment) {
  Channel& channel = *channels_[i];
  if (position_ < i) {
    TRY(channel.send(out, deadline, moment));
    return channel.receive(in, deadline, moment);
  }
  TRY(channel.receive(in, deadline, moment));
  return channel.send(out, deadline, moment);
}

// Each sums the share of its position and sends it to the others. Everyone goes through the others
// in their order: of the pairs that are left the lowest can always go on, so nobody waits in a
// circle.
Status Group::reduce_sent(std::span<float> values, Deadline deadline, const Moment& moment) {
  const size_t count = members_.size();
  const auto share = [&](size_t i) {
    const size_t begin = values.size() * i / count, end = values.size() * (i + 1) / count;
    return values.subspan(begin, end - begin);
  };
  const std::span<float> mine = share(position_);
  parts_.resize(mine.size() * count);
  std::vector<const float*> parts;
  for (size_t i = 0; i < count; ++i) {
    const std::span<float> part = std::span(parts_).subspan(i * mine.size(), mine.size());
    parts.push_back(part.data());
    if (i == position_) {
      std::ranges::copy(mine, part.begin());
    } else {
      TRY(swap(i, share(i), part, deadline, moment));
    }
  }
  sum_in_order(mine, parts);
  for (size_t i = 0; i < count; ++i) {
    if (i != position_) TRY(swap(i, mine, share(i), deadline, moment));
  }
  return ok();
}

}  // namespace dtrain::engine
