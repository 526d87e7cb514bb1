#include "schema/expand.h"

#include <doctest/doctest.h>

using namespace dtrain;

namespace {

Spec grid_spec() {
  Spec spec;
  spec.project = std::string("p");  // g++ 12 warns of its own code for a literal, at -O2
  spec.parameters = {{"epochs", {"20", "30"}}, {"lr", {"0.1", "0.01", "0.001"}}, {"seed", {"7"}}};
  RoleSpec role;
  role.run = {"echo {{lr}}", "train --lr {{ lr }} --epochs {{epochs}} {{ seed}} {{ not a name }}"};
  spec.roles = {role};
  return spec;
}

}  // namespace

TEST_CASE("members count in the order of names, the last varying fastest") {
  const Spec spec = grid_spec();
  CHECK(spec.member_count() == 6);
  CHECK(spec.is_set());
  using Values = std::map<std::string, std::string>;
  CHECK(member_parameters(spec, 1) == Values{{"epochs", "20"}, {"lr", "0.1"}, {"seed", "7"}});
  CHECK(member_parameters(spec, 2) == Values{{"epochs", "20"}, {"lr", "0.01"}, {"seed", "7"}});
  CHECK(member_parameters(spec, 4) == Values{{"epochs", "30"}, {"lr", "0.1"}, {"seed", "7"}});
  CHECK(member_parameters(spec, 6) == Values{{"epochs", "30"}, {"lr", "0.001"}, {"seed", "7"}});
  CHECK(member_parameters(spec, 0) == member_parameters(spec, 1));
}

TEST_CASE("a member has one value each, in its parameters and its commands") {
  const Spec one = member_spec(grid_spec(), 5);
  CHECK_FALSE(one.is_set());
  CHECK(one.roles[0].run ==
        std::vector<std::string>{"echo 0.01", "train --lr 0.01 --epochs 30 7 {{ not a name }}"});
  CHECK(member_spec(one, 0) == one);
}

TEST_CASE("a value is put in as it is, and not looked into again") {
  Spec spec = grid_spec();
  spec.parameters = {{"a", {"{{ b }}"}}, {"b", {"x"}}};
  spec.roles[0].run = {"{{a}}{{b}} {{{b}}}"};
  CHECK(member_spec(spec, 0).roles[0].run[0] == "{{ b }}x {x}");
}

TEST_CASE("only names in double braces are placeholders") {
  CHECK(placeholders("a {{ b }} {{c-d}} {{b}}") == std::vector<std::string>{"b", "c-d", "b"});
  CHECK(placeholders("{ b } {{.Name}} {{ a b }} {{}} {{ 2x }} {{ x } } ${{x").empty());
  CHECK(placeholders("${{ x }}") == std::vector<std::string>{"x"});
}

TEST_CASE("a placeholder that lacks a brace is told from the shell's own braces") {
  CHECK(broken_placeholder("--lr {{ lr } --x", "lr") == "{{ lr }");
  CHECK(broken_placeholder("--lr {{lr --x", "lr") == "{{lr");
  CHECK(broken_placeholder("--lr {{ lr", "lr") == "{{ lr");
  CHECK(broken_placeholder("--lr { lr }}", "lr") == "{ lr }}");
  CHECK(broken_placeholder("{{ lr } {{ lr }}", "lr") == "{{ lr }");
  for (const char* line : {"{{ lr }}", "{{lr}}", "{{{lr}}}", "${lr}", "'{\"lr\": ${lr}}'", "{ lr }",
                           "{{ lr2 }", "{{ xlr }", "{{lr,wd},x}", "awk '{{ lr = 1 }}'", "lr"}) {
    CHECK_MESSAGE(broken_placeholder(line, "lr").empty(), line);
  }
}

TEST_CASE("parameters get the name of a variable") {
  CHECK(parameter_env_name("learning-rate") == "LEARNING_RATE");
  CHECK(parameter_env_name("lr2_x") == "LR2_X");
}
