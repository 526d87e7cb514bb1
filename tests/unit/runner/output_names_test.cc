#include "runner/output_names.h"

#include <doctest/doctest.h>

#include <optional>

#include "tests/support/few_descriptors.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

struct Work {
  test::TemporaryFolder folder;
  Work() {
    for (const char* file : {"a.pt", "b.pt", "c.txt", ".hidden.pt", "ckpt/1/w.pt", "ckpt/2/w.pt", "ckpt/2/deep/v.pt",
                             "ckpt/.tmp/w.pt", "x[1].log", "x1.log"}) {
      test::write_file(folder / file, "x");
    }
    fs::create_directory_symlink(folder / "ckpt", folder / "ckpt/2/again");
  }
  Names of(const std::string& entry) const {
    const auto names = named_outputs(folder.path(), entry);
    REQUIRE(names.ok());
    return *names;
  }
};

TEST_CASE("an entry without wildcards names itself, where that is there") {
  const Work work;
  CHECK(work.of("a.pt") == Names{"a.pt"});
  CHECK(work.of("./ckpt/") == Names{"ckpt"});
  CHECK(work.of("ckpt/2//deep") == Names{"ckpt/2/deep"});
  CHECK(work.of("d.pt").empty());
  CHECK(work.of("a.pt/b").empty());
}

TEST_CASE("wildcards find what a shell would") {
  const Work work;
  CHECK(work.of("*.pt") == Names{"a.pt", "b.pt"});
  CHECK(work.of("?.txt") == Names{"c.txt"});
  CHECK(work.of(".*.pt") == Names{".hidden.pt"});
  CHECK(work.of("ckpt/*/w.pt") == Names{"ckpt/1/w.pt", "ckpt/2/w.pt"});
  CHECK(work.of("ck*/[2-9]") == Names{"ckpt/2"});
  CHECK(work.of("a.pt/*").empty());
  CHECK(work.of("none/*").empty());
  CHECK(work.of("*.none").empty());
}

TEST_CASE("two stars are any number of directories, but for links") {
  const Work work;
  CHECK(work.of("**/*.pt") == Names{"a.pt", "b.pt", "ckpt/1/w.pt", "ckpt/2/deep/v.pt", "ckpt/2/w.pt"});
  CHECK(work.of("ckpt/**/w.pt") == Names{"ckpt/1/w.pt", "ckpt/2/w.pt"});
}

TEST_CASE("what has the very name of an entry is meant by it") {
  const Work work;
  CHECK(work.of("x[1].log") == Names{"x[1].log"});
  fs::remove(work.folder / "x[1].log");
  CHECK(work.of("x[1].log") == Names{"x1.log"});
}

TEST_CASE("where there is no descriptor to look with, nothing is said of what is there") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  const Work work;
  std::optional<test::FewDescriptors> none(std::in_place);
  const auto names = named_outputs(work.folder.path(), "*.pt");
  const auto plain = named_outputs(work.folder.path(), "a.pt");
  none.reset();
  REQUIRE(!names.ok());
  CHECK(names.error().code == Code::ResourceExhausted);
  CHECK(plain.ok());
}

}  // namespace
}  // namespace dtrain::runner
