// What a replica of framework: engine is started with.
#pragma once

#include <filesystem>
#include <string>

#include "runner/environment.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::runner {

// The executable: in `programs`, where dtrain's own are, else in the PATH of `inherited`. Empty:
// none.
std::string find_engine(const std::filesystem::path& programs, const Environment& inherited);
std::string lacking_engine(const std::filesystem::path& programs);  // says so

// The value of DTRAIN_ENGINE. A path /data/NAME/... of one of its data sets is where that set is on
// this host: in `data_dir`, which is /data itself where it is mounted. `resumed`: where what it goes on from is here;
// empty: by the path of its Spec.
Result<std::string> engine_variable(const Spec& member, const std::string& data_dir, const std::string& resumed);

}  // namespace dtrain::runner
