#include "runner/launch_environments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runner/environments.h"
#include "runner/file_server.h"
#include "runner/python.h"
#include "runner/recipe.h"
#include "schema/image_name.h"
#include "schema/quote.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

PythonChoice python_of(const fs::path& environment) {
  return {{(environment / "bin").string()}, {}, {{"VIRTUAL_ENV", environment.string()}}};
}

// An image has its own.
bool finds_python_here(const Spec& spec) {
  return spec.image.empty();
}

// The engine needs none, and its TensorBoard says by itself what it lacks.
bool needs_python(const Spec& spec) {
  return spec.framework != Framework::Engine || spec.has_build();
}

Result<PythonChoice> python_for(const LaunchSite& site, const pb::Launch& launch, const Spec& spec) {
  auto python = choose_python(spec.python, {launch.user_env().begin(), launch.user_env().end()}, site.inherited, site.home);
  if (!python.ok() && !needs_python(spec)) return PythonChoice();
  return python;
}

// Those that the replicas of the launch run in, or, of a build, the ones that it is for.
std::vector<std::string> images_here(const pb::Launch& launch, const Understood& what) {
  std::set<Role> roles;
  for (const Seat& seat : what.here) roles.insert(seat.replica.role);
  for (const std::string& word : launch.roles()) {
    if (const auto role = parse_role(word)) roles.insert(*role);
  }
  std::vector<std::string> names = what.spec.images();
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::none_of(what.spec.roles, [&](const RoleSpec& role) { return roles.contains(role.role) && what.spec.image_of(role) == name; });
  });
  return names;
}

// Of the environments that replicas here take, those that have to be made first: in images that are there already
// nothing is.
Result<std::vector<Recipe>> recipes_of(const LaunchSite& site, const Understood& what, const std::vector<std::string>& images,
                                       const PythonChoice& python, const fs::path& tree) {
  std::vector<Recipe> recipes;
  if (what.spec.has_build() && what.spec.image.empty()) {
    TRY(Recipe recipe, recipe_of(what.spec, python, site.inherited, tree, site.host_name));
    recipes.push_back(std::move(recipe));
  }
  for (const std::string& image : images) {
    if (!is_image_directory(image)) recipes.push_back(recipe_in_image(image, what.spec, tree));
  }
  return recipes;
}

// For each recipe of which the host has nothing that would do. Each begins the next one.
std::vector<std::string> build_scripts(const LaunchSite& site, const pb::Launch& launch, const Understood& what,
                                       const std::vector<Recipe>& recipes, const LaunchDir& directory) {
  std::vector<std::pair<const Recipe*, ImageFetcher>> wanted;
  for (const Recipe& recipe : recipes) {
    const ImageFetcher fetcher =
        recipe.image.empty() ? ImageFetcher() : find_image_fetcher(recipe.image, site.inherited, launch.submission());
    const auto environment = find_environment(site.envs(), recipe.key(), launch.rebuild());
    // What was made for this very submission is what it asked for.
    const bool is_newest = recipe.image.empty() || !launch.rebuild().empty() || is_of(environment.value_or(""), fetcher);
    if (!environment || !is_newest) wanted.emplace_back(&recipe, fetcher);
  }
  std::vector<std::string> scripts;
  for (const auto& [recipe, fetcher] : wanted) {
    BuildFor whom{to_string(what.here.front().replica), launch.submission(), launch.rebuild()};
    whom.programs = site.programs;
    whom.has_servers = what.spec.role(Role::Ps) != nullptr;
    whom.fetcher = fetcher;
    const size_t number = scripts.size();
    if (number + 1 < wanted.size()) whom.next = script_of_build(directory, number + 1);
    scripts.push_back(build_script(*recipe, site.envs(), whom));
  }
  return scripts;
}

// " of ps" where others have another one.
std::string whose_image(const Spec& spec, const std::string& image) {
  std::string roles;
  for (const RoleSpec& role : spec.roles) {
    if (spec.image_of(role) == image) roles += fmt::format("{}{}", roles.empty() ? " of " : ", ", to_string(role.role));
  }
  return spec.images().size() > 1 ? roles : "";
}

std::string lacking_of_image(const LaunchSite& site, const Spec& spec, const std::string& image, const std::string& submission) {
  const std::string whose = whose_image(spec, image);
  if (is_image_directory(image)) {
    const auto look = [&]() -> std::string {
      std::error_code error;
      if (fs::is_directory(image, error)) return "";
      return fs::exists(image, error) ? "is no directory; an archive is named docker-archive:" + image : "is not there";
    };
    const std::string trouble = looked_at_within(kServerPatience, image, look);
    return trouble.empty() ? "" : fmt::format("image {}{} {}", image, whose, trouble);
  }
  const bool is_fetched = !find_image_fetcher(image, site.inherited, submission).program.empty();
  return is_fetched ? "" : fmt::format("image {}{}: neither podman nor docker is there", image, whose);
}

std::string lacking_for_images(const LaunchSite& site, const pb::Launch& launch, const Understood& what) {
  for (const HostMount& mount : what.spec.mounts) {
    const auto look = [&]() -> std::string {
      std::error_code error;
      return fs::exists(mount.source, error) ? "" : error ? error.message() : "is not there";
    };
    const std::string trouble = looked_at_within(kServerPatience, mount.source, look);
    if (!trouble.empty()) return fmt::format("mount {} {}", mount.source, trouble);
  }
  std::vector<std::string> lacking;
  for (const std::string& image : images_here(launch, what)) {
    std::string one = lacking_of_image(site, what.spec, image, launch.submission());
    if (!one.empty()) lacking.push_back(std::move(one));
  }
  if (!lacking.empty()) return fmt::format("{}", fmt::join(lacking, "; "));
  const std::string trouble = trouble_with_images(site.home);
  return trouble.empty() ? "" : "images can't be used here: " + trouble;
}

}  // namespace

fs::path script_of_build(const LaunchDir& directory, size_t number) {
  return directory.path() / (number == 0 ? "build.sh" : fmt::format("build-{}.sh", number + 1));
}

Result<std::optional<UsedEnvironments>> environments_of(const LaunchSite& site, const pb::Launch& launch, const Understood& what,
                                                      const fs::path& tree, const LaunchDir& directory) {
  UsedEnvironments used;
  if (finds_python_here(what.spec)) {
    TRY(used.python, python_for(site, launch, what.spec));
  }
  const std::vector<std::string> images = images_here(launch, what);
  TRY(const std::vector<Recipe> recipes, recipes_of(site, what, images, used.python, tree));
  if (is_of_builds(what)) {
    used.builds = build_scripts(site, launch, what, recipes, directory);
    return used.builds.empty() ? std::optional<UsedEnvironments>() : std::optional(used);
  }
  for (const std::string& image : images) {
    if (is_image_directory(image)) used.images[image] = image_of_directory(image);
  }
  for (const Recipe& recipe : recipes) {
    const auto environment = find_environment(site.envs(), recipe.key(), launch.rebuild());
    if (!environment) {
      return Error{Code::Unavailable, fmt::format("the environment {} is not there any more", recipe.key()), ""};
    }
    if (recipe.image.empty()) {
      used.python = python_of(*environment);
    } else {
      TRY(used.images[recipe.image], made_image(*environment));
    }
  }
  return std::optional(used);
}

Result<std::string> lacking_environment(const LaunchSite& site, const pb::Launch& launch, const Understood& what) {
  if (!finds_python_here(what.spec)) return as_utf8(lacking_for_images(site, launch, what));
  const auto python = python_for(site, launch, what.spec);
  if (python.ok()) return std::string();
  if (python.error().code == Code::NotFound) return as_utf8(python.error().message);
  return python.error();
}

}  // namespace dtrain::runner
