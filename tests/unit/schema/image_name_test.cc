#include "schema/image_name.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace dtrain {

TEST_CASE("an image of a registry is told from what podman reads elsewhere") {
  const std::string digest = "@sha256:" + std::string(64, 'a');
  const std::vector<std::string> good = {"python", "python:3.12", "localhost/x", "registry.example:5000/team/x_y.z:Tag_1", "ghcr.io/a/b--c/d",
                                         "python" + digest, "python:3" + digest, "GHCR.IO/a", "oci/x:1"};
  for (const std::string& image : good) CHECK_MESSAGE(is_of_registry(image), image);
  const std::vector<std::string> bad = {"", "docker-archive:x.tar", "oci:x", "oci-archive:x", "dir:x", "oci:x:latest", "docker-archive:a/x.tar",
                                        "Python", "team/Python:3", "python@sha256:abc", "python" + digest + "0", "python:", "a//b", "a/",
                                        "/images/x", "host:port/x", "x:-1", "-x", "a@b@c"};
  for (const std::string& image : bad) CHECK_MESSAGE(!is_of_registry(image), image);
}

}  // namespace dtrain
