// Where the replicas of a gang go: all of them or none. Pure.
//
// The rules a person can rely on:
// - A gang lands on as few hosts as possible; one host that takes all of it is the tightest such
//   host. Over several hosts, the replicas with GPUs come first and the others (ps) beside them; where that
//   leaves no room for some, a small gang is spread evenly.
// - Hosts that share a gang reach each other: one without an address takes a gang whole or not at all.
// - GPUs are whole devices with concrete indices, never one that somebody else uses; those of a replica are near each other
//   (of one NUMA node) where that can be. Every replica gets a port of its own. Memory is a guarantee and never promised twice.
// - cpus are a weight, but counted like the rest, with one exception: a gang whose cpus together are
//   more than the hosts have that it could lie on, while each replica alone fits one, would wait for
//   ever. It is placed on idle hosts, shares their cpus, and says so (Placed::notice).
// - A host that is there for a while takes what is over before it leaves; without a max-duration, that is what
//   begins in the first half of its time.
// - What only shows something to people goes to the daemon's machine, or where others reach it (placement_reach.h).
// - Of a role no host takes more than its `per-host`, by which the master counts as a worker.
// - An elastic gang gets as many workers as there is room for, down to its least, and waits for no more than that.
// - The same question gets the same answer.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/model.h"

namespace dtrain::daemon {

struct Placed {
  std::vector<Seat> seats;   // one per replica, Spec order
  std::string notice;        // "4 replicas ask for 4 cpus and share the 2 of n1"; mostly empty
};
struct Waits { std::string reason; };   // fits an empty cluster, not this one: "needs 4 GPUs on one host; free: 3+2"
struct Never { std::string reason; std::string hint; };   // no host can ever give it; names the largest
using Placement = std::variant<Placed, Waits, Never>;

using RoomByHost = std::map<HostId, Room>;

// What narrows the choice of hosts.
struct Choice {
  std::string host;                       // as is_wanted() takes it; empty: any
  std::vector<HostId> excluded;
  const RoomByHost* kept_free = nullptr;  // on these hosts, no more than that (backfill)
  std::string lane = {};                  // who asks: some hosts are kept for those of one lane
  TimeMs now = 0;                         // what ends before it is done is not used; 0: no matter
  bool whole = false;                     // an elastic gang as well, with all of its workers or not at all
  std::optional<Room> quota_left = {};    // all of them together may have no more; nothing: whatever there is
  bool as_if_addressed = false;           // to see what addresses would change; never to place by
};

inline constexpr size_t kShownIdDigits = 8;  // of a host's ID, where people read it
// `text` is the host's name, or its ID, of which as many digits as are shown will do.
bool is_called(const Host& host, const std::string& text);
// `wanted`: terms with commas between. A host fits a term that it is called, that is one of its labels or GPUs, or, with
// *, ? and [...], a pattern of any of these. It is wanted when it fits one, or there are none, and none after a '!'.
bool is_wanted(const Host& host, std::string_view wanted);

// Whether it may lie there at all, whatever is free.
bool may_take(const Spec& spec, const Host& host, const Choice& choice);

// The seats of a gang on what is free, or nothing. `stretch` > 1: idle hosts only, whose cpus count
// that many times.
std::optional<std::vector<Seat>> fit(const ExperimentId& id, const Spec& spec,
                                     const FreeHosts& hosts, const Choice& choice,
                                     double stretch = 1);

// How many times the cpus must count for the gang to fit the hosts when they are empty: 1 as they
// are; 0: memory, GPUs or one replica's cpus don't fit, whatever the rest.
double stretch_needed(const ExperimentId& id, const Spec& spec, const FreeHosts& empty,
                      const Choice& choice);

// Whether the host can keep what `limits` makes hard; one that can't is not used.
bool keeps_limits(const Spec& spec, const Host& host);

// The same hosts with nothing placed on them.
enum class Which {
  Connected,
  Obtainable,   // and those that a pool may bring, instead of what it has brought
  Known,        // and those that are not connected, and the GPUs and ports that strangers use
};
FreeHosts emptied(const FreeHosts& hosts, Which which);
// What a gang may hope for: of a host that is asked for by name, and that a pool brought, there is no other.
Which obtainable(const FreeHosts& hosts, const Choice& choice);

// One host as the model's facts have it: inventory minus the seats still held there.
FreeHost free_host(const Model& model, const Host& host);

// fit(), with the reason when it does not.
Placement place(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts,
                const Choice& choice);

// Where an experiment would land now; for `train --dry-run` and the check at submit.
Placement plan(const Model& model, const Spec& spec, const std::string& host);

}  // namespace dtrain::daemon
