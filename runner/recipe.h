// What an experiment's own environment is made of, of Python or in an image, and the name it has for that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runner/environment.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::runner {

// Two with the same recipe share one environment.
struct Recipe {
  std::string image;                         // of containers, by its name; empty: it is an environment of
  std::string python;                        // this one, which runs on this host,
  std::string abi;                           // "cpython-311-x86_64-linux-gnu /usr"
  std::vector<std::string> requirements;     // of the framework: "tensorflow-cpu==2.15.0"
  std::vector<std::string> install;          // the user's lines, as they stand
  std::map<std::string, std::string> files;  // that those name, from the snapshot: path -> SHA-256
  std::string snapshot;  // its SHA-256 when they name all of it, as `.`; else empty

  std::string key() const;  // 16 hex digits
};

// `tree`: the snapshot as it lies on this host; empty: there is none.
Recipe recipe_in_image(const std::string& image, const Spec& spec, const std::filesystem::path& tree);
// Of who runs in no image. Runs the python once.
// FailedPrecondition: no python, or one that doesn't run.
Result<Recipe> recipe_of(const Spec& spec, const PythonChoice& choice, const Environment& inherited,
                         const std::filesystem::path& tree, const std::string& host_name);

// ---- its parts

// What the interpreter says of itself, as in `abi`: its path alone may be a script that chooses one. It
// is killed when it has not answered in time, with all it started.
Result<std::string> run_for_abi(const std::string& python, const Environment& inherited,
                                const std::string& host_name, int64_t limit_ms);

// What pip installs for the framework's `version`. Without GPUs the packages without CUDA, where
// they exist.
std::vector<std::string> framework_requirements(const Spec& spec, std::string_view machine);

// Fills in files and snapshot: what the words of the lines name in the tree, with what requirements
// files include in turn.
void add_named_files(Recipe& recipe, const std::filesystem::path& tree);

}  // namespace dtrain::runner
