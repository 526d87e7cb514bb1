// What a run met, counted: a situation that never came up was not tested.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace dtrain::sim {

enum class Seen : size_t {
  TailLost,
  SendsLost,
  CommitFailed,
  FailedCommitKept,
  BrokenStreamRead,
  OlderStreamDropped,
  OlderHelloRefused,
  DeadDaemonHeard,
  FactRepeated,
  PreparedRunnerRestarted,
  FailureKept,
  StartTooLate,
  LeaseEnded,
  GraceAfterLease,
  HostLost,
  CameBackAfterLoss,
  Stray,
  StaleMessage,
  PortTaken,
  KeeperDied,
  RelaunchedAlone,
  HostExcluded,
  ExcludedTriedAgain,
  LaunchUnsent,
  KilledPending,
  HeldByConcurrency,
  WentAhead,
  GpuBusy,
  BuildCached,
  BuildFailed,
  HostUnfit,
  UnfitLeft,
  UnfitAgainAsked,
  UnfitEverywhere,
  TogetherAgain,
  AloneAgain,
  EngineRefused,
  HostLeft,
  WentOnElsewhere,
  Drained,
  SuspendedWhilePlaced,
  Resumed,
  BegunWithFewer,
  WentOnWithFewer,
  Grown,
  HasGrown,
  GaveWay,
  SeveralGaveWay,
  GotItsPlace,
  WentOnAfterGivingWay,
  CameAfter,
  FailedWithOther,
  AmongTheBest,
  EndedEarly,
  TooManyFailed,
  kCount
};

constexpr std::array<const char*, static_cast<size_t>(Seen::kCount)> kSeenNames = {
    "a daemon dies with decided events that it had not committed",
    "a daemon dies between its commit and its messages",
    "a commit fails, and what waits grows until the next",
    "a commit that failed is in the database all the same",
    "what a broken stream still carries is read before the next Hello",
    "a new Hello overtakes what an older stream carries",
    "a Hello comes after a newer one of its host",
    "messages of a daemon that is gone reach a runner",
    "a fact is said again after a Welcome",
    "a runner restarts between Prepared and Start",
    "a failed launch is told of after the next Welcome",
    "a Start arrives when its lease has run out",
    "a lease runs out at a host without contact",
    "a process uses up its grace after the lease",
    "a host is given up with replicas on it",
    "a host comes back after it was given up",
    "a host holds what nobody wants any more",
    "a message of an attempt that is no more",
    "a stranger listens on a leased port",
    "a keeper dies",
    "a replica is launched again alone",
    "a host is excluded after failed starts",
    "a host is tried again because all that could take it are excluded",
    "a Launch can't be sent",
    "an experiment is killed while it waits",
    "a member waits for its set's concurrency",
    "an experiment goes ahead of a gang that waits",
    "a stranger takes a GPU",
    "a build finds everything made",
    "an experiment fails by its build",
    "a host lacks what an experiment names",
    "a gang is placed where nothing is known to be lacking",
    "a host that lacked something says Hello anew",
    "an experiment fails because no host is left that could have what it names",
    "a gang whose members can't be without each other begins anew after a failure",
    "who is not waited for fails, and the others go on",
    "the engine says that another start would change nothing",
    "a host is lent no longer, with replicas on it",
    "what ran on a host that leaves is begun again at no restart",
    "a host is drained, with replicas on it",
    "what has its place is suspended",
    "what was suspended goes on",
    "an elastic gang begins with fewer workers than it asks for",
    "an elastic gang goes on without a host that was lost",
    "an elastic gang is begun again for more workers",
    "and has them, though others were submitted and ended meanwhile",
    "one gives way to another of a higher priority",
    "several give way to one",
    "one to whom others gave way has its place",
    "one that gave way goes on",
    "what comes after one that is FINISHED is placed",
    "what comes after one that ended otherwise fails",
    "a member is among the best, and goes on",
    "a member ends early",
    "a set ends because too many of its members failed",
};

struct Counts {
  std::array<uint64_t, static_cast<size_t>(Seen::kCount)> of{};

  void add(Seen what) { ++of[static_cast<size_t>(what)]; }
  Counts& operator+=(const Counts& other) {
    for (size_t i = 0; i < of.size(); ++i) of[i] += other.of[i];
    return *this;
  }
};

}  // namespace dtrain::sim
