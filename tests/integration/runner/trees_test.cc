#include "runner/trees.h"

#include <doctest/doctest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <set>

#include "schema/snapshot.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using test::write_file;

// A project, its snapshot, and a daemon that serves its blobs.
struct Source {
  explicit Source(fs::path where) : root(std::move(where)) { retake(); }

  void retake() {
    auto taken = take_snapshot(root, {});
    REQUIRE(taken.ok());
    snapshot = std::move(taken).value();
    blobs = std::make_unique<SnapshotBlobs>(root, snapshot);
  }
  Status serve(const std::vector<Sha256>& names, TreeBuilder& builder) {
    for (const Sha256& name : names) {
      ++served[to_hex(name)];
      TRY(const uint64_t size, blobs->size(name));
      TRY(blobs->send(name, [&](std::string_view part, bool last) {
        return builder.add(name, size, part, last);
      }));
    }
    return ok();
  }
  Result<fs::path> build(Trees& trees) {
    served.clear();
    return ensure_tree(trees, snapshot.root, [&](const auto& names, TreeBuilder& builder) {
      return serve(names, builder);
    });
  }

  fs::path root;
  Snapshot snapshot;
  std::unique_ptr<SnapshotBlobs> blobs;
  std::map<std::string, int> served;
};

std::unique_ptr<Trees> open_trees(const fs::path& folder) {
  auto trees = Trees::open(folder);
  REQUIRE(trees.ok());
  return std::move(trees).value();
}

size_t names_in(const fs::path& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

void write_project(const fs::path& root) {
  write_file(root / "train.py", "print()");
  write_file(root / "copy of train.py", "print()");
  write_file(root / "bin/run", "print()");
  fs::permissions(root / "bin/run", fs::perms::owner_all);
  write_file(root / "empty", "");
  write_file(root / "data/large", std::string(2 << 20, 'x') + "end");
  fs::create_directory(root / "nothing here");
  fs::create_symlink("../train.py", root / "data/link");
}

TEST_CASE("a tree is the project, built once, each blob fetched once") {
  const TemporaryFolder folder;
  write_project(folder / "p");
  Source source(folder / "p");
  const auto trees = open_trees(folder / "trees");
  CHECK(!*trees->find(source.snapshot.root));
  const auto tree = source.build(*trees);
  REQUIRE(tree.ok());
  CHECK(tree->filename() == to_hex(source.snapshot.root));
  CHECK(test::describe_tree(*tree) == test::describe_tree(folder / "p"));
  for (const auto& [name, times] : source.served) CHECK(times == 1);
  CHECK(source.served.size() == 3);  // manifest, "print()", large; nothing for the empty file
  CHECK(*source.build(*trees) == *tree);
  CHECK(source.served.empty());
  CHECK(**open_trees(folder / "trees")->find(source.snapshot.root) == *tree);
}

TEST_CASE("the next snapshot fetches only what is new") {
  const TemporaryFolder folder;
  write_project(folder / "p");
  Source source(folder / "p");
  const auto trees = open_trees(folder / "trees");
  const auto before = source.build(*trees);
  REQUIRE(before.ok());
  const std::string was = test::describe_tree(*before);
  write_file(folder / "p/train.py", "print(2)");
  fs::remove(folder / "p/empty");
  fs::permissions(folder / "p/data/large", fs::perms::owner_read);
  source.retake();
  const auto after = source.build(*trees);
  REQUIRE(after.ok());
  CHECK(test::describe_tree(*after) == test::describe_tree(folder / "p"));
  CHECK(test::describe_tree(*before) == was);
  CHECK(source.served.contains(to_hex(sha256("print(2)"))));
  CHECK(!source.served.contains(to_hex(sha256("print()"))));
  // Another mode is another file, as far as sharing goes.
  CHECK(source.served.size() == 3);
  struct stat one {
  }, two{};
  REQUIRE(::stat((*before / "copy of train.py").c_str(), &one) == 0);
  REQUIRE(::stat((*after / "copy of train.py").c_str(), &two) == 0);
  CHECK(one.st_ino == two.st_ino);
}

TEST_CASE("more equal files than a file may have names are few files, and are found so again") {
  const TemporaryFolder folder;
  write_file(folder / "p/a", "all the same");
  fs::path last = folder / "p/a";
  for (int i = 0; i < 65'003; ++i) {
    const fs::path next = folder / fmt::format("p/{}", i);
    std::error_code error;
    fs::create_hard_link(last, next, error);
    if (!error) continue;
    fs::copy_file(last, next);
    last = next;
  }
  Source source(folder / "p");
  const auto trees = open_trees(folder / "trees");
  const auto count = [](const fs::path& tree) {
    std::set<ino_t> files;
    for (const auto& entry : fs::directory_iterator(tree)) {
      struct stat st {};
      if (::stat(entry.path().c_str(), &st) == 0) files.insert(st.st_ino);
    }
    return files.size();
  };
  const auto before = source.build(*trees);
  REQUIRE(before.ok());
  CHECK(count(*before) <= 2);
  write_file(folder / "p/new", "another");
  source.retake();
  const auto after = source.build(*trees);
  REQUIRE(after.ok());
  CHECK(count(*after) <= 3);
}

TEST_CASE("two builders of one tree: both end with it") {
  const TemporaryFolder folder;
  write_project(folder / "p");
  Source source(folder / "p");
  const auto trees = open_trees(folder / "trees");
  auto first = trees->build(source.snapshot.root);
  auto second = trees->build(source.snapshot.root);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  for (auto* builder : {first->get(), second->get()}) {
    CHECK(builder->missing() == std::vector<Sha256>{source.snapshot.root});
    while (!builder->missing().empty()) REQUIRE(source.serve(builder->missing(), *builder).ok());
  }
  const auto a = (*first)->finish();
  const auto b = (*second)->finish();
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(*a == *b);
  CHECK(names_in(folder / "trees") == 2);
}

TEST_CASE("wrong, foreign and missing blobs are refused, and nothing is left") {
  const TemporaryFolder folder;
  write_project(folder / "p");
  Source source(folder / "p");
  const auto trees = open_trees(folder / "trees");
  const auto frame = compress_blob("print()");
  {
    const auto builder = trees->build(source.snapshot.root);
    CHECK((*builder)->add(sha256("print()"), 7, *frame, true).error().code == Code::DataLoss);
  }
  {
    const auto builder = trees->build(source.snapshot.root);
    REQUIRE(source.serve({source.snapshot.root}, **builder).ok());
    CHECK((*builder)->add(sha256("foreign"), 7, *frame, true).error().code == Code::DataLoss);
  }
  {
    const auto builder = trees->build(source.snapshot.root);
    REQUIRE(source.serve({source.snapshot.root}, **builder).ok());
    const Sha256 large = (*builder)->missing().back();
    CHECK((*builder)->add(sha256("print()"), 7, frame->substr(0, 2), false).ok());
    CHECK((*builder)->add(large, 7, *frame, true).error().code == Code::DataLoss);
  }
  const auto nothing_came =
      ensure_tree(*trees, source.snapshot.root, [](const auto&, TreeBuilder&) { return ok(); });
  CHECK(nothing_came.error().code == Code::DataLoss);
  CHECK(names_in(folder / "trees") == 0);
}

TEST_CASE("what an earlier runner did not finish is swept") {
  const TemporaryFolder folder;
  write_file(folder / "trees/.unfinished-4711-1/some/file", "x");
  write_file(folder / "trees/.unfinished-4711-abc.manifest", "x");
  open_trees(folder / "trees");
  CHECK(names_in(folder / "trees") == 0);
}

TEST_CASE("what was not finished and can't be deleted is in nobody's way") {
  const TemporaryFolder folder;
  const fs::path left = folder / fmt::format("trees/.unfinished-{}-1", ::getpid());
  write_file(left / "some/file", "x");
  fs::permissions(folder.path(), fs::perms{0755});
  const int user = ::setfsuid(65534);  // whom permissions hold for, if this is root
  auto opened = Trees::open(folder / "trees");
  ::setfsuid(static_cast<uid_t>(user));
  REQUIRE(opened.ok());
  write_project(folder / "p");
  Source source(folder / "p");
  CHECK(source.build(**opened).ok());
  CHECK((fs::exists(left / "some/file") || geteuid() != 0));
}

TEST_CASE("a tree of an earlier boot is read once; a damaged one is built anew") {
  const TemporaryFolder folder;
  write_project(folder / "p");
  Source source(folder / "p");
  const fs::path tree = *source.build(*open_trees(folder / "trees"));
  const fs::path note = tree.native() + ".manifest";
  const std::string text = test::read_file(note);
  const std::string of_old = "an-earlier-boot" + text.substr(text.find('\n'));

  write_file(note, of_old);
  CHECK(*open_trees(folder / "trees")->find(source.snapshot.root));
  CHECK(test::read_file(note) == text);

  SUBCASE("a byte") {
    write_file(tree / "train.py", "prinT()");
  }
  SUBCASE("cut to nothing") {
    write_file(tree / "data/large", "");
  }
  SUBCASE("gone") {
    fs::remove(tree / "data/link");
  }
  SUBCASE("no note") {
    fs::remove(note);
  }
  if (fs::exists(note)) write_file(note, of_old);
  const auto trees = open_trees(folder / "trees");
  CHECK(!*trees->find(source.snapshot.root));
  REQUIRE(source.build(*trees).ok());
  CHECK(test::describe_tree(tree) == test::describe_tree(folder / "p"));
}

TEST_CASE("a tree that can't be looked at for want of descriptors stays") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  const TemporaryFolder folder;
  write_project(folder / "p");
  Source source(folder / "p");
  const fs::path tree = *source.build(*open_trees(folder / "trees"));
  const fs::path note = tree.native() + ".manifest";
  SUBCASE("of this boot") {}
  SUBCASE("of an earlier one") {
    const std::string text = test::read_file(note);
    write_file(note, "an-earlier-boot" + text.substr(text.find('\n')));
  }
  const auto trees = open_trees(folder / "trees");
  for (rlim_t few = 0; few < 2; ++few) {
    const auto found = [&] {
      const test::FewDescriptors now(few);
      return trees->find(source.snapshot.root);
    }();
    if (!found.ok()) CHECK(found.error().code == Code::ResourceExhausted);
    CHECK(test::describe_tree(tree) == test::describe_tree(folder / "p"));
  }
  CHECK(*trees->find(source.snapshot.root));
}

TEST_CASE("trim keeps what is in use, then what was used last") {
  const TemporaryFolder folder;
  const auto trees = open_trees(folder / "trees");
  std::vector<Sha256> roots;
  for (int i = 0; i < 4; ++i) {
    const fs::path project = folder / fmt::format("p{}", i);
    write_file(project / "f", std::string(1000, static_cast<char>('a' + i)));
    Source source(project);
    REQUIRE(source.build(*trees).ok());
    roots.push_back(source.snapshot.root);
    const timespec times[2] = {{1000 + i, 0}, {1000 + i, 0}};
    const fs::path note = folder / fmt::format("trees/{}.manifest", to_hex(roots.back()));
    REQUIRE(::utimensat(AT_FDCWD, note.c_str(), times, 0) == 0);
  }
  REQUIRE(trees->trim(2500, {roots[0]}).ok());
  CHECK(*trees->find(roots[0]));
  CHECK(!*trees->find(roots[1]));
  CHECK(*trees->find(roots[2]));
  CHECK(*trees->find(roots[3]));
  REQUIRE(trees->trim(0, {}).ok());
  CHECK(names_in(folder / "trees") == 0);
}

TEST_CASE("what no launch uses is counted by what its removal gives back") {
  const TemporaryFolder folder;
  const auto trees = open_trees(folder / "trees");
  std::vector<Sha256> roots;
  for (int i = 0; i < 3; ++i) {
    const fs::path project = folder / fmt::format("p{}", i);
    write_file(project / "own", std::string(100, static_cast<char>('a' + i)));
    if (i > 0) write_file(project / "large", std::string(1000, 'x'));   // of two of them
    Source source(project);
    REQUIRE(source.build(*trees).ok());
    roots.push_back(source.snapshot.root);
  }
  CHECK(trees->unused_bytes({}) == 1300);
  CHECK(trees->unused_bytes({roots[0]}) == 1200);
  CHECK(trees->unused_bytes({roots[1]}) == 200);   // the large one stays, for that
  CHECK(trees->unused_bytes({roots.begin(), roots.end()}) == 0);
}

}  // namespace
}  // namespace dtrain::runner
