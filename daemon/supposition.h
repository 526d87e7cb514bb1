// What is free as it would be, for as long as one of these lives; the last made goes first.
#pragma once

#include <map>
#include <vector>

#include "daemon/model.h"

namespace dtrain::daemon {

class Supposition {
 public:
  explicit Supposition(FreeHosts& free) : free_(free) {}
  ~Supposition();
  Supposition(const Supposition&) = delete;
  Supposition& operator=(const Supposition&) = delete;

  // All that it has.
  void give_all(const Experiment& experiment);
  void take(const std::vector<Seat>& seats);
  const std::vector<Seat>& given() const { return given_; }

 private:
  FreeHosts& free_;
  std::vector<Seat> given_, taken_;
  std::map<HostId, int> port_next_;   // of those that are touched
};

}  // namespace dtrain::daemon
