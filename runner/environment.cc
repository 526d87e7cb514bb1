#include "runner/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "runner/mpi_launch.h"
#include "runner/thread_count.h"
#include "schema/engine_spec.h"
#include "schema/expand.h"

namespace dtrain::runner {
namespace {

// About this host's files and users.
constexpr std::array<std::string_view, 17> kHostNames = {
    "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TMPDIR", "PATH", "LD_LIBRARY_PATH", "HF_HOME",
    "HF_TOKEN_PATH", "TORCH_HOME", "XDG_CACHE_HOME",
    // Behind a proxy that speaks TLS itself nothing is fetched without these.
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"};
// Of what fetches images, and what else begins with kFetcherPrefixes.
constexpr std::array<std::string_view, 2> kFetcherNames = {"XDG_RUNTIME_DIR", "REGISTRY_AUTH_FILE"};
constexpr std::array<std::string_view, 2> kFetcherPrefixes = {"CONTAINERS_", "DOCKER_"};
constexpr std::array<std::string_view, 9> kOtherNames = {"TZ",         "http_proxy", "https_proxy", "no_proxy", "all_proxy",
                                                         "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",   "ALL_PROXY"};
// Likewise, but a replica has these of whoever submits.
constexpr std::array<std::string_view, 2> kPythonNames = {"VIRTUAL_ENV", "CONDA_PREFIX"};

// Settings of the programs that fetch packages: the index, certificates, caches.
constexpr std::array<std::string_view, 2> kInheritedPrefixes = {"PIP_", "UV_"};
constexpr std::string_view kHostPrefix = "LC_";

template <size_t kSize>
bool begins_with(const std::array<std::string_view, kSize>& prefixes, std::string_view name) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) { return name.starts_with(prefix); });
}

template <size_t kSize>
bool is_one_of(const std::array<std::string_view, kSize>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_of_fetcher(std::string_view name) { return is_one_of(kFetcherNames, name) || begins_with(kFetcherPrefixes, name); }

void overlay(Environment& env, const Environment& more) {
  for (const auto& [name, value] : more) env[name] = value;
}

}  // namespace

std::string search_path(const PythonChoice& python, const Environment& env) {
  const auto found = env.find("PATH");
  std::string path;
  for (const std::string& directory : python.path_first) path += directory + ":";
  path += found == env.end() || found->second.empty() ? std::string(kUsualPath) : found->second;
  for (const std::string& directory : python.path_last) path += ":" + directory;
  return path;
}

bool is_about_host(const std::string& name, const std::string& value) {
  return is_one_of(kHostNames, name) || is_one_of(kPythonNames, name) || name.starts_with(kHostPrefix) || is_of_fetcher(name) ||
         (begins_with(kInheritedPrefixes, name) && value.starts_with('/'));
}

Environment inherited_environment(const Environment& all) {
  Environment out;
  for (const auto& [name, value] : all) {
    const bool listed = is_one_of(kHostNames, name) || is_one_of(kOtherNames, name);
    const bool prefixed = begins_with(kInheritedPrefixes, name) || name.starts_with(kHostPrefix);
    if (listed || prefixed || is_of_fetcher(name)) out[name] = value;
  }
  out.emplace("PATH", kUsualPath);
  return out;
}

Environment without_fetchers(const Environment& inherited) {
  Environment out = inherited;
  std::erase_if(out, [](const auto& entry) { return is_of_fetcher(entry.first); });
  return out;
}

Environment own_process_environment() {
  Environment out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

Environment replica_environment(const EnvironmentInputs& inputs, const Seat& seat) {
  Environment env = inputs.inherited;
  env["TERM"] = "dumb";  // output goes to a log, not to a terminal
  overlay(env, inputs.python.variables);
  overlay(env, inputs.spec.env);
  overlay(env, inputs.secrets);
  env["PATH"] = search_path(inputs.python, env);
  env.emplace("PYTHONUNBUFFERED", "1");
  env.emplace("OMP_NUM_THREADS", std::to_string(threads_each(inputs.spec, seat)));
  // Gloo, of PyTorch and others, takes what the host's name resolves to, by itself: a loopback
  // address on many a Linux, which leads no other host here.
  if (!inputs.interface.empty()) env.emplace("GLOO_SOCKET_IFNAME", inputs.interface);

  if (is_mpi_gang(inputs.spec, seat)) {
    for (const auto& [name, value] : mpi_env(inputs.mpi_directory, inputs.interface, !inputs.spec.image.empty(), seat)) env.emplace(name, value);
  }

  for (const Parameter& parameter : inputs.spec.parameters) {
    env[parameter_env_name(parameter.name)] = parameter.values.front();
  }
  if (!inputs.data_dir.empty()) {
    env["DATA_DIR"] = inputs.data_dir;
    for (const auto& [name, path] : inputs.spec.data) {
      env[parameter_env_name(name) + "_DIR"] =
          inputs.data_is_mounted ? inputs.data_dir + "/" + name : path;
    }
  }

  overlay(env, cluster_env(inputs.spec, inputs.gang, seat.replica));
  if (!inputs.engine.empty() && seat.replica.role != Role::Tensorboard) {
    env[kEngineVariable] = inputs.engine;
  }
  env["OUTPUT_DIR"] = inputs.output_dir;
  if (!inputs.after_dir.empty()) env["AFTER_DIR"] = inputs.after_dir;
  env["EXPERIMENT_ID"] = to_string(seat.replica.experiment);
  env["DTRAIN_REPLICA"] = to_string(seat.replica);
  env["DTRAIN_ATTEMPT"] = std::to_string(inputs.attempt);
  env["DTRAIN_ADDRESS"] = seat.address;
  env["DTRAIN_KEY"] = inputs.key;
  env["DTRAIN_SUBMISSION"] = inputs.submission;
  env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  // The inventory lists only devices inside the runner's own mask, by the host's index: no second
  // translation here. Empty means none, which is what a role that asked for none gets.
  env["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(seat.gpus, ","));
  return env;
}

}  // namespace dtrain::runner
