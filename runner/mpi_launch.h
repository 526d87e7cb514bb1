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

// Of the launcher: writes hostfiles and the agent, which calls `program`, below `directory`.
Status write_mpi_files(const std::filesystem::path& directory, const std::filesystem::path& program, const Spec& spec,
                       const std::vector<Seat>& gang);

// What each of them needs in its environment, unless the user says otherwise. `directory` is the launcher's;
// `interface`: by which hosts reach each other, empty: there is only one.
std::map<std::string, std::string> mpi_env(const std::filesystem::path& directory, const std::string& interface,
                                           const Seat& seat);

// A worker's: what Open MPI keeps in memory for it, a directory of its own.
inline constexpr const char* kMpiFilesVariable = "OMPI_MCA_btl_vader_backing_directory";

// mpirun has ranks begin in its own directory, as $PWD names it, whatever host they are on. So that is by the same path on
// each: a link, to the launcher's working directory where that is, else to that of a worker.
inline constexpr const char* kMpiDirVariable = "DTRAIN_MPI_DIR";
std::string mpi_working_directory(const std::string& submission, uint32_t attempt);

}  // namespace dtrain::runner
