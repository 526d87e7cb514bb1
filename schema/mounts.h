// Places of the host that are seen in an image, as everybody writes them who runs containers: SOURCE[:PATH][:ro].
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

struct HostMount {
  std::string source;      // on the host; absolute
  std::string path;        // in the image; absolute
  bool read_only = false;
  bool operator==(const HostMount&) const = default;
};

// nullopt: it is written otherwise, or hides what a replica can't be without.
std::optional<HostMount> parse_mount(std::string_view text);
std::string to_string(const HostMount& mount);  // parse_mount() gives it back

}  // namespace dtrain
