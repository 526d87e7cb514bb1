#include "runner/mpi_launch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "schema/sha256.h"
#include "schema/shell_words.h"
#include "schema/small_file.h"

namespace dtrain::runner {

namespace fs = std::filesystem;

namespace {

Status write_script(const fs::path& path, const std::string& text) {
  TRY(write_file(path, text));
  if (::chmod(path.c_str(), 0700) != 0) return errno_error("make " + path.string() + " executable", errno);
  return ok();
}

}  // namespace

bool is_mpi_gang(const Spec& spec, const Seat& seat) {
  return spec.framework == Framework::Mpi && (seat.replica.role == Role::Launcher || seat.replica.role == Role::Worker);
}

std::string mpi_name(const ReplicaId& worker) {
  std::string name = to_string(worker);
  std::replace(name.begin(), name.end(), '.', '-');
  return name;
}

Status write_mpi_files(const fs::path& directory, const std::string& link, const fs::path& program,
                       const fs::path& project, const Spec& spec, const std::vector<Seat>& gang) {
  std::error_code error;
  const fs::path lists = mpi_lists(directory);
  fs::create_directories(lists, error);
  if (error) return errno_error("make " + lists.string(), error.value());
  std::string open_mpi, hydra, workers, discover = "#!/bin/sh\n";
  for (const Seat& seat : gang) {
    if (seat.replica.role != Role::Worker) continue;
    const std::string name = mpi_name(seat.replica);
    const int slots = processes_in(spec, seat);
    open_mpi += fmt::format("{} slots={}\n", name, slots);
    hydra += fmt::format("{}:{}\n", name, slots);
    discover += fmt::format("echo {}:{}\n", name, slots);
    workers += fmt::format("{} {} {}\n", name, seat.address, seat.port);
  }
  TRY(write_file(lists / "hostfile", open_mpi));
  TRY(write_script(lists / "discover_hosts.sh", discover));
  TRY(write_file(directory / "hostfile-hydra", hydra));
  TRY(write_file(directory / "workers", workers));
  TRY(write_script(directory / "agent", fmt::format("#!/bin/sh\nexec {} mpi-agent {} -- \"$@\"\n", shell_quoted(program.string()),
                                                    shell_quoted((directory / "workers").string()))));
  for (const auto& [path, target] : {std::pair(mpi_working_directory(directory.string()), project), std::pair(link, directory)}) {
    (void)::unlink(path.c_str());
    if (::symlink(target.c_str(), path.c_str()) != 0) return errno_error("make " + path, errno);
  }
  return ok();
}

std::string mpi_directory(const std::string& submission, const ExperimentId& experiment, uint32_t attempt) {
  // Everybody of the host can list names there, and the submission is the secret that lets an agent into a worker. Members
  // of a set have one submission.
  const std::string whose = fmt::format("directory of {} of {}", to_string(experiment), submission);
  return fmt::format("/dev/shm/dtrain-mpi-{}-{}", to_hex(sha256(whose)).substr(0, 16), attempt);
}

fs::path mpi_lists(const fs::path& directory) { return directory / "lists"; }

std::string mpi_working_directory(const std::string& directory) { return directory + "/project"; }

std::string mpi_worker_files(const std::string& directory, const ReplicaId& worker) {
  return directory + "-" + mpi_name(worker);
}

std::string mpi_launcher_files(const std::string& directory) { return directory + "-launcher"; }

void remove_mpi_files(const std::string& directory, const ReplicaId& replica) {
  std::error_code ignored;
  if (replica.role == Role::Worker) fs::remove_all(mpi_worker_files(directory, replica), ignored);
  if (replica.role == Role::Launcher) fs::remove_all(mpi_launcher_files(directory), ignored);
  (void)::unlink(directory.c_str());
}

std::map<std::string, std::string> mpi_env(const std::string& directory, const std::string& interface, bool in_image, const Seat& seat) {
  if (seat.replica.role == Role::Worker) {
    const std::string own = mpi_worker_files(directory, seat.replica);
    std::map<std::string, std::string> env = {{"OMPI_MCA_orte_tmpdir_base", own},
                                              {"OMPI_MCA_btl_vader_backing_directory", own}};
    // Ranks would also try addresses that mean another host elsewhere, as those of Docker's bridge, and hang.
    if (!interface.empty()) env[kMpiInterfaceVariable] = interface;
    return env;
  }
  const std::string agent = directory + "/agent", hydra = directory + "/hostfile-hydra";
  std::map<std::string, std::string> env = {{"OMPI_MCA_plm_rsh_agent", agent},
                                            {"OMPI_MCA_plm_rsh_no_tree_spawn", "1"},   // workers have no agent
                                            {"OMPI_MCA_orte_default_hostfile", mpi_lists(directory).string() + "/hostfile"},
                                            {"OMPI_MCA_orte_tmpdir_base", mpi_launcher_files(directory)},
                                            {"HYDRA_LAUNCHER", "rsh"},
                                            {"HYDRA_LAUNCHER_EXEC", agent},
                                            {"HYDRA_HOST_FILE", hydra},
                                            {"HYDRA_ENV", "none"},   // ranks have their worker's environment
                                            {"I_MPI_HYDRA_BOOTSTRAP", "rsh"},
                                            {"I_MPI_HYDRA_BOOTSTRAP_EXEC", agent},
                                            {"I_MPI_HYDRA_HOST_FILE", hydra}};
  if (!interface.empty()) env["HYDRA_IFACE"] = interface;
  // Who submits as root means it, and in an image everybody is.
  if (::geteuid() == 0 || in_image) {
    env["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
    env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  }
  return env;
}

}  // namespace dtrain::runner
