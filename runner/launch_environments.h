// The environments that the replicas of a launch run in: Python, or images of containers. Which of them a host has, what
// makes the others, and what it lacks for them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/container_image.h"
#include "runner/environment.h"
#include "runner/launch_dir.h"
#include "runner/launch_site.h"
#include "runner/understood_launch.h"
#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain::runner {

struct UsedEnvironments {
  PythonChoice python;
  std::map<std::string, UsedImage> images = {};   // by their names
  std::vector<std::string> builds = {};           // none: each what its role says
};
// nullopt: a build with nothing to do. `tree`: the snapshot as it lies here; empty: there is none.
Result<std::optional<UsedEnvironments>> environments_of(const LaunchSite& site, const pb::Launch& launch, const Understood& what,
                                                      const std::filesystem::path& tree, const LaunchDir& directory);

// Of the scripts of a build, the first one of which begins the others.
std::filesystem::path script_of_build(const LaunchDir& directory, size_t number);

// What there has to be before anything can be made; empty: all of it is there.
Result<std::string> lacking_environment(const LaunchSite& site, const pb::Launch& launch, const Understood& what);

}  // namespace dtrain::runner
