#include "runner/engine_launch.h"

#include <string_view>

#include "runner/python.h"
#include "schema/engine_read.h"

namespace dtrain::runner {
namespace {

constexpr std::string_view kDataRoot = "/data/";

void put_in_place(std::string& path, const Spec& spec, const std::string& data_dir) {
  if (data_dir.empty() || !path.starts_with(kDataRoot)) return;
  const std::string_view below = std::string_view(path).substr(kDataRoot.size());
  const std::string name(below.substr(0, below.find('/')));
  if (spec.data.contains(name)) path = data_dir + "/" + std::string(below);
}

}  // namespace

std::string find_engine(const std::filesystem::path& programs, const Environment& inherited) {
  if (!programs.empty()) {
    const std::string beside = find_program(programs.string(), kEngineProgram);
    if (!beside.empty()) return beside;
  }
  const auto path = inherited.find("PATH");
  return path == inherited.end() ? std::string() : find_program(path->second, kEngineProgram);
}

std::string lacking_engine(const std::filesystem::path& programs) {
  return programs.empty()
             ? fmt::format("{} is not in PATH", kEngineProgram)
             : fmt::format("{} is neither in {} nor in PATH", kEngineProgram, programs.string());
}

Result<std::string> engine_variable(const Spec& member, const std::string& data_dir) {
  TRY(EngineSpec spec, engine_spec_of(member));
  put_in_place(spec.train_data, member, data_dir);
  put_in_place(spec.test_data, member, data_dir);
  put_in_place(spec.checkpoint_from, member, data_dir);
  return to_json(spec);
}

}  // namespace dtrain::runner
