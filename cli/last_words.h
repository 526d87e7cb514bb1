// What a command says when Ctrl-C ends it in the middle of something that nobody else would tell about. Not beside a Signals of SIGINT.
#pragma once

#include <signal.h>

#include <string>

namespace dtrain::cli {

// At most one at a time. Where the parent had switched SIGINT off it stays off.
class LastWords {
 public:
  LastWords();   // says nothing so far
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

  // A sentence, which must outlive this.
  void become(const std::string& sentence);

 private:
  struct sigaction before_ {};
};

}  // namespace dtrain::cli
