// The work directory of a replica: its own view of its snapshot's tree, that it may write to.
//
//   <place>/project         where the replica runs
//   <place>/{upper,work}    what it wrote, when the view is an overlay
//   <place>/image           what it wrote in its image (image_root.h)
//   <place>/.copied         when it is a copy: modified when that began, changed when it ended
//
// Views are made so that nothing a replica does there reaches the tree, be it root or not.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runner/trees.h"
#include "schema/result.h"

namespace dtrain::runner {

enum class WorkdirKind { Overlay, Reflink, Copy };
std::string_view to_string(WorkdirKind kind);  // "overlay"

struct Workdir {
  std::filesystem::path cwd;  // <place>/project
  WorkdirKind kind = WorkdirKind::Copy;
};

// A tree to make views of, looked at once for all of them.
class ViewSource {
 public:
  ViewSource(std::filesystem::path tree);
  const std::filesystem::path& tree() const { return tree_; }
  // A few short files: copied sooner than a file system is mounted.
  bool is_small() const { return small_; }

 private:
  std::filesystem::path tree_;
  bool small_;
};

// A writable view of `source` in `place`, which is created: an overlay where the system permits it,
// else a copy that shares blocks, else a copy. `only` (or DTRAIN_WORKDIR=overlay|reflink|copy in
// the environment) asks for that kind, and then there is no falling back.
Result<Workdir> make_view(const ViewSource& source, const std::filesystem::path& place,
                          std::optional<WorkdirKind> only = std::nullopt);

// The same of no tree at all.
Result<Workdir> make_empty_view(const std::filesystem::path& place);

// What a replica wrote outside OUTPUT_DIR, in its view of `tree` (may be empty): "1.2 GB in ckpt/ and
// log.txt". Empty when nothing. Without what lies in `taken` (paths in the view). Works before and
// after unmount_view. ResourceExhausted: no descriptors or memory to look with; to be asked again.
Result<std::string> left_behind(const std::filesystem::path& place,
                                const std::filesystem::path& tree,
                                const std::set<std::string>& taken = {});

// The same by their paths, with links, in order; what it was made of need not be there any more.
struct LeftFiles {
  struct File {
    std::string path;
    uint64_t bytes = 0;
    std::string link_to = {};   // of a link
  };
  std::filesystem::path folder;   // that they are in
  std::vector<File> files;
};
Result<LeftFiles> left_files(const std::filesystem::path& place);

// Both need no more than the path, so that a later runner can call them, and are no-ops when there
// is nothing (left) to do. unmount_view keeps what was written, in <place>/upper or
// <place>/project.
Status unmount_view(const std::filesystem::path& place);
Status release_view(const std::filesystem::path& place);

}  // namespace dtrain::runner
