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
  bool closed() const { return error_ != 0; }
  // It was closed by a full disk or a limit, which must not look like success.
  bool overflowed() const;
  int error() const { return error_; }  // errno of the write that failed; 0: none did

 private:
  int fd_;
  int error_ = 0;
};

}  // namespace dtrain::cli
