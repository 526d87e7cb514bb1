#include "cli/engine_data.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

namespace dtrain::cli {
namespace {

namespace fs = std::filesystem;

struct Project {
  fs::path root;
  Project() {
    std::string name = (fs::temp_directory_path() / "dtrain-engine-data-XXXXXX").native();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    root = name;
  }
  ~Project() { fs::remove_all(root); }
  Project(const Project&) = delete;
  Project& operator=(const Project&) = delete;

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  }
  // What is wrong with it; empty: nothing.
  std::string problem(const std::string& data, const std::string& more = "",
                      const std::string& model = "mlp", const std::string& inside = "") const {
    const auto spec = parse_spec("project: p\ntrain:\n  framework: engine\n  engine: {model: " + model +
                                     ", data: " + data + inside + "}\n" + more,
                                 {});
    if (!spec.ok()) FAIL(spec.error().message);
    const Status checked = check_engine_data(spec.value(), root);
    return checked.ok() ? "" : checked.error().message + " | " + checked.error().hint;
  }
};

TEST_CASE("data that is there is fine, a file as well as a folder") {
  const Project project;
  project.write("data/train/images", "1");
  project.write("text", "1");
  CHECK(project.problem("{train: data/train, test: ./text}") == "");
  CHECK(project.problem("{train: data/train/, test: data//train/../train}") == "");
  CHECK(project.problem("{train: .}") == "");
}

TEST_CASE("an empty folder is no data, and nothing takes it in") {
  const Project project;
  project.write("other/x", "1");
  project.write(".dtrainignore", "other/\n");
  fs::create_directories(project.root / "empty");
  CHECK(project.problem("{train: empty}") ==
        "there are no files in 'empty' | dtrain-engine data digits draws data/train and data/test");
}

TEST_CASE("what a training starts from is looked for as its data are, and a link out of the project is none") {
  const Project project, elsewhere;
  project.write("data", "1");
  project.write("base.safetensors", "1");
  elsewhere.write("checkpoints/step-1/state.json", "{}");
  fs::create_directories(project.root / "runs");
  fs::create_directory_symlink(elsewhere.root, project.root / "runs/4");
  const auto start = [&](const std::string& path) {
    return project.problem("{train: data}", "", "mlp", ", checkpoint: {from: '" + path + "'}");
  };
  CHECK(start("base.safetensors") == "");
  CHECK(start("/somewhere/else") == "");
  CHECK(start("bas.safetensors").starts_with("there is no 'bas.safetensors' in "));
  CHECK(start("bas.safetensors").find("dtrain output path 4") != std::string::npos);
  CHECK(start("runs/4") == "'runs/4' is a link out of the project, and is not copied | checkpoint: {from: " +
                               fs::canonical(elsewhere.root).string() + "}");
}

TEST_CASE("data outside the project are not said to be missing") {
  const Project project, elsewhere;
  elsewhere.write("train/images", "1");
  fs::create_directory_symlink(elsewhere.root / "train", project.root / "linked");
  const std::string hint = ", and is not copied | put it into the project; what lies on the hosts is named in `data:`";
  const std::string outside = fs::relative(elsewhere.root / "train", project.root).string();
  CHECK(project.problem("{train: " + outside + "}") == "'" + outside + "' lies outside the project" + hint);
  CHECK(project.problem("{train: linked}") == "'linked' is a link out of the project" + hint);
}

TEST_CASE("data that is missing is named, with what makes some") {
  const Project project;
  project.write("data/train/images", "1");
  CHECK(project.problem("{train: data/train, test: data/test}") ==
        "there is no 'data/test' in " + project.root.string() +
            " | dtrain-engine data digits draws data/train and data/test; "
            "what lies on the hosts is named in `data:`");
  CHECK(project.problem("{train: '{{ set }}'}", "  parameters: {set: [data/train, other]}\n")
            .starts_with("there is no 'other' in "));
  CHECK(project.problem("{train: 'data/{{ part }}'}", "  parameters: {part: none}\n")
            .starts_with("there is no 'data/none' in "));
}

TEST_CASE("text is not to be had by drawing digits") {
  const std::string missing = Project().problem("{train: novel}", "", "gpt");
  CHECK(missing.ends_with(
      "a gpt reads a file of text or tokens; what lies on the hosts is named in `data:`"));
}

TEST_CASE("what is learned from is missed first") {
  const std::string missing = Project().problem("{train: data/train, test: data/test}");
  CHECK(missing.starts_with("there is no 'data/train' in "));
}

TEST_CASE("data that an ignore file keeps out of the copy would be missing there") {
  const Project project;
  project.write("data/train/images", "1");
  project.write(".gitignore", "*.o\ndata/\n");
  CHECK(project.problem("{train: data/train}") ==
        "'data/train' stays out of the copy that is trained from: .gitignore:2 'data/' | "
        "a line !data/ in .dtrainignore takes it in");
  project.write(".dtrainignore", "!data/\n");
  CHECK(project.problem("{train: data/train}") == "");
  project.write(".dtrainignore", "!data/\n*images\n");
  CHECK(project.problem("{train: data/train}")
            .starts_with("'data/train' stays out of the copy that is trained from: "
                         ".dtrainignore:2 '*images' | "));
}

TEST_CASE("a set that `data:` does not name is none of the hosts' either") {
  const Project project;
  const std::string sets = "  data: {digits: /nowhere/at/all, words: /nor/this}\n";
  CHECK(project.problem("{train: /data/digits/train, test: /data/digit/test}", sets) ==
        "'/data/digit/test' is of no data set that `data:` names; did you mean /data/digits? | "
        "`data:` names digits, words");
  CHECK(project.problem("{train: /data/elsewhere}", sets) ==
        "'/data/elsewhere' is of no data set that `data:` names | `data:` names digits, words");
  CHECK(project.problem("{train: /data/digits}", sets) == "");
  CHECK(project.problem("{train: /data/elsewhere}") == "");
  CHECK(project.problem("{train: /database}", sets) == "");
}

TEST_CASE("what lies on the hosts, and what another framework reads, is not looked for") {
  const Project project;
  CHECK(project.problem("{train: /data/set/train}", "  data: {set: /nowhere/at/all}\n") == "");
  const auto spec = parse_spec("project: p\ntrain:\n  run: cat data/train\n", {});
  REQUIRE(spec.ok());
  CHECK(check_engine_data(spec.value(), project.root).ok());
}

}  // namespace
}  // namespace dtrain::cli
