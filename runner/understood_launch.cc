#include "runner/understood_launch.h"

#include <fmt/format.h>

#include <algorithm>

#include "schema/expand.h"

namespace dtrain::runner {
namespace {

Result<Seat> seat_from(const pb::SeatInfo& info) {
  Seat seat;
  TRY(seat.replica, parse_replica_id(info.replica()));
  seat.host = HostId{info.host_id()};
  seat.address = info.address();
  seat.port = static_cast<int>(info.port());
  seat.rank = static_cast<int>(info.rank());
  seat.local_rank = static_cast<int>(info.local_rank());
  seat.cpus = info.cpus();
  seat.memory_bytes = info.memory_bytes();
  for (const uint32_t gpu : info.gpus()) seat.gpus.push_back(static_cast<int>(gpu));
  return seat;
}

}  // namespace

Result<Understood> understand(const pb::Launch& launch) {
  Understood out;
  ParseOptions options;
  options.file_name = "launch";
  TRY(const Spec whole, parse_spec(launch.spec_yaml(), options));
  out.spec = member_spec(whole, launch.member());
  for (const pb::SeatInfo& info : launch.gang()) {
    TRY(Seat seat, seat_from(info));
    out.gang.push_back(std::move(seat));
  }
  for (const std::string& text : launch.replicas()) {
    TRY(const ReplicaId id, parse_replica_id(text));
    const auto seat = std::find_if(out.gang.begin(), out.gang.end(),
                                   [&](const Seat& each) { return each.replica == id; });
    if (seat == out.gang.end() || (out.spec.role(id.role) == nullptr && !is_build(id))) {
      return Error{Code::Internal, fmt::format("{} has no seat or no role in its launch", text),
                   ""};
    }
    out.here.push_back(*seat);
  }
  return out;
}

}  // namespace dtrain::runner
