// Standard output as a place that can be closed on us (`| head`), which is no error.
#pragma once

#include <string_view>

#include "schema/result.h"

namespace dtrain::cli {

class Sink {
 public:
  // Switches SIGPIPE off for the process: a closed pipe shows as closed() instead.
  explicit Sink(int fd);

  // Writes everything, waiting for a slow reader. False once nobody reads any more.
  bool write(std::string_view bytes);
  // As much of it as goes without waiting, where there is room for anything; also none, after a signal.
  size_t write_some(std::string_view bytes);
  bool closed() const { return error_ != 0; }
  bool reader_left() const;  // of a pipe or a terminal, found without writing
  // An Error when a full disk or a limit closed it, which must not look like success.
  Status written() const;

 private:
  int fd_;
  int error_ = 0;  // errno of the write that failed; 0: none did
};

// What a command says that could not write its output. Not the code and the hint of the errno: a
// full disk here refuses nothing, and nothing waits for room.
Error output_error(int errno_value);

}  // namespace dtrain::cli
