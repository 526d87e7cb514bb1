// The file system of a container's image as / of one process and what it starts: a writable layer of their own over
// the image's files, and in it those places of the host that they need. All of it lies in a mount namespace, which goes
// with the last of them; who may not mount does so in a user namespace, whose root is that user.
//
// No container is started, and nobody is contained: processes, network and devices are the host's, so that they are
// found, measured and ended like all others.
//
// Thread: any. Needs Linux 5.12, and for who is not root user namespaces.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "schema/mounts.h"
#include "schema/result.h"

namespace dtrain::runner {

struct ImageRoot {
  std::string files;               // directory that holds the image's files; empty: there is no image
  std::vector<HostMount> shown;    // besides /proc, /sys, /dev and what names are resolved with
  bool operator==(const ImageRoot&) const = default;
};

class ImagePlaces;

// What it takes to enter one, prepared so that entering is system calls and nothing else: a child may share its
// parent's memory until it execs.
class ImageRootPlan {
 public:
  ImageRootPlan() = default;
  // `layer`: a directory, which is made; what is written goes there. Empty: it goes into the image's files themselves.
  // FailedPrecondition: the image or what is shown is not there (any more), or can't be shown.
  static Result<ImageRootPlan> make(const ImageRoot& root, const std::filesystem::path& layer);

  enum class Step : int { Namespace, Identity, Propagation, Root, Source, Pivot, Show };
  struct Failure {
    Step step = Step::Namespace;
    int which = 0;  // of what is shown
    int error = 0;  // errno; 0: all is done
  };
  // Takes the calling process there, its working directory to its root. After a failure it is half-way.
  Failure enter() const;
  Error explain(const Failure& failure) const;
  bool empty() const { return root_.empty(); }

 private:
  // NamesOnly: nothing can be made or removed there, but what is there, and mounted below, may be written to.
  enum class Access : int { Full, NamesOnly, ReadOnly };
  struct Bind {
    std::string source;
    std::string path;          // in the image, without links
    Access access = Access::Full;
    bool is_optional = false;
  };
  static constexpr size_t kBindsMax = 1'200;

  Status add(const HostMount& shown, Access access, bool is_optional, const ImagePlaces& places);
  Failure become_root_of_user_namespace() const;
  Failure show(size_t which, int tree) const;

  std::string files_;
  std::string root_;     // where it is put together
  std::string overlay_;  // options of the mount; empty: it is the image's files themselves
  std::string uid_map_;  // empty: no user namespace is needed
  std::string gid_map_;
  std::vector<Bind> binds_;
};

// Where a replica's layer is, beside its view (workdir.h).
inline std::filesystem::path image_layer_in(const std::filesystem::path& place) { return place / "image"; }
// Makes a directory of an image in a layer, where the image has none.
Status make_in_layer(const std::string& files, const std::filesystem::path& layer, const std::filesystem::path& inside);
// Deletes what a layer holds, of whatever rights a program left its directories with.
void remove_layer(const std::filesystem::path& layer);

}  // namespace dtrain::runner
