#include "runner/engine_launch.h"

#include "runner/python.h"
#include "schema/engine_read.h"

namespace dtrain::runner {
namespace {

void put_in_place(std::string& path, const Spec& spec, const std::string& data_dir) {
  const std::string set = data_set_of(path);
  if (!data_dir.empty() && spec.data.contains(set)) path = data_dir + path.substr(path.find('/', 1));
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

Result<std::string> engine_variable(const Spec& member, const std::string& data_dir, const std::string& resumed) {
  TRY(EngineSpec spec, engine_spec_of(member));
  put_in_place(spec.train_data, member, data_dir);
  put_in_place(spec.test_data, member, data_dir);
  put_in_place(spec.checkpoint_from, member, data_dir);
  if (!resumed.empty()) spec.checkpoint_from = resumed;
  return to_json(spec);
}

}  // namespace dtrain::runner
