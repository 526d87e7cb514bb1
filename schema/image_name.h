// What names an image of containers.
#pragma once

#include <string_view>

namespace dtrain {

// Whether a registry may have one of the name, as Kubernetes takes it: [registry/]path[:tag][@digest], the path in lower
// case. "oci:x" is none, but what podman reads from a file.
bool is_of_registry(std::string_view image);

// Whether it is a directory of files that is there already, and nothing to be fetched.
inline bool is_image_directory(std::string_view image) { return image.starts_with('/'); }

}  // namespace dtrain
