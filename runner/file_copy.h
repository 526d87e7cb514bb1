// Copies of files and directories on one host.
#pragma once

#include "schema/result.h"

namespace dtrain::runner {

enum class CopyKind {
  Clone,         // shares blocks, or fails
  CloneOrBytes,  // shares blocks where the file system can
  Bytes,
};

// The whole content of `from` into the empty file `to`. True when they share blocks.
Result<bool> copy_file(int from, int to, CopyKind kind);

// Everything below the directory `from` into the empty directory `to`: files, directories and links
// with their modes. True when all files share blocks with their originals.
Result<bool> copy_directory(int from, int to, CopyKind kind);

}  // namespace dtrain::runner
