// What a command says when Ctrl-C ends it in the middle of something that nobody else would tell about. Not beside a Signals of SIGINT.
#pragma once

#include <signal.h>

namespace dtrain::cli {

// At most one at a time. Where the parent had switched SIGINT off it stays off.
class LastWords {
 public:
  explicit LastWords(const char* words);   // of static storage, without the end of line
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

  void become(const char* words);

 private:
  struct sigaction before_ {};
};

}  // namespace dtrain::cli
