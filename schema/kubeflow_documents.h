// Which of a file's documents the training is: files for kubectl hold whatever belongs together.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "schema/problems.h"
#include "schema/yaml_tree.h"

namespace dtrain {

// The only document, or the job among manifests, of whose others `notes` gets a sentence; where there is none at all it is
// Null. Nothing with a problem: another job is one. `secrets` gets the variables that are of Secrets of the file, with their values.
std::optional<YamlNode> choose_document(std::vector<YamlNode> documents, Problems& problems, std::vector<std::string>& notes,
                                        std::map<std::string, std::string>& secrets);

}  // namespace dtrain
