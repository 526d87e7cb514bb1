// Standard output as a place that can be closed on us (`| head`), which is no error.
#pragma once

#include <string_view>

namespace dtrain::cli {

class Sink {
 public:
  // Switches SIGPIPE off for the process: a closed pipe shows as closed() instead.
  explicit Sink(int fd);

  // Writes everything, waiting for a slow reader. False once nobody reads any more.
  bool write(std::string_view bytes);
  bool closed() const { return closed_; }

 private:
  int fd_;
  bool closed_ = false;
};

}  // namespace dtrain::cli
