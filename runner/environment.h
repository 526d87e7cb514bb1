// The complete environment of a replica; pure. What it promises is a contract with users' programs.
//
// Later wins: inherited from the runner (inherited_environment), `env` of the YAML, secrets, parameters,
// then dtrain's own, which nobody may override: a wrong TF_CONFIG or GPU list hurts others too.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schema/cluster_env.h"
#include "schema/spec.h"

namespace dtrain::runner {

using Environment = std::map<std::string, std::string>;

// PATH where nobody says one.
inline constexpr std::string_view kUsualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// What of `all` a replica inherits: who the user is, language and time zone, where programs and
// libraries are, proxies, caches of models. Nothing else leaks from the shell that started us.
Environment inherited_environment(const Environment& all);
// Without what only the programs need that fetch images: replicas have no use for it, and it may hold passwords.
Environment without_fetchers(const Environment& inherited);
// Whether a variable that is inherited speaks of the host's own files and users, which in an image mean nothing.
bool is_about_host(const std::string& name, const std::string& value);
Environment own_process_environment();

// Which python a replica finds first; see python.h.
struct PythonChoice {
  std::vector<std::string> path_first;  // directories put in front of PATH
  std::vector<std::string> path_last;
  Environment variables;  // VIRTUAL_ENV or CONDA_PREFIX
};
// PATH, for one whose environment is `env` so far.
std::string search_path(const PythonChoice& python, const Environment& env);

// Everything about one launch that its replicas' environments depend on.
struct EnvironmentInputs {
  Spec spec;  // of the member
  std::vector<Seat> gang;
  Environment inherited;
  Environment secrets;
  PythonChoice python;
  std::string engine;    // DTRAIN_ENGINE; empty: none
  std::string mpi_directory;  // see mpi_launch.h
  std::string interface;  // by which other hosts of the gang reach this one; empty: there are none
  std::string output_dir;
  std::string after_dir;  // empty: it comes after none
  std::string data_dir;  // holds all data sets by their names; empty: none
  bool data_is_mounted = false;  // there, and not only links to them
  std::string key;       // DTRAIN_KEY
  std::string submission;  // DTRAIN_SUBMISSION
  uint32_t attempt = 0;
};

Environment replica_environment(const EnvironmentInputs& inputs, const Seat& seat);

}  // namespace dtrain::runner
