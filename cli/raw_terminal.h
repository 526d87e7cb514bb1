// A terminal whose keys come each as it is pressed, and are not shown.
#pragma once

#include <termios.h>

namespace dtrain::cli {

// All: they go to somebody else, Ctrl-C too, and what that writes is shown as it is.
enum class Keys { All, ButSignals };

// As it was before once this ends.
class RawTerminal {
 public:
  explicit RawTerminal(int fd, Keys keys = Keys::All);
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
