#include "runner/cleanup.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <vector>

#include "runner/carried_outputs.h"
#include "runner/first_of.h"
#include "runner/mpi_launch.h"
#include "runner/output_copy.h"
#include "runner/output_names.h"
#include "schema/small_file.h"
#include "runner/trees.h"
#include "schema/fd.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kKeepWorkSeconds = 7 * 24 * 3600;

bool is_passing(const Error& error) {
  return error.code == Code::ResourceExhausted;
}

struct Collected {
  std::set<std::string> taken;           // whole, by their paths in the view
  std::vector<std::string> not_copied;   // with the reasons; it stays where it is
  std::vector<std::string> not_there;
};

// Only what passes is an error: no room, no descriptors, no memory.
Result<Collected> copy_outputs(const LaunchDir& directory, const ReplicaLaunch& replica, bool spares_newer) {
  Collected collected;
  const auto list = read_small_file(directory.outputs());
  const auto output_dir = replica.env.find("OUTPUT_DIR");
  if (!list) {
    const Fd file(::open((directory.outputs()).c_str(), O_RDONLY | O_CLOEXEC));
    const Error error = errno_error("read the list of outputs", file ? 0 : errno);
    if (is_passing(error)) return error;
    return collected;
  }
  if (output_dir == replica.env.end()) return collected;
  const std::string unfinished = fmt::format(".{}@{}.unfinished", to_string(replica.id), replica.attempt);
  std::string_view rest = *list;
  while (!rest.empty()) {
    const std::string name(rest.substr(0, rest.find('\0')));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    TRY(const std::vector<std::string> paths, named_outputs(replica.cwd, name));
    if (paths.empty()) collected.not_there.push_back(name);
    for (const std::string& path : paths) {
      const size_t failed = collected.not_copied.size();
      TRY(copy_output(replica.cwd, output_dir->second, path, unfinished, spares_newer, collected.not_copied));
      if (collected.not_copied.size() == failed) collected.taken.insert(path);
    }
  }
  return collected;
}

// Others of a gang need not write what it writes; and a launcher's ranks may do so on another host.
bool decides(Role role) {
  return role == Role::Train || role == Role::Master || role == Role::Chief;
}

// Nothing where what a launch uses is not known: another time.
std::optional<EnvironmentUse> use_of_environments(const LaunchSite& site,
                                                  const std::set<LaunchId>& live) {
  EnvironmentUse use;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(site.launches(), error)) {
    const auto id = parse_launch_id(entry.path().filename().string());
    if (!id.ok() || !live.contains(*id)) continue;
    const auto launch = LaunchDir(entry.path()).read_launch();
    if (!launch.ok()) return std::nullopt;
    if (!*launch) continue;
    for (const ReplicaLaunch& replica : (*launch)->replicas) {
      use.in_use.insert(fs::path(replica.image).parent_path());
      use.building = use.building || replica.id.role == Role::Build;
      if (const auto found = replica.env.find("VIRTUAL_ENV"); found != replica.env.end()) {
        use.in_use.insert(found->second);
      }
      // That variable may be the user's own; its python comes first all the same.
      if (const auto found = replica.env.find("PATH"); found != replica.env.end()) {
        use.in_use.insert(fs::path(found->second.substr(0, found->second.find(':'))).parent_path());
      }
    }
  }
  if (error) return std::nullopt;
  return use;
}

// Likewise.
std::optional<std::set<Sha256>> trees_in_use(const LaunchSite& site) {
  std::set<Sha256> in_use;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(site.launches(), error)) {
    const auto launch = LaunchDir(entry.path()).read_launch();
    if (!launch.ok()) return std::nullopt;
    if (!*launch || (*launch)->tree.empty()) continue;
    if (const auto root = sha256_from_hex(fs::path((*launch)->tree).filename().string()); root.ok()) {
      in_use.insert(*root);
    }
  }
  if (error) return std::nullopt;
  return in_use;
}

void trim_trees_to(const LaunchSite& site, uint64_t bytes_max) {
  const auto in_use = trees_in_use(site);
  if (!in_use) return;
  if (const auto trimmed = site.trees->trim(bytes_max, *in_use); !trimmed.ok()) {
    fmt::print(stderr, "{}\n", trimmed.error().message);
  }
}

bool delete_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fmt::print(stderr, "removing {}: {}\n", path.string(), error.message());
  return !error;
}

// "4.2.worker.1@1" belongs to the launch 4.2@1; none for a name of somebody else's.
std::optional<LaunchId> launch_of_place(const std::string& name) {
  const size_t at = std::min(name.find('@'), name.size());
  const auto replica = parse_replica_id(std::string_view(name).substr(0, at));
  if (!replica.ok()) return std::nullopt;
  const auto launch = parse_launch_id(to_string(replica->experiment) + name.substr(at));
  if (!launch.ok()) return std::nullopt;
  return launch_of(*replica, launch->attempt);
}

bool delete_place(const fs::path& place) {
  remove_layer(image_layer_in(place));
  const auto released = release_view(place);
  if (released.ok()) return true;
  fmt::print(stderr, "{}: {}\n", place.filename().string(), released.error().message);
  return false;
}

}  // namespace

Result<ReleasedWork> release_work(const LaunchRecord& launch, const LaunchDir& directory,
                                 const ReplicaId& id, bool may_be_outrun) {
  const auto replica = std::find_if(launch.replicas.begin(), launch.replicas.end(),
                                    [&](const ReplicaLaunch& each) { return each.id == id; });
  if (replica == launch.replicas.end()) return ReleasedWork();
  Collected collected;
  if (id.role != Role::Build) {
    TRY(collected, copy_outputs(directory, *replica, may_be_outrun));
  }
  // Of a view that a runner unmounted before it could say so nothing is known any more.
  std::error_code unknown;
  const bool says = decides(id.role) && !fs::is_empty(replica->cwd, unknown) && !unknown;
  std::string lacking;
  if (says && !collected.not_there.empty()) {
    lacking = "outputs that were not there: " + first_of(collected.not_there);
  }
  const fs::path place = launch.place_of(id);
  if (auto unmounted = unmount_view(place); !unmounted.ok()) {
    fmt::print(stderr, "{}: {}\n", to_string(id), unmounted.error().message);
  }
  // What it made elsewhere than in the environment was in passing.
  if (id.role == Role::Build) return ReleasedWork();
  auto left = left_behind(place, launch.tree, collected.taken);
  if (!left.ok() && is_passing(left.error())) return left.error();
  // Rather kept than deleted unseen.
  if (!left.ok()) left = fmt::format("files that can't be listed ({})", left.error().message);
  if (left->empty() && collected.not_copied.empty()) return ReleasedWork{lacking, false};
  if (::utimensat(AT_FDCWD, place.c_str(), nullptr, 0) != 0) {  // from now on, for remove_old_work()
    fmt::print(stderr, "{}\n", errno_error("touch " + place.string(), errno).message);
  }
  std::string text =
      fmt::format("left {}, kept 7 days in {} (dtrain output cp {})", left->empty() ? "outputs" : *left, place.string(), to_string(id));
  if (!collected.not_copied.empty()) text += "; not collected: " + first_of(collected.not_copied);
  if (!lacking.empty()) text += "; " + lacking;
  return ReleasedWork{std::move(text), true};
}

bool remove_work(const LaunchRecord& launch, const ReplicaId& id) {
  return delete_place(launch.place_of(id));
}

bool remove_unprepared(const LaunchSite& site, const LaunchDir& directory) {
  const auto launch = parse_launch_id(directory.path().filename().string());
  bool all = true;
  std::error_code error;
  for (const fs::directory_entry& place : fs::directory_iterator(site.work(), error)) {
    if (!launch.ok() || launch_of_place(place.path().filename().string()) != *launch) continue;
    all = delete_place(place.path()) && all;
  }
  const bool listed = !error || error == std::errc::no_such_file_or_directory;
  return listed && all && remove_launch(directory);
}

bool remove_launch(const LaunchDir& directory) {
  if (auto launch = directory.read_launch(); launch.ok() && *launch) {
    const Status removed = remove_launch_cgroups(**launch);
    // Without the record nobody would know of the group.
    if (!removed.ok() && removed.error().code == Code::FailedPrecondition) return false;
    for (const ReplicaLaunch& replica : (*launch)->replicas) {
      if (replica.id.role == Role::Build) continue;   // has none, and the number of a gang that may
      const auto submission = replica.env.find("DTRAIN_SUBMISSION");
      if (submission == replica.env.end()) continue;
      remove_mpi_files(mpi_directory(submission->second, replica.id.experiment, (*launch)->attempt), replica.id);
    }
  }
  return delete_tree(directory.path());
}

void trim_trees(const LaunchSite& site) {
  if (site.trees->has_grown()) trim_trees_to(site, site.trees_bytes_max);
}

void prune_trees(const LaunchSite& site) { trim_trees_to(site, 0); }

uint64_t unused_tree_bytes(const LaunchSite& site) {
  const auto in_use = trees_in_use(site);
  return in_use ? site.trees->unused_bytes(*in_use) : 0;
}

void prune_environments(const LaunchSite& site, const std::set<LaunchId>& live) {
  if (const auto use = use_of_environments(site, live)) put_away_environments(site.envs(), *use);
}

Environments count_unused_environments(const LaunchSite& site, const std::set<LaunchId>& live) {
  const auto use = use_of_environments(site, live);
  return use ? count_environments(site.envs(), *use) : Environments();
}

void remove_old_work(const LaunchSite& site, const std::set<LaunchId>& held, bool ages_believed) {
  std::set<std::string> in_use;
  for (const LaunchId& id : held) in_use.insert(to_string(id.experiment));
  remove_old_copies(site.outputs(), in_use, ages_believed);
  if (!ages_believed) return;
  std::error_code error;
  for (const fs::directory_entry& place : fs::directory_iterator(site.work(), error)) {
    const std::string name = place.path().filename().string();
    if (const auto launch = launch_of_place(name); launch && held.contains(*launch)) continue;
    struct stat info {};
    if (lstat(place.path().c_str(), &info) != 0) continue;
    if (std::time(nullptr) - info.st_mtime < kKeepWorkSeconds) continue;
    (void)delete_place(place.path());
  }
}

}  // namespace dtrain::runner
