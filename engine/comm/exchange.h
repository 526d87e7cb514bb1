// Exchange is the data-parallel step: every participant's gradients in, the sum of the whole batch
// out, sliced over the participants; then everyone gets all slices of the new parameters.
//
// On one host a slice is summed where it lies, in one pass over everyone's arenas. Between hosts a
// host first sums its own participants, and sends to the owner of each slice; a process has one
// partner on each other host for all it owns. Gradients may go there bucket by bucket, while the next
// ones are still computed. The sum is the fixed tree of tree.h, the same bits for every world.
// Owner: the engine's main, one a process. Thread: each call is made by every participant, in the
// same order everywhere; the first thread of a process, or its Mover, moves what goes between hosts.
// Promises: an error ends all participants, with one text.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/comm/meeting.h"
#include "engine/comm/mover.h"
#include "engine/comm/slices.h"
#include "engine/comm/team.h"
#include "engine/comm/tree.h"
#include "engine/layout.h"

namespace dtrain::engine {

// Gradients that go to other hosts while backward goes on.
struct Overlap {
  int64_t bucket_elements = 0;  // that go at once; 0: all of them, when all are there
  double deadline_seconds = 0;  // of a bucket
};

class Exchange {
 public:
  // Of a team with most_nodes(world, leaf_count(world)) gradient arenas a participant. Both outlive it.
  Exchange(Team& team, Meeting& meeting, const Overlap& overlap = {});

  int64_t leaves() const { return leaves_; }
  Range leaves_of(int participant) const;
  // Whose sums `participant` delivers: node a in team.gradients(participant, a).
  std::vector<Node> nodes_of(int participant) const;
  // What `participant` owns of every arena: a slice of each bucket.
  std::vector<Range> slices(int participant) const;

  // Gradients of `me` from this offset on are final in this step. Never waits; what others have
  // come to, too, goes to other hosts.
  void ready(int me, int64_t step, int64_t offset);
  // Brings everyone's gradients to where slices(me) can be summed; they stay so until the gradients
  // are next written, which may be once all_gather_params() has returned. `notes` (at most
  // kMostNotes, everywhere as many) reach everyone: `all`, of world() * notes.size(), has them by
  // participant.
  Status collect(int me, int64_t step, Deadline deadline, std::span<const double> notes = {},
                 std::span<double> all = {});
  // After collect(): the sum of the whole batch over a part of one of slices(me), where `out` has
  // room. That may be where it lies in team.gradients(me): nobody else needs those any more.
  void sum(int me, Range part, float* out) const;

  // Once `me` has updated its slices of team.params(): afterwards all of it is new for everyone.
  Status all_gather_params(int me, int64_t step, Deadline deadline);

  // For a norm: each has written the blocks of its slices in team.blocks(); afterwards all are
  // there, until all_gather_params().
  Status gather_blocks(int me, int64_t step, Deadline deadline);

  // `arena` of the team (params or a state), as process 0's host has it: to each owner its slices.
  Status scatter(int me, int64_t step, Deadline deadline, std::span<float> arena);
  // The other way: for a checkpoint of the state.
  Status gather(int me, int64_t step, Deadline deadline, std::span<float> arena);

 private:
  // A node that this host sums for others, into the first arena that is part of it.
  struct HostNode {
    TreeSum sum;
    std::vector<const float*> sources;
    float* out;
  };
  // What each thread of the process keeps.
  struct alignas(64) Own {
    std::vector<std::vector<const float*>> sources;  // of its slice of each bucket
    uint64_t begun = 0, summed = 0;  // buckets since the start: before this step, and so far
  };

  // A node that is part of the sum, and its arena if it is of this host.
  struct Part {
    Node node;
    int host;
    const float* arena;
  };

  void plan_sums();
  void plan_sources(const std::vector<Part>& parts);
  void plan_host_nodes(const std::vector<Part>& parts);
  void plan_transfers();
  void add(Transfer& transfer, float* arena, int process) const;
  static void add(Transfer& transfer, float* arena, Range range);
  // What of `arena` this process has for process 0, or that for it: the slices of those on other hosts.
  std::vector<Transfer> slices_elsewhere(std::span<float> arena) const;
  void add_blocks(Transfer& transfer, int host) const;
  std::vector<Node> nodes_of_host(int host) const;
  int partner_on(int host, int process) const;
  Range slice_of_process(int process, int bucket) const;
  Range slice_of_host(int host, int bucket) const;
  uint32_t written_by_all() const;
  void sum_for_others(int me, uint32_t until);
  void sum_for_others(int me, int bucket);
  Status move_gradients(int me, Deadline deadline, const Moment& moment);
  Own& own(int me) { return own_[static_cast<size_t>(me - gang_.first())]; }
  const Own& own(int me) const { return own_[static_cast<size_t>(me - gang_.first())]; }

  Team& team_;
  Gang& gang_;
  const int64_t leaves_;
  const Slices slices_;
  Meeting& meeting_;
  std::unique_ptr<TreeSum> total_;
  std::vector<Own> own_;
  std::vector<HostNode> host_nodes_;
  std::unique_ptr<float[]> received_;
  std::vector<BucketTransfers> gradients_;
  std::vector<Transfer> params_out_, params_in_, blocks_out_, blocks_in_;
  std::unique_ptr<Mover> mover_;  // where there are several buckets
};

}  // namespace dtrain::engine
