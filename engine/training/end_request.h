// TERM, while a training goes on: not the end of the process at once, but of the training after the step that it is in.
#pragma once

#include <csignal>

namespace dtrain::engine {

// While one lives the first TERM is remembered; another one ends the process. Before and after TERM means what it did.
// Owner: the training, one at a time in a process.
class EndRequest {
 public:
  EndRequest();
  ~EndRequest();
  EndRequest(const EndRequest&) = delete;
  EndRequest& operator=(const EndRequest&) = delete;

  bool is_made() const;

 private:
  struct sigaction before_ {};
};

// Ends this process as TERM would have: whoever started it sees that it was ended, and did not succeed.
[[noreturn]] void end_by_request();

}  // namespace dtrain::engine
