#include "runner/preparation.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "runner/command.h"
#include "runner/data_sets.h"
#include "runner/engine_launch.h"
#include "runner/environments.h"
#include "runner/gpu_lock.h"
#include "runner/output_copy.h"
#include "runner/python.h"
#include "runner/small_file.h"
#include "schema/expand.h"
#include "schema/fd.h"
#include "schema/quote.h"
#include "schema/random_id.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPortVariable = "DTRAIN_PORT";
constexpr const char* kOutputsFile = "outputs";  // paths of the work tree, each ended by a NUL
constexpr int64_t kKeepWorkSeconds = 7 * 24 * 3600;

Result<Seat> seat_from(const pb::SeatInfo& info) {
  Seat seat;
  TRY(seat.replica, parse_replica_id(info.replica()));
  seat.host = HostId{info.host_id()};
  seat.address = info.address();
  seat.port = static_cast<int>(info.port());
  seat.rank = static_cast<int>(info.rank());
  seat.local_rank = static_cast<int>(info.local_rank());
  seat.cpus = info.cpus();
  seat.memory_bytes = info.memory_bytes();
  for (const uint32_t gpu : info.gpus()) seat.gpus.push_back(static_cast<int>(gpu));
  return seat;
}

Status make_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return errno_error("make " + path.string(), error.value());
  return ok();
}

Result<fs::path> fetch_tree(const LaunchSite& site, const std::string& snapshot) {
  TRY(const Sha256 root, sha256_from_bytes(snapshot));
  if (auto found = site.trees->find(root)) return *found;
  return ensure_tree(*site.trees, root,
                     [&](const std::vector<Sha256>& missing, TreeBuilder& builder) {
                       std::vector<std::string> names;
                       for (const Sha256& name : missing) names.push_back(to_bytes(name));
                       bool taken = true;
                       Status fetched = site.blobs->fetch(names, [&](const pb::BlobPart& part) -> Status {
                         TRY(const Sha256 name, sha256_from_bytes(part.sha256()));
                         Status added = builder.add(name, part.size(), part.data(), part.last());
                         taken = added.ok();
                         return added;
                       });
                       // No other host can have it either.
                       if (taken && !fetched.ok() && fetched.error().code == Code::NotFound) {
                         fetched.error().code = Code::FailedPrecondition;
                         fetched.error().hint = "submit it again";
                       }
                       return fetched;
                     });
}

// The views of one launch, undone unless kept.
class Views {
 public:
  explicit Views(const std::string& tree) : source_(tree) {}
  ~Views() {
    if (kept_) return;
    for (const fs::path& place : places_) (void)release_view(place).ok();
  }
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;

  Status make(const fs::path& place, ReplicaLaunch& replica) {
    auto view = view_in(place);
    if (!view.ok() && view.error().code == Code::AlreadyExists) {
      TRY(release_view(place));  // of a preparation that was cut off
      view = view_in(place);
    }
    if (!view.ok()) return std::move(view).error();
    places_.push_back(place);
    replica.cwd = view->cwd.string();
    return ok();
  }
  void keep() { kept_ = true; }

 private:
  Result<Workdir> view_in(const fs::path& place) const {
    return source_.tree().empty() ? make_empty_view(place) : make_view(source_, place);
  }

  const ViewSource source_;
  std::vector<fs::path> places_;
  bool kept_ = false;
};

constexpr const char* kBuildScript = "build.sh";

// Its rights and limits are those of what it is for, which has not begun.
bool is_build(const ReplicaId& id) {
  return id.role == Role::Build;
}

struct Understood {
  Spec spec;
  std::vector<Seat> gang;
  std::vector<Seat> here;
};

Result<Understood> understand(const pb::Launch& launch) {
  Understood out;
  ParseOptions options;
  options.file_name = "launch";
  TRY(const Spec whole, parse_spec(launch.spec_yaml(), options));
  out.spec = member_spec(whole, launch.member());
  for (const pb::SeatInfo& info : launch.gang()) {
    TRY(Seat seat, seat_from(info));
    out.gang.push_back(std::move(seat));
  }
  for (const std::string& text : launch.replicas()) {
    TRY(const ReplicaId id, parse_replica_id(text));
    const auto seat = std::find_if(out.gang.begin(), out.gang.end(),
                                   [&](const Seat& each) { return each.replica == id; });
    if (seat == out.gang.end() || (out.spec.role(id.role) == nullptr && !is_build(id))) {
      return Error{Code::Internal, fmt::format("{} has no seat or no role in its launch", text),
                   ""};
    }
    out.here.push_back(*seat);
  }
  return out;
}

Environment map_of(const google::protobuf::Map<std::string, std::string>& map) {
  return {map.begin(), map.end()};
}

ReplicaLaunch replica_launch(const EnvironmentInputs& inputs, const Seat& seat,
                             std::vector<std::string> argv) {
  ReplicaLaunch replica;
  replica.id = seat.replica;
  replica.attempt = inputs.attempt;
  replica.argv = std::move(argv);
  replica.env = replica_environment(inputs, seat);
  if (seat.port != 0) replica.env[kPortVariable] = std::to_string(seat.port);
  return replica;
}

std::string lock_of_gpu(const LaunchSite& site, int index) {
  const auto facts = std::find_if(site.gpus.begin(), site.gpus.end(),
                                  [index](const GpuFacts& gpu) { return gpu.index == index; });
  return gpu_lock(facts == site.gpus.end() ? "" : facts->uuid, index).string();
}

CgroupLimits limits_of(const Spec& spec, const Seat& seat) {
  return {seat.cpus, spec.hard_cpus, seat.memory_bytes, spec.hard_memory};
}

Status write_outputs(const Spec& spec, const LaunchDir& directory) {
  if (spec.outputs.empty()) return ok();
  std::string text;
  for (const std::string& path : spec.outputs) text.append(path).push_back('\0');
  return write_file(directory.path() / kOutputsFile, text);
}

PythonChoice python_of(const fs::path& environment) {
  return {{(environment / "bin").string()}, {}, {{"VIRTUAL_ENV", environment.string()}}};
}

// The engine needs none, and its TensorBoard says by itself what it lacks.
bool needs_python(const Spec& spec) {
  return spec.framework != Framework::Engine || spec.has_build();
}

Result<PythonChoice> python_for(const LaunchSite& site, const pb::Launch& launch, const Spec& spec) {
  auto python = choose_python(spec.python, map_of(launch.user_env()), site.inherited, site.home);
  if (!python.ok() && !needs_python(spec)) return PythonChoice();
  return python;
}

// What the replicas of the launch run, and with which python. nullopt: a build with nothing to do.
struct Commands {
  PythonChoice python;
  std::optional<std::string> build;   // else each what its role says
};
Result<std::optional<Commands>> commands_of(const LaunchSite& site, const pb::Launch& launch,
                                            const Understood& what, const fs::path& tree) {
  Commands commands;
  TRY(commands.python, python_for(site, launch, what.spec));
  if (!what.spec.has_build()) return std::optional(commands);
  TRY(const Recipe recipe,
      recipe_of(what.spec, commands.python, site.inherited, tree, site.host_name));
  const auto environment = find_environment(site.envs(), recipe.key(), launch.rebuild());
  if (is_build(what.here.front().replica)) {
    if (environment) return std::optional<Commands>();
    commands.build = build_script(recipe, site.envs(), launch.rebuild());
  } else if (environment) {
    commands.python = python_of(*environment);
  } else {
    return Error{Code::Unavailable,
                 fmt::format("the environment {} is not there any more", recipe.key()), ""};
  }
  return std::optional(commands);
}

// A build doesn't, and what the members of a set share doesn't.
bool runs_engine(const Understood& what) {
  return what.spec.framework == Framework::Engine &&
         std::any_of(what.here.begin(), what.here.end(), [](const Seat& seat) {
           return seat.replica.role != Role::Tensorboard && !is_build(seat.replica);
         });
}

Result<std::vector<std::string>> argv_of(const LaunchSite& site, const Spec& spec,
                                         const RoleSpec& role) {
  if (spec.framework != Framework::Engine || role.role == Role::Tensorboard) {
    return shell_command(role.run);
  }
  const std::string program = find_engine(site.programs, site.inherited);
  if (program.empty()) return Error{Code::Unavailable, lacking_engine(site.programs), ""};
  return std::vector<std::string>{program, "train"};
}

Result<std::optional<LaunchRecord>> write_down(const LaunchSite& site, const pb::Launch& launch,
                                               const LaunchDir& directory) {
  TRY(const Understood what, understand(launch));
  LaunchRecord file;
  TRY(file.experiment, parse_experiment_id(launch.experiment()));
  file.attempt = launch.attempt();
  TRY(file.key, random_id());
  TRY(file.ctl, random_id());
  file.lease_ms = static_cast<int64_t>(launch.lease_ms());
  file.grace_ms = what.spec.stop_grace_ms;
  file.spool_limit_bytes = launch.spool_limit_bytes();
  file.work_root = site.work().string();

  EnvironmentInputs inputs;
  inputs.spec = what.spec;
  inputs.gang = what.gang;
  inputs.inherited = site.inherited;
  inputs.secrets = map_of(launch.secrets());
  if (!launch.snapshot().empty()) {
    TRY(const fs::path tree, fetch_tree(site, launch.snapshot()));
    file.tree = tree.string();
  }
  TRY(const auto commands, commands_of(site, launch, what, file.tree));
  if (!commands) return std::optional<LaunchRecord>();
  inputs.python = commands->python;
  TRY(DataPlace data, place_data(what.spec, site.data_mount, directory.path() / "data"));
  inputs.data_dir = data.directory;
  inputs.data_is_mounted = !data.mount.point.empty();
  file.data = std::move(data.mount);
  if (runs_engine(what)) {
    TRY(inputs.engine, engine_variable(what.spec, inputs.data_dir));
  }
  inputs.output_dir = launch.output_dir();
  inputs.key = file.key;
  inputs.attempt = file.attempt;
  if (!launch.output_dir().empty()) TRY(make_directory(launch.output_dir()));
  TRY(write_outputs(what.spec, directory));
  const fs::path script = directory.path() / kBuildScript;
  if (commands->build) TRY(write_file(script, *commands->build));
  Views views(file.tree);
  std::map<ReplicaId, CgroupLimits> limits;
  for (const Seat& seat : what.here) {
    const RoleSpec* role = what.spec.role(seat.replica.role);
    std::vector<std::string> argv = {"/bin/sh", script.string()};
    if (role != nullptr) {
      TRY(argv, argv_of(site, what.spec, *role));
    }
    ReplicaLaunch replica = replica_launch(inputs, seat, std::move(argv));
    TRY(views.make(file.place_of(seat.replica), replica));
    limits[seat.replica] = role != nullptr ? limits_of(what.spec, seat) : CgroupLimits{};
    for (const int index : seat.gpus) file.gpu_locks.push_back(lock_of_gpu(site, index));
    file.replicas.push_back(std::move(replica));
  }
  TRY(directory.begin(file.key));
  TRY(make_launch_cgroups(site.cgroups, limits, file));
  if (auto written = directory.write_launch(file); !written.ok()) {
    (void)remove_launch_cgroups(file).ok();
    return std::move(written).error();
  }
  views.keep();
  return std::optional(std::move(file));
}

bool is_passing(const Error& error) {
  return error.code == Code::ResourceExhausted;
}

// What could not be copied, with the reasons; it stays where it is. Only what passes is an error: no
// room, no descriptors, no memory.
Result<std::vector<std::string>> copy_outputs(const LaunchDir& directory, const ReplicaLaunch& replica) {
  std::vector<std::string> not_copied;
  const auto list = read_small_file(directory.path() / kOutputsFile);
  const auto output_dir = replica.env.find("OUTPUT_DIR");
  if (!list) {
    const Fd file(::open((directory.path() / kOutputsFile).c_str(), O_RDONLY | O_CLOEXEC));
    const Error error = errno_error("read the list of outputs", file ? 0 : errno);
    if (is_passing(error)) return error;
    return not_copied;
  }
  if (output_dir == replica.env.end()) return not_copied;
  const std::string unfinished = fmt::format(".{}@{}.unfinished", to_string(replica.id), replica.attempt);
  std::string_view rest = *list;
  while (!rest.empty()) {
    const std::string name(rest.substr(0, rest.find('\0')));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    TRY(copy_output(replica.cwd, output_dir->second, name, unfinished, not_copied));
  }
  return not_copied;
}

// The first few of them, for one line.
std::string first_of(const std::vector<std::string>& not_copied) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(not_copied.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + not_copied[i];
  }
  if (not_copied.size() > kShown) text += fmt::format(" and {} more", not_copied.size() - kShown);
  return text;
}

bool delete_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fmt::print(stderr, "removing {}: {}\n", path.string(), error.message());
  return !error;
}

// "4.2.worker.1@1" belongs to the launch "4.2@1"; empty for a name of somebody else's.
std::string launch_of_place(const std::string& name) {
  const size_t at = std::min(name.find('@'), name.size());
  const auto id = parse_replica_id(std::string_view(name).substr(0, at));
  return id.ok() ? to_string(id->experiment) + name.substr(at) : std::string();
}

bool delete_place(const fs::path& place) {
  const auto released = release_view(place);
  if (released.ok()) return true;
  fmt::print(stderr, "{}: {}\n", place.filename().string(), released.error().message);
  return false;
}

}  // namespace

bool is_hosts_fault(const Error& error) {
  return error.code != Code::InvalidArgument && error.code != Code::FailedPrecondition;
}

Result<std::string> lacking_here(const LaunchSite& site, const pb::Launch& launch) {
  TRY(const Understood what, understand(launch));
  std::string lacking = lacking_data(what.spec);
  if (!lacking.empty()) return lacking;
  if (runs_engine(what) && find_engine(site.programs, site.inherited).empty()) {
    return as_utf8(lacking_engine(site.programs));
  }
  const auto python = python_for(site, launch, what.spec);
  if (python.ok()) return std::string();
  if (python.error().code == Code::NotFound) return as_utf8(python.error().message);
  return python.error();
}

Result<std::optional<LaunchRecord>> prepare_launch(const LaunchSite& site, const pb::Launch& launch,
                                                   const LaunchDir& directory) {
  TRY(make_directory(directory.path()));
  auto file = write_down(site, launch, directory);
  if (!file.ok() || !*file) (void)delete_tree(directory.path());
  return file;
}

Result<std::string> release_work(const LaunchRecord& launch, const LaunchDir& directory,
                                 const ReplicaId& id) {
  const auto replica = std::find_if(launch.replicas.begin(), launch.replicas.end(),
                                    [&](const ReplicaLaunch& each) { return each.id == id; });
  if (replica == launch.replicas.end()) return std::string();
  std::vector<std::string> not_copied;
  if (!is_build(id)) {
    TRY(not_copied, copy_outputs(directory, *replica));
  }
  const fs::path place = launch.place_of(id);
  if (auto unmounted = unmount_view(place); !unmounted.ok()) {
    fmt::print(stderr, "{}: {}\n", to_string(id), unmounted.error().message);
  }
  // What it made elsewhere than in the environment was in passing.
  if (is_build(id)) return std::string();
  auto left = left_behind(place, launch.tree);
  if (!left.ok() && is_passing(left.error())) return left;
  // Rather kept than deleted unseen.
  if (!left.ok()) left = fmt::format("files that can't be listed ({})", left.error().message);
  if (left->empty() && not_copied.empty()) return std::string();
  if (::utimensat(AT_FDCWD, place.c_str(), nullptr, 0) != 0) {  // from now on, for remove_old_work()
    fmt::print(stderr, "{}\n", errno_error("touch " + place.string(), errno).message);
  }
  std::string text =
      fmt::format("{}, kept 7 days in {}", left->empty() ? "outputs" : *left, place.string());
  if (!not_copied.empty()) text += "; not collected: " + first_of(not_copied);
  return text;
}

bool remove_work(const LaunchRecord& launch, const ReplicaId& id) {
  return delete_place(launch.place_of(id));
}

bool remove_unprepared(const LaunchSite& site, const LaunchDir& directory) {
  const std::string name = directory.path().filename().string();
  bool all = true;
  std::error_code error;
  for (const fs::directory_entry& place : fs::directory_iterator(site.work(), error)) {
    if (launch_of_place(place.path().filename().string()) != name) continue;
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
  }
  return delete_tree(directory.path());
}

void trim_trees(const LaunchSite& site) {
  if (!site.trees->has_grown()) return;
  std::set<Sha256> in_use;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(site.launches(), error)) {
    const auto launch = LaunchDir(entry.path()).read_launch();
    if (!launch.ok()) return;  // what it uses is not known: another time
    if (!*launch || (*launch)->tree.empty()) continue;
    if (const auto root = sha256_from_hex(fs::path((*launch)->tree).filename().string()); root.ok()) {
      in_use.insert(*root);
    }
  }
  if (error) return;
  if (const auto trimmed = site.trees->trim(site.trees_bytes_max, in_use); !trimmed.ok()) {
    fmt::print(stderr, "{}\n", trimmed.error().message);
  }
}

void prune_environments(const LaunchSite& site, const std::set<std::string>& ended) {
  std::set<fs::path> in_use;
  bool building = false;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(site.launches(), error)) {
    if (ended.contains(entry.path().filename().string())) continue;
    const auto launch = LaunchDir(entry.path()).read_launch();
    if (!launch.ok()) return;  // what it uses is not known: another time
    if (!*launch) continue;
    for (const ReplicaLaunch& replica : (*launch)->replicas) {
      building = building || is_build(replica.id);
      if (const auto found = replica.env.find("VIRTUAL_ENV"); found != replica.env.end()) {
        in_use.insert(found->second);
      }
    }
  }
  if (!error) remove_environments(site.envs(), in_use, building);
}

void remove_old_work(const LaunchSite& site, const std::set<std::string>& held) {
  std::error_code error;
  for (const fs::directory_entry& place : fs::directory_iterator(site.work(), error)) {
    const std::string name = place.path().filename().string();
    if (held.contains(launch_of_place(name))) continue;
    struct stat info {};
    if (lstat(place.path().c_str(), &info) != 0) continue;
    if (std::time(nullptr) - info.st_mtime < kKeepWorkSeconds) continue;
    (void)delete_place(place.path());
  }
}

int leased_port(const ReplicaLaunch& replica) {
  const auto found = replica.env.find(kPortVariable);
  return found == replica.env.end() ? 0 : std::atoi(found->second.c_str());
}

}  // namespace dtrain::runner
