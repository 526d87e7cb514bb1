#include "cli/raw_terminal.h"

namespace dtrain::cli {

RawTerminal::RawTerminal(int fd, Keys keys) : fd_(fd) {
  if (::tcgetattr(fd_, &before_) != 0) return;
  raw_ = before_;
  if (keys == Keys::All) ::cfmakeraw(&raw_);
  if (keys == Keys::ButSignals) raw_.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  changed_ = ::tcsetattr(fd_, TCSADRAIN, &raw_) == 0;
}

void RawTerminal::again() {
  if (changed_) ::tcsetattr(fd_, TCSADRAIN, &raw_);
}

RawTerminal::~RawTerminal() {
  if (changed_) ::tcsetattr(fd_, TCSADRAIN, &before_);
}

}  // namespace dtrain::cli
