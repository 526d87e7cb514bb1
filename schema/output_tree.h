// The files of an OUTPUT_DIR, as two hosts that have it compare and copy them: what is there, and changes of one entry
// at a time. Never: follows a link, or touches anything outside.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schema/dtrain.pb.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain {

// Whether two copies of an entry are the same: of files by size, time and mode, of directories always.
bool same_output(const pb::OutputEntry& a, const pb::OutputEntry& b);

class OutputTree;

// A file that has no name yet. Without give_name() nothing is left of it, however its process ends where the file system has
// such files; elsewhere see OutputTree::remove_unnamed().
class UnnamedOutput {
 public:
  UnnamedOutput(UnnamedOutput&&) = default;
  UnnamedOutput& operator=(UnnamedOutput&&) = delete;
  ~UnnamedOutput();

  Status append(std::string_view data);
  // As `entry` says, in place of what has its path, whatever that is. Its directory is made if need be.
  // InvalidArgument: it has another size, or the path leads out or is too long.
  Status give_name(const pb::OutputEntry& entry);
  int fd() const { return file_.get(); }

 private:
  friend class OutputTree;
  UnnamedOutput(int root, Fd file, std::string name) : root_(root), file_(std::move(file)), name_(std::move(name)) {}

  int root_;          // of its tree, which outlives it
  Fd file_;
  std::string name_;  // for now; empty: it has none, or another one by now
  uint64_t size_ = 0;
};

class OutputTree {
 public:
  // NotFound: there is none. A link to a directory is followed.
  static Result<OutputTree> open(const std::filesystem::path& directory);

  // What is no part of it, and why: for people.
  struct LeftOut {
    std::string path;
    std::string why;
  };
  // All directories, files and links, in order of path; but names at the top that begin with ".dtrain-" are of one host
  // alone, and no part of it. Neither are sockets, pipes, links that lead out, and what is in directories that can't
  // be read: these are in `left_out`.
  Result<std::vector<pb::OutputEntry>> list(std::vector<LeftOut>* left_out = nullptr) const;
  // NotFound: it is not there, or is no directory, file or link.
  Result<pb::OutputEntry> look(const std::string& path) const;
  // To be read, as it is then, whatever has its name meanwhile. NotFound likewise.
  struct OpenFile {
    Fd fd;
    pb::OutputEntry entry;
  };
  Result<OpenFile> open_file(const std::string& path) const;

  Result<UnnamedOutput> create() const;
  // A directory or a link, as UnnamedOutput::give_name does it for files.
  Status make(const pb::OutputEntry& entry) const;
  // If it is as `entry` says: a directory only if it is empty. Else nothing happens.
  Status remove(const pb::OutputEntry& entry) const;
  // Of files that another process was creating. Only one at a time creates any.
  void remove_unnamed() const;
  // What was changed outlives a power cut.
  Status sync() const;

  int fd() const { return root_.get(); }

 private:
  explicit OutputTree(Fd root) : root_(std::move(root)) {}

  Fd root_;
};

}  // namespace dtrain
