// Whose turn it is among those of one priority: config.yml's `fair-share`. Inside the pure core only.
//
// Those go first whose user has least, in parts of what the hosts have that are here and by the user's weight: of whatever that
// user has the largest part of (dominant resource fairness, https://www.usenix.org/conference/nsdi11/dominant-resource-fairness-fair-allocation-multiple-resource-types).
// So who has nothing is never behind who has something. What is preemptible, and what the members of a set share, counts for
// none; but of two that are preemptible it counts as well. Of one user's, and where there is no fair-share, the first submitted
// goes first.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model.h"

namespace dtrain::daemon {

// Good as long as no host comes or goes; follows what users have.
class FairShare {
 public:
  explicit FairShare(const Model& model);
  // 0 to 1, and more where hosts went away; 0 where there is no fair-share.
  double part_of(const std::string& user, bool preemptible = false) const;
  // That, by the user's weight.
  double of(const std::string& user, bool preemptible = false) const { return part_of(user, preemptible) / weight_of(user); }
  double of(const Experiment& experiment) const;
  bool goes_before(const Experiment& a, const Experiment& b) const;
  double weight_of(const std::string& user) const;   // 1 where nothing is said

 private:
  const Model& model_;
  Room total_;
};

// What tells those apart whose turns differ: nothing where there is no fair-share.
std::string lane_of_share(const Model& model, const Experiment& experiment);

// The first of each lane that may still fit, in the order of their turns.
class Turns {
 public:
  explicit Turns(const Model& model) : model_(model), share_(model) {}
  void add(const QueueOrder& order, const std::string& lane);
  bool empty() const { return heads_.empty(); }
  std::pair<QueueOrder, std::string> take_first();

 private:
  using Heads = std::set<std::pair<QueueOrder, std::string>>;
  struct Whose {
    std::string user;   // empty where there is no fair-share
    bool preemptible = false;
    auto operator<=>(const Whose&) const = default;
  };

  const Model& model_;
  FairShare share_;
  std::map<int, std::map<Whose, Heads>> heads_;   // by priority, the highest first
};

}  // namespace dtrain::daemon
