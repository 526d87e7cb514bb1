// Where a running process is: the file system that it sees, and the directory it is in. For whoever is to be started
// beside it.
//
// Thread: any. Needs Linux 5.3, and 5.8 where the process has namespaces of its own.
#pragma once

#include <string>

#include "runner/process_identity.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::runner {

class ProcessPlace {
 public:
  // NotFound: it has ended.
  static Result<ProcessPlace> of(const ProcessIdentity& process);

  // Takes the calling process there. Nothing but system calls. 0, or an errno; after that it is half-way. May wait for
  // ever, for a file system whose server is gone.
  int enter() const;

 private:
  Fd process_;
  int namespaces_ = 0;    // CLONE_NEW... of those that differ from ours
  std::string root_, directory_;   // by their names in /proc
};

}  // namespace dtrain::runner
