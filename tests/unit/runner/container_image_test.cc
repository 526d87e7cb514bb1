#include "runner/container_image.h"

#include <doctest/doctest.h>

namespace dtrain::runner {
namespace {

TEST_CASE("what an image says about itself") {
  const auto config = parse_image_config(
      R"({"Env": ["PATH=/opt/bin:/bin", "A=b=c", "odd", "=x"], "Entrypoint": ["/run it"], "Cmd": ["-x", "$HOME"],
          "WorkingDir": "/work", "Labels": {"a": "b"}, "ExposedPorts": null})");
  REQUIRE(config.ok());
  CHECK(config->env == Environment{{"A", "b=c"}, {"PATH", "/opt/bin:/bin"}});
  CHECK(config->entrypoint == std::vector<std::string>{"/run it"});
  CHECK(config->command == std::vector<std::string>{"-x", "$HOME"});
  CHECK(config->directory == "/work");

  const auto nothing = parse_image_config(R"({"Env": null, "Cmd": null, "WorkingDir": ""})");
  REQUIRE(nothing.ok());
  CHECK(nothing->env.empty());
  CHECK(nothing->command.empty());
  CHECK(nothing->directory == "/");
  for (const char* text : {"", "null", "[]", "{\"Env\""}) {
    CAPTURE(text);
    CHECK(parse_image_config(text).error().code == Code::DataLoss);
  }
}

TEST_CASE("a name without a registry is one of docker.io") {
  CHECK(full_image_name("python:3.11") == "docker.io/library/python:3.11");
  CHECK(full_image_name("pytorch/pytorch@sha256:00") == "docker.io/pytorch/pytorch@sha256:00");
  for (const char* whole : {"localhost/tiny", "ghcr.io/a/b:1", "registry:5000/a", "docker-archive:/images/a.tar", "oci:/images/a"}) {
    CHECK(full_image_name(whole) == whole);
  }
}

TEST_CASE("in an image nothing says where the host has its files") {
  ImageConfig config;
  config.env = {{"PATH", "/opt/bin"}, {"PIP_NO_INPUT", "0"}};
  const Environment outside = {{"PATH", "/usr/bin"},        {"HOME", "/home/anna"},   {"USER", "anna"},
                               {"LC_ALL", "de_DE"},         {"TMPDIR", "/scratch"},   {"VIRTUAL_ENV", "/venv"},
                               {"PIP_CERT", "/etc/ca.pem"}, {"PIP_NO_INPUT", "1"},    {"PIP_INDEX_URL", "https://index"},
                               {"TZ", "UTC"},               {"https_proxy", "proxy"}, {"DOCKER_HOST", "unix:///x"}};
  CHECK(environment_in_image(config, outside) == Environment{{"PATH", "/opt/bin"},
                                                            {"HOME", "/root"},
                                                            {"PIP_NO_INPUT", "1"},
                                                            {"PIP_INDEX_URL", "https://index"},
                                                            {"TZ", "UTC"},
                                                            {"https_proxy", "proxy"}});
  config.env = {{"HOME", "/home/jovyan"}};
  CHECK(environment_in_image(config, {}).at("HOME") == "/home/jovyan");
  CHECK(environment_in_image(config, {}).at("PATH") == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
}

}  // namespace
}  // namespace dtrain::runner
