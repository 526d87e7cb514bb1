// OUTPUT_DIR on a host that does not see the daemon's outputs: a copy, and what both sides had in common when they last
// agreed. What changed on one side since then goes to the other; of what changed on both the later one stays. Blocking.
//
//   outputs/<experiment>-<submission>/
//     files/      OUTPUT_DIR
//     resumed/    what the experiment goes on from, as it was
//     after/      of what it comes after
//     carried     what both sides have in common: an OutputList
//
// Outlives its launches, until the experiment is over: what starts again on this host finds what was there.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runner/launch_dir.h"
#include "runner/outbox.h"
#include "schema/ids.h"
#include "schema/result.h"

namespace dtrain::runner {

struct CarriedPlace {
  std::filesystem::path root;

  std::filesystem::path files() const { return root / "files"; }
  std::filesystem::path resumed() const { return root / "resumed"; }
  std::filesystem::path after() const { return root / "after"; }
  std::filesystem::path common() const { return root / "carried"; }
};

// Below `outputs`, the folder of all of this host.
CarriedPlace carried_place(const std::filesystem::path& outputs, const std::string& experiment,
                           const std::string& submission);
// Where a replica's OUTPUT_DIR is such a one.
std::optional<CarriedPlace> carried_place_of(const std::filesystem::path& outputs, const ReplicaLaunch& replica);

// Makes the place, and brings what changed at the daemon, as long as that is `wanted`.
Status bring_outputs(const CarriedPlace& place, OutputStore& store, const pb::OutputsRequest& of,
                     const std::function<bool()>& wanted);
// What another experiment has written, by its path at the daemon, into a folder of the place: where it is here. Empty: it is no
// output of the daemon's that this experiment is to have.
Result<std::string> bring_results(const CarriedPlace& place, const std::filesystem::path& folder, OutputStore& store,
                                  pb::OutputsRequest of, const std::string& path, const std::function<bool()>& wanted);

using OutputEntries = std::map<std::string, pb::OutputEntry>;   // by path

// What a carrier remembers from one time to the next.
struct CarryMemory {
  struct Refused {
    pb::OutputEntry entry;   // as it was: not tried again until it is another one
    std::string why;
  };
  std::map<std::string, Refused> refused;
  std::optional<OutputEntries> common;   // that could not be written down: this disk may be full
};

enum class Which {
  Quiet,    // what was not written to for a moment; with something else there, nothing is deleted
  Growing,  // all; of a file that is being written what was there at first
};
struct Carried {
  bool more = false;   // call again: it was enough for one time
  std::vector<std::string> troubles;   // what is not carried, and why
};
// Carries what changed here. FailedPrecondition: this host has no part in the experiment any more.
Result<Carried> carry_outputs(const CarriedPlace& place, OutputStore& store, const pb::OutputsRequest& of, Which which,
                              CarryMemory& memory);

// By experiment and submission those that are of none of these experiments.
std::vector<std::pair<std::string, std::string>> unused_copies(const std::filesystem::path& outputs,
                                                               const std::set<std::string>& in_use);
// Whether nothing is only here.
bool is_all_carried(const CarriedPlace& place);
// Gives it another name at once, by which it is to be deleted: that takes its time. Empty: it is not there.
std::filesystem::path discard_copy(const CarriedPlace& place);
// Deletes what was discarded and, where ages are believed, copies of which nothing was carried for a week.
void remove_old_copies(const std::filesystem::path& outputs, const std::set<std::string>& in_use, bool ages_believed);

}  // namespace dtrain::runner
