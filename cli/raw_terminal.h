// A terminal whose keys go to somebody else, each as it is pressed, Ctrl-C too.
#pragma once

#include <termios.h>

namespace dtrain::cli {

// As it was before once this ends.
class RawTerminal {
 public:
  explicit RawTerminal(int fd);
  ~RawTerminal();
  // Somebody else had it meanwhile: a shell, while this process was stopped.
  void again();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  const int fd_;
  termios before_{}, raw_{};
  bool changed_ = false;
};

}  // namespace dtrain::cli
