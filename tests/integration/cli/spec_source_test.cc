#include "cli/spec_source.h"

#include <doctest/doctest.h>

#include "schema/spec.h"
#include "tests/support/project.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

TEST_CASE("one word with blanks is a line for the shell, unless a program is called so") {
  const test::TemporaryFolder here;
  const auto run_of = [&](std::vector<std::string> words) {
    CommandForm form;
    form.words = std::move(words);
    const auto source = spec_of_command(form, here.path());
    REQUIRE(source.ok());
    const auto spec = parse_spec(source->yaml, {});
    REQUIRE(spec.ok());
    return spec->roles.at(0).run.at(0);
  };
  CHECK(run_of({"echo a && echo b"}) == "echo a && echo b");
  CHECK(run_of({"echo", "a && b"}) == "echo 'a && b'");
  test::write_file(here / "my program", "");
  CHECK(run_of({"my program"}) == "'my program'");
}

TEST_CASE("the project of a file is where a dtrain.yml lies, else what is around it as seen from here") {
  const test::TemporaryFolder folder;
  const fs::path top = fs::canonical(folder.path());
  const auto project_of = [&](const fs::path& here, const std::string& typed) {
    fs::create_directories(here);
    const fs::path before = fs::current_path();
    fs::current_path(here);
    const auto source = find_spec_file(typed);
    fs::current_path(before);
    REQUIRE_MESSAGE(source.ok(), source.error().message);
    return source->root;
  };
  const auto write = [](const fs::path& file) {
    fs::create_directories(file.parent_path());
    test::write_file(file, "project: a\n");
  };
  write(top / "a/conf/exp.yml");
  write(top / "a/sub/dtrain.yml");
  CHECK(project_of(top / "a", "conf/exp.yml") == top / "a");
  CHECK(project_of(top / "a/conf", "exp.yml") == top / "a/conf");
  CHECK(project_of(top / "a", "sub/dtrain.yml") == top / "a/sub");
  CHECK(project_of(top / "b", "../a/conf/exp.yml") == top / "a/conf");
  write(top / "a/dtrain.yml");
  CHECK(project_of(top / "a/conf", "exp.yml") == top / "a");
  CHECK(project_of(top / "a/src", "../conf/exp.yml") == top / "a");
  CHECK(project_of(top / "a/src", "") == top / "a");
}

}  // namespace dtrain::cli
