// XXH3 of bytes that come in parts. It finds what rots, not what somebody forges.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

struct XXH3_state_s;

namespace dtrain {

class Checksum {
 public:
  Checksum();
  void add(std::string_view part);
  uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace dtrain
