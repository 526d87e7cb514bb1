// Data sets seen, read-only, below one directory (/data/mnist), by one process and what it starts: in a
// mount namespace of its own, which goes with the last of them. The directory itself stays as it is for
// everybody else.
//
// Thread: any. Needs CAP_SYS_ADMIN, an empty directory to mount on, and Linux 5.12.
#pragma once

#include <string>
#include <vector>

#include "schema/result.h"

namespace dtrain::runner {

struct DataSet {
  std::string name;
  std::string path;  // of a directory or a file
  bool operator==(const DataSet&) const = default;
};

struct DataMount {
  std::string point;  // an empty directory; empty: nothing is mounted
  std::vector<DataSet> sets;
  bool operator==(const DataMount&) const = default;
};

// What it takes to enter a mount, prepared so that entering is system calls and nothing else: a child
// may share its parent's memory until it execs.
class DataMountPlan {
 public:
  DataMountPlan() = default;
  // NotFound: a data set is not there (any more).
  static Result<DataMountPlan> make(const DataMount& mount);

  enum class Step : int { Namespace, Propagation, Directory, Place, Bind, ReadOnly };
  struct Failure {
    Step step = Step::Namespace;
    int set = 0;    // which one, in Place and Bind
    int error = 0;  // errno; 0: all is done
  };
  // Takes the calling thread, which must not share its working directory with another (CLONE_FS), into a
  // namespace of its own. After a failure it is in one that is half made.
  Failure enter() const;
  Error explain(const Failure& failure) const;
  bool empty() const { return point_.empty(); }

 private:
  struct Bind {
    std::string source;
    std::string target;
    bool directory = true;
  };
  std::string point_;
  std::vector<Bind> binds_;
};

// Makes the mount in a thread that ends with it: whether a replica could, here and now.
Status try_data_mount(const DataMount& mount);

}  // namespace dtrain::runner
