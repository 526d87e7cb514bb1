// Where the environments of this host lie, of Python or of an image's files (container_image.h), and the script that
// makes one.
//
//   envs/<key>/<n>            one environment; it is used where it was made, for it can't be moved
//   envs/<key>/<n>/.complete  written last: who asked for it to be made anew, else nothing
//   envs/<key>/<n>/.bytes     its size
//   envs/<key>/failed         of the last that failed: for which submission, its status, and what to say
//   envs/<key>/lock           held by whoever makes one: the others wait, and use that
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "runner/container_image.h"
#include "runner/recipe.h"

namespace dtrain::runner {

// The newest that is complete; with `rebuild` (an id of the submission) only one made for it.
std::optional<std::filesystem::path> find_environment(const std::filesystem::path& envs,
                                                      const std::string& key,
                                                      const std::string& rebuild);

struct EnvironmentUse {
  std::set<std::filesystem::path> in_use;
  bool building = false;   // somebody is: what is half made is used, too
};
struct Environments {
  uint32_t count = 0;
  uint64_t bytes = 0;
};

// Those that are not used; half-made ones weigh nothing.
Environments count_environments(const std::filesystem::path& envs, const EnvironmentUse& use);
// Puts those away, at once: they count no more. Where nobody builds, containers go that a killed build left.
void put_away_environments(const std::filesystem::path& envs, const EnvironmentUse& use);
// Deletes what was put away, now or before somebody was killed, which may take minutes. False: it was told to stop.
bool delete_put_away(const std::filesystem::path& envs, const std::atomic<bool>& stop);

// For /bin/sh, which runs it in a view of the snapshot. Whatever kills it, no half environment
// counts. Ends with the status of the step that failed, and says which it was. What failed once for a
// submission fails at once for the others of it: members of a set, whose id it is, all want the same.
struct BuildFor {
  std::string replica;      // "4.1.build"
  std::string submission;
  std::string rebuild;
  ImageFetcher fetcher = {};         // of a recipe with an image
  std::filesystem::path programs = {};  // where dtrain lies
  bool has_servers = false;          // a parameter server is among those that it is for
  std::filesystem::path next = {};   // another such script, which goes on where this one ends well; empty: none
};
std::string build_script(const Recipe& recipe, const std::filesystem::path& envs,
                         const BuildFor& whom);

}  // namespace dtrain::runner
