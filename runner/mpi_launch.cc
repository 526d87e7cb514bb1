#include "runner/mpi_launch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "runner/command.h"
#include "schema/small_file.h"

namespace dtrain::runner {

namespace fs = std::filesystem;

bool is_mpi_gang(const Spec& spec, const Seat& seat) {
  return spec.framework == Framework::Mpi && (seat.replica.role == Role::Launcher || seat.replica.role == Role::Worker);
}

std::string mpi_name(const ReplicaId& worker) {
  std::string name = to_string(worker);
  std::replace(name.begin(), name.end(), '.', '-');
  return name;
}

Status write_mpi_files(const fs::path& directory, const fs::path& program, const Spec& spec,
                       const std::vector<Seat>& gang) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return errno_error("make " + directory.string(), error.value());
  std::string open_mpi, hydra, workers;
  for (const Seat& seat : gang) {
    if (seat.replica.role != Role::Worker) continue;
    const std::string name = mpi_name(seat.replica);
    const int slots = processes_in(spec, seat);
    open_mpi += fmt::format("{} slots={}\n", name, slots);
    hydra += fmt::format("{}:{}\n", name, slots);
    workers += fmt::format("{} {} {}\n", name, seat.address, seat.port);
  }
  TRY(write_file(directory / "hostfile", open_mpi));
  TRY(write_file(directory / "hostfile-hydra", hydra));
  TRY(write_file(directory / "workers", workers));
  const fs::path agent = directory / "agent";
  TRY(write_file(agent, fmt::format("#!/bin/sh\nexec {} mpi-agent {} -- \"$@\"\n", single_quoted(program.string()),
                                    single_quoted((directory / "workers").string()))));
  if (::chmod(agent.c_str(), 0700) != 0) return errno_error("make " + agent.string() + " executable", errno);
  return ok();
}

std::string mpi_working_directory(const std::string& submission, uint32_t attempt) {
  return fmt::format("/dev/shm/dtrain-mpi-{}-{}", submission, attempt);
}

std::map<std::string, std::string> mpi_env(const fs::path& directory, const std::string& interface, const Seat& seat) {
  if (seat.replica.role == Role::Worker) {
    // Two workers of one host are two hosts to mpirun, and must not meet in files.
    const std::string own = fmt::format("/dev/shm/dtrain-mpi-{}-{}", ::getuid(), seat.port);
    return {{"OMPI_MCA_orte_tmpdir_base", own}, {kMpiFilesVariable, own}};
  }
  const std::string agent = (directory / "agent").string(), hydra = (directory / "hostfile-hydra").string();
  std::map<std::string, std::string> env = {{"OMPI_MCA_plm_rsh_agent", agent},
                                            {"OMPI_MCA_plm_rsh_no_tree_spawn", "1"},   // workers have no agent
                                            {"OMPI_MCA_orte_default_hostfile", (directory / "hostfile").string()},
                                            {"HYDRA_LAUNCHER", "rsh"},
                                            {"HYDRA_LAUNCHER_EXEC", agent},
                                            {"HYDRA_HOST_FILE", hydra},
                                            {"HYDRA_ENV", "none"},   // ranks have their worker's environment
                                            {"I_MPI_HYDRA_BOOTSTRAP", "rsh"},
                                            {"I_MPI_HYDRA_BOOTSTRAP_EXEC", agent},
                                            {"I_MPI_HYDRA_HOST_FILE", hydra}};
  if (!interface.empty()) env["HYDRA_IFACE"] = interface;
  if (::geteuid() == 0) {   // who submits as root means it
    env["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
    env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  }
  return env;
}

}  // namespace dtrain::runner
