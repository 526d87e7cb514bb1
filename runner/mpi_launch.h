// What the launcher and the workers of framework: mpi get, so that a mpirun as it is finds its hosts and starts its
// ranks in the workers: Open MPI 4 and MPICH (Hydra), from which Intel MPI comes.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "schema/cluster_env.h"

namespace dtrain::runner {

// Whether there is anything to do.
bool is_mpi_gang(const Spec& spec, const Seat& seat);

// "4-worker-1": what mpirun calls a worker. It must be no real host's name, and Open MPI forgets what follows a dot.
std::string mpi_name(const ReplicaId& worker);

// Where the files for MPI of an experiment, or of a member of a set, are found, the same on each host: a link, to a directory of the launch. Neither Open
// MPI nor Hydra takes an agent by a path with a space in it, which the directory's own may have.
std::string mpi_directory(const std::string& submission, const ExperimentId& experiment, uint32_t attempt);
// mpirun has ranks begin in its own directory, as $PWD names it, whatever host they are on. So that is by the same path on
// each, below the link: the launcher's working directory where that is, else that of a worker.
std::string mpi_working_directory(const std::string& directory);

// What Kubeflow's operator has in /etc/mpi: `hostfile` as Open MPI reads it, and `discover_hosts.sh`, which prints NAME:SLOTS.
std::filesystem::path mpi_lists(const std::filesystem::path& directory);

// Writes hostfiles and the agent, which calls `program`, to `directory`, and makes `link` and what is for `project`.
Status write_mpi_files(const std::filesystem::path& directory, const std::string& link,
                       const std::filesystem::path& program, const std::filesystem::path& project, const Spec& spec,
                       const std::vector<Seat>& gang);

// What each of them needs in its environment, unless the user says otherwise. `directory`: as it is found;
// `interface`: by which hosts reach each other, empty: there is only one.
std::map<std::string, std::string> mpi_env(const std::string& directory, const std::string& interface, bool in_image,
                                           const Seat& seat);

// Of a worker, whose interface may have another name than the launcher's. Open MPI refuses it beside its opposite,
// btl_tcp_if_exclude.
inline constexpr const char* kMpiInterfaceVariable = "OMPI_MCA_btl_tcp_if_include";

// Where Open MPI keeps a worker's files in memory: two workers of one host are two hosts to mpirun, and must not meet there.
std::string mpi_worker_files(const std::string& directory, const ReplicaId& worker);

// Where mpirun keeps its own: two of them that begin at once are in each other's way in the /tmp that all share.
std::string mpi_launcher_files(const std::string& directory);

// The link, and what a launcher or a worker that was killed has left. `directory`: as it is found.
void remove_mpi_files(const std::string& directory, const ReplicaId& replica);

}  // namespace dtrain::runner
