#include "cli/raw_terminal.h"

namespace dtrain::cli {

RawTerminal::RawTerminal(int fd) : fd_(fd) {
  if (::tcgetattr(fd_, &before_) != 0) return;
  raw_ = before_;
  ::cfmakeraw(&raw_);
  changed_ = ::tcsetattr(fd_, TCSADRAIN, &raw_) == 0;
}

void RawTerminal::again() {
  if (changed_) ::tcsetattr(fd_, TCSADRAIN, &raw_);
}

RawTerminal::~RawTerminal() {
  if (changed_) ::tcsetattr(fd_, TCSADRAIN, &before_);
}

}  // namespace dtrain::cli
