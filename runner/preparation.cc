#include "runner/preparation.h"

#include <algorithm>
#include <cstdlib>

#include "runner/ask_program.h"
#include "runner/carried_outputs.h"
#include "runner/cleanup.h"
#include "runner/command.h"
#include "runner/container_image.h"
#include "runner/data_sets.h"
#include "runner/driver_files.h"
#include "runner/engine_launch.h"
#include "runner/mpi_launch.h"
#include "runner/gpu_lock.h"
#include "runner/launch_environments.h"
#include "runner/network_interface.h"
#include "runner/numa.h"
#include "runner/python.h"
#include "schema/hosts_test.h"
#include "schema/needed_glibc.h"
#include "schema/quote.h"
#include "schema/random_id.h"
#include "schema/resume.h"
#include "schema/small_file.h"
#include "schema/tensorboard.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPortVariable = "DTRAIN_PORT";
constexpr const char* kImageDirectoryVariable = "DTRAIN_IMAGE_DIR";
constexpr const char* kDataInImage = "/data";
constexpr const char* kOutputInImage = "/output";   // as RiseML had it
constexpr const char* kProgramInImage = "/.dtrain/dtrain";
constexpr int64_t kBeginsMs = 20'000;
constexpr const char* kMpiListsInImage = "/etc/mpi";   // as Kubeflow has it

Status make_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return errno_error("make " + path.string(), error.value());
  return ok();
}

Result<fs::path> fetch_tree(const LaunchSite& site, const std::string& snapshot) {
  TRY(const Sha256 root, sha256_from_bytes(snapshot));
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

bool spans_hosts(const std::vector<Seat>& gang) {
  return std::any_of(gang.begin(), gang.end(),
                     [&](const Seat& seat) { return seat.host != gang.front().host; });
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

std::vector<int> processors_of(const LaunchSite& site, const Seat& seat) {
  std::vector<int> nodes;
  for (const GpuFacts& gpu : site.gpus) {
    if (std::find(seat.gpus.begin(), seat.gpus.end(), gpu.index) != seat.gpus.end()) nodes.push_back(gpu.numa_node);
  }
  return processors_near(nodes, seat.cpus);
}

CgroupLimits limits_of(const Spec& spec, const Seat& seat) {
  return {seat.cpus, spec.hard_cpus, seat.memory_bytes, spec.hard_memory};
}

Status write_outputs(const Spec& spec, const LaunchDir& directory) {
  if (spec.outputs.empty()) return ok();
  std::string text;
  for (const std::string& path : spec.outputs) text.append(path).push_back('\0');
  return write_file(directory.outputs(), text);
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
  if (spec.framework == Framework::Mpi && role.role == Role::Worker) {
    return std::vector<std::string>{"/proc/self/exe", "mpi-worker"};   // of the keeper
  }
  if (role.run.size() == 1 && role.run.front() == kHostsProbeCommand) return std::vector<std::string>{"/proc/self/exe", "hosts-probe"};
  if (spec.framework != Framework::Engine || role.role == Role::Tensorboard) {
    return shell_command(role.run);
  }
  const std::string program = find_engine(site.programs, site.inherited);
  if (program.empty()) return Error{Code::Unavailable, lacking_engine(site.programs), ""};
  return std::vector<std::string>{program, "train"};
}

bool is_at_or_below(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first == directory.end();
}

// Neither over what is seen there as it was asked for, nor in its way.
void show_where_free(const LaunchSite& site, HostMount more, std::vector<HostMount>& all) {
  const bool is_taken = is_at_or_below(site.home, more.path) || std::ranges::any_of(all, [&](const HostMount& shown) {
    return is_at_or_below(shown.path, more.path) || is_at_or_below(more.path, shown.path);
  });
  if (!is_taken) all.push_back(std::move(more));
}

// What of the host is seen in an image: what is asked for; where results and data sets are, by the paths that they have outside, and
// as /output and below /data, too.
std::vector<HostMount> shown_in_images(const LaunchSite& site, const Spec& spec, const PlacedOutputs& outputs) {
  std::vector<HostMount> shown = spec.mounts;
  if (!outputs.directory.empty()) {
    shown.push_back({outputs.directory, outputs.directory});
    show_where_free(site, {outputs.directory, kOutputInImage}, shown);
  }
  if (const std::string path = outputs.resumed.empty() ? resumed_path(spec) : outputs.resumed; !path.empty()) {
    shown.push_back({path, path, true});
  }
  if (!outputs.after.empty() && outputs.after != resumed_path(spec)) shown.push_back({outputs.after, outputs.after, true});
  for (const auto& [name, path] : spec.data) shown.push_back({path, fmt::format("{}/{}", kDataInImage, name), true});
  return shown;
}

// Where somebody has GPUs: who has none can't see any all the same.
void show_driver(const LaunchSite& site, LaunchRecord& file) {
  if (file.gpu_locks.empty() || site.driver_libraries.empty()) return;
  const std::string smi = find_program(search_path({}, site.inherited), "nvidia-smi");
  for (HostMount& shown : driver_files(site.driver_libraries, smi)) file.shown.push_back(std::move(shown));
  for (ReplicaLaunch& replica : file.replicas) {
    std::string& libraries = replica.env["LD_LIBRARY_PATH"];
    libraries = std::string(kDriverInImage) + (libraries.empty() ? "" : ":" + libraries);
  }
}

// Workers are dtrain's own program, and so is what mpirun calls.
Status check_runs_in_image(const fs::path& program, const std::string& files, const std::string& name, const fs::path& layer) {
  SpawnRequest request;
  request.argv = {kProgramInImage, "version"};
  request.image = {files, {{program.string(), kProgramInImage, true}}};
  request.image_layer = layer;
  const auto answer = ask_program(std::move(request), kBeginsMs);
  remove_layer(layer);
  if (answer.ok() && answer->succeeded) return ok();
  const bool is_refused = !answer.ok() && answer.error().code == Code::PermissionDenied;   // of another kind of processor, say
  if (!answer.ok() && answer.error().code != Code::NotFound && !is_refused) return answer.error();
  const std::string said = answer.ok() ? answer->said.substr(0, answer->said.find('\n')) : is_refused ? answer.error().message : "";
  const std::string what = said.empty() ? name + " has none"
                           : said.find("GLIBC_") != std::string::npos
                               ? name + " has an older one"
                               : fmt::format("in {} dtrain does not run: {}", name, said);
  return Error{Code::FailedPrecondition, fmt::format("framework: mpi takes an image with glibc {} or later; {}", needed_glibc(), what),
               "take a newer image, or --no-image with what the hosts have"};
}

// See mpi_launch.h.
Status make_mpi_directory(const fs::path& program, const Understood& what, const fs::path& directory,
                          const std::string& link, std::vector<ReplicaLaunch>& replicas) {
  const auto launcher = std::find_if(replicas.begin(), replicas.end(),
                                     [](const ReplicaLaunch& replica) { return replica.id.role == Role::Launcher; });
  const ReplicaLaunch& first = launcher != replicas.end() ? *launcher : replicas.front();
  if (first.id.role != Role::Launcher && first.id.role != Role::Worker) return ok();
  TRY(write_mpi_files(directory, link, program, first.cwd, what.spec, what.gang));
  if (launcher != replicas.end()) launcher->env["PWD"] = mpi_working_directory(link);
  return ok();
}

std::vector<WatchedLine> lines_to_watch(const Spec& spec) {
  std::vector<WatchedLine> lines;
  for (size_t i = 0; i < spec.failure_policy.size(); ++i) {
    const FailureRule& rule = spec.failure_policy[i];
    if (!rule.printed.empty()) lines.push_back({static_cast<uint32_t>(i), rule.printed, rule.at_once});
  }
  return lines;
}

Result<std::optional<LaunchRecord>> write_down(const LaunchSite& site, const pb::Launch& launch,
                                               const PlacedOutputs& outputs, const LaunchDir& directory) {
  TRY(Understood what, understand(launch));
  const auto resumed = what.spec.env.find(kResumeVariable);
  if (!outputs.resumed.empty() && resumed != what.spec.env.end()) resumed->second = outputs.resumed;
  LaunchRecord file;
  TRY(file.experiment, parse_experiment_id(launch.experiment()));
  file.attempt = launch.attempt();
  TRY(file.key, random_id());
  TRY(file.ctl, random_id());
  file.lease_ms = static_cast<int64_t>(launch.lease_ms());
  file.grace_ms = what.spec.stop_grace_ms;
  file.spool_limit_bytes = launch.spool_limit_bytes();
  if (!is_of_builds(what)) file.watched = lines_to_watch(what.spec);
  file.work_root = site.work().string();

  EnvironmentInputs inputs;
  inputs.spec = what.spec;
  inputs.gang = what.gang;
  if (spans_hosts(what.gang)) inputs.interface = interface_of(what.here.front().address);
  inputs.inherited = is_of_builds(what) ? site.inherited : without_fetchers(site.inherited);
  inputs.secrets = {launch.secrets().begin(), launch.secrets().end()};
  if (!launch.snapshot().empty()) {
    TRY(const fs::path tree, fetch_tree(site, launch.snapshot()));
    file.tree = tree.string();
  }
  TRY(const auto used, environments_of(site, launch, what, file.tree, directory));
  if (!used) return std::optional<LaunchRecord>();
  const bool in_images = !used->images.empty();
  inputs.python = used->python;
  if (in_images) {
    file.shown = shown_in_images(site, what.spec, outputs);
    if (!what.spec.data.empty()) inputs.data_dir = kDataInImage;
    inputs.data_is_mounted = true;
  } else {
    TRY(DataPlace data, place_data(what.spec, site.data_mount, directory.path() / "data"));
    inputs.data_dir = data.directory;
    inputs.data_is_mounted = !data.mount.point.empty();
    file.data = std::move(data.mount);
  }
  if (runs_engine(what)) {
    TRY(inputs.engine, engine_variable(what.spec, inputs.data_dir, outputs.resumed));
  }
  inputs.output_dir = outputs.directory;
  inputs.after_dir = outputs.after;
  inputs.mpi_directory = mpi_directory(launch.submission(), file.experiment, file.attempt);
  inputs.key = file.key;
  inputs.submission = launch.submission();
  inputs.attempt = file.attempt;
  if (!outputs.directory.empty()) TRY(make_directory(outputs.directory));
  TRY(write_outputs(what.spec, directory));
  for (size_t i = 0; i < used->builds.size(); ++i) TRY(write_file(script_of_build(directory, i), used->builds[i]));
  Views views(file.tree);
  std::map<ReplicaId, CgroupLimits> limits;
  for (const Seat& seat : what.here) {
    const RoleSpec* role = what.spec.role(seat.replica.role);
    std::vector<std::string> argv = {"/bin/sh", script_of_build(directory, 0).string()};
    if (role != nullptr) {
      TRY(argv, argv_of(site, what.spec, *role));
    }
    const UsedImage* const image = in_images ? &used->images.at(what.spec.image_of(*role)) : nullptr;
    if (image != nullptr) {
      inputs.inherited = environment_in_image(image->config, site.inherited);
      inputs.inherited[kImageDirectoryVariable] = image->config.directory;
    }
    ReplicaLaunch replica = replica_launch(inputs, seat, std::move(argv));
    TRY(views.make(file.place_of(seat.replica), replica));
    if (image != nullptr) {
      replica.image = image->files.string();
      TRY(write_image_programs(*image, file.image_layer_of(seat.replica)));
    }
    replica.processors = processors_of(site, seat);
    limits[seat.replica] = role != nullptr ? limits_of(what.spec, seat) : CgroupLimits{};
    for (const int index : seat.gpus) file.gpu_locks.push_back(lock_of_gpu(site, index));
    file.replicas.push_back(std::move(replica));
  }
  if (in_images) show_driver(site, file);
  if (what.spec.framework == Framework::Mpi) {
    const fs::path files = directory.path() / "mpi";
    fs::path program = site.programs / "dtrain";
    for (const auto& [name, image] : used->images) {
      TRY(check_runs_in_image(program, image.files.string(), name, directory.path() / "begins"));
    }
    if (in_images) {
      file.shown.push_back({files.string(), files.string()});
      file.shown.push_back({program.string(), kProgramInImage, true});
      show_where_free(site, {mpi_lists(files).string(), kMpiListsInImage, true}, file.shown);
      program = kProgramInImage;
    }
    TRY(make_mpi_directory(program, what, files, inputs.mpi_directory, file.replicas));
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

}  // namespace

bool is_hosts_fault(const Error& error) {
  return error.code != Code::InvalidArgument && error.code != Code::FailedPrecondition;
}

Result<std::string> lacking_here(const LaunchSite& site, const pb::Launch& launch, bool outputs_are_here) {
  TRY(const Understood what, understand(launch));
  if (const auto shown = what.spec.env.find(kTensorboardLogdir); !outputs_are_here && shown != what.spec.env.end()) {
    return as_utf8(fmt::format("{}: the daemon's {} is not there", kTensorboardLogdir, shown->second));
  }
  const std::string lacking = lacking_data(what.spec);
  if (!lacking.empty()) return lacking;
  if (runs_engine(what) && find_engine(site.programs, site.inherited).empty()) {
    return as_utf8(lacking_engine(site.programs));
  }
  return lacking_environment(site, launch, what);
}

Result<PlacedOutputs> place_outputs(const LaunchSite& site, const pb::Launch& launch, const std::function<bool()>& wanted) {
  const CarriedPlace place = carried_place(site.outputs(), launch.experiment(), launch.submission());
  PlacedOutputs placed{place.files().string()};
  TRY(const Understood what, understand(launch));
  // What it makes is in the environment.
  if (std::ranges::all_of(what.here, [](const Seat& seat) { return is_build(seat.replica); })) return placed;
  pb::OutputsRequest of;
  of.set_experiment(launch.experiment());
  of.set_attempt(launch.attempt());
  of.set_submission(launch.submission());
  of.set_host_id(site.host_id);
  TRY(bring_outputs(place, *site.store, of, wanted));
  if (const std::string path = resumed_path(what.spec); !path.empty()) {
    TRY(placed.resumed, bring_results(place, place.resumed(), *site.store, of, path, wanted));
  }
  if (!launch.after_dir().empty()) {
    TRY(placed.after, bring_results(place, place.after(), *site.store, of, launch.after_dir(), wanted));
  }
  return placed;
}

Result<std::optional<LaunchRecord>> prepare_launch(const LaunchSite& site, const pb::Launch& launch,
                                                   const PlacedOutputs& outputs, const LaunchDir& directory) {
  TRY(make_directory(directory.path()));
  auto file = write_down(site, launch, outputs, directory);
  if (!file.ok() || !*file) (void)remove_launch(directory);
  return file;
}

int leased_port(const ReplicaLaunch& replica) {
  const auto found = replica.env.find(kPortVariable);
  return found == replica.env.end() ? 0 : std::atoi(found->second.c_str());
}

}  // namespace dtrain::runner
