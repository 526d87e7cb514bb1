#include "runner/carried_outputs.h"

#include <doctest/doctest.h>

#include <sys/stat.h>

#include <functional>

#include "schema/output_tree.h"
#include "tests/support/project.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;

// The daemon's side: a directory.
class Home : public OutputStore {
 public:
  Home() { fs::create_directories(folder); }

  Result<pb::OutputList> list(const pb::OutputsRequest& of) override {
    if (is_gone) return Error{Code::Unavailable, "gone", ""};
    if (!of.resume().empty() && of.resume() != folder.string()) return Error{Code::NotFound, "no output", ""};
    pb::OutputList all;
    TRY(const OutputTree tree, OutputTree::open(folder));
    TRY(const auto entries, tree.list());
    for (const pb::OutputEntry& entry : entries) *all.add_entries() = entry;
    return all;
  }
  Status read(const pb::ReadOutputsRequest& request, const std::function<Status(const pb::OutputPart&)>& part) override {
    TRY(const OutputTree tree, OutputTree::open(folder));
    for (const std::string& path : request.paths()) {
      pb::OutputPart message;
      TRY(*message.mutable_entry(), tree.look(path));
      const std::string bytes = test::read_file(folder / path);
      message.set_data(bytes.substr(0, bytes.size() / 2));
      TRY(part(message));
      message.mutable_entry()->Clear();
      message.set_data(bytes.substr(bytes.size() / 2));
      message.set_last(true);
      TRY(part(message));
      ++brought;
    }
    return ok();
  }
  Result<pb::WriteOutputsReply> write(const pb::OutputsRequest&, const std::function<Status(const Say&)>& parts) override {
    if (is_gone) return Error{Code::Unavailable, "gone", ""};
    TRY(const OutputTree tree, OutputTree::open(folder));
    pb::WriteOutputsReply reply;
    std::optional<UnnamedOutput> file;
    pb::OutputEntry entry;
    const Status said = parts([&](const pb::OutputPart& part) {
      if (!file) entry = part.entry();
      if (!file) came.push_back((part.removed() ? "-" : "") + entry.path());
      if (part.removed()) {
        CHECK(tree.remove(entry).ok());
      } else if (entry.kind() != pb::Entry::FILE) {
        CHECK(tree.make(entry).ok());
      } else {
        if (!file) file.emplace(tree.create().value());
        CHECK(file->append(part.data()).ok());
        if (part.last() && part.withdrawn()) came.back() += " withdrawn";
        if (part.last() && entry.path() == refuses) {
          pb::OutputTrouble& trouble = *reply.add_troubles();
          trouble.set_path(entry.path());
          trouble.set_why("refused");
        } else if (part.last() && !part.withdrawn()) {
          CHECK(file->give_name(entry).ok());
        }
        if (part.last()) file.reset();
      }
      return --lasts_for != 0;
    });
    TRY(said);
    if (lasts_for == 0) return Error{Code::Unavailable, "gone in the middle", ""};
    return reply;
  }
  Result<pb::OverReply> over(const pb::OverRequest&) override { return pb::OverReply(); }

  test::TemporaryFolder scratch;
  const fs::path folder = scratch / "4";
  std::vector<std::string> came;
  int brought = 0;
  bool is_gone = false;
  std::string refuses;
  int lasts_for = -1;   // so many parts; then it is gone
};

struct CarryingHost {
  explicit CarryingHost(Home& daemons) : home(daemons) {}
  fs::path operator/(const std::string& name) const { return place.files() / name; }
  void bring() { REQUIRE(bring_outputs(place, home, {}, [] { return true; }).ok()); }
  Carried carry(Which which = Which::Growing) {
    home.came.clear();
    const auto carried = carry_outputs(place, home, {}, which, memory);
    REQUIRE_MESSAGE(carried.ok(), carried.error().message);
    return *carried;
  }

  Home& home;
  test::TemporaryFolder scratch;
  const CarriedPlace place = carried_place(scratch.path(), "4", "abcdef");
  CarryMemory memory;
};

using Names = std::vector<std::string>;

TEST_CASE("what changed here goes home, once, and what is no more goes there too") {
  Home home;
  CarryingHost host(home);
  host.bring();
  test::write_file(host / "a/b", "12345");
  fs::create_symlink("a", host / "newest");
  host.carry();
  CHECK(home.came == Names{"a", "a/b", "newest"});
  CHECK(test::describe_tree(home.folder) == test::describe_tree(host.place.files()));
  host.carry();
  CHECK(home.came.empty());
  test::write_file(host / "a/b", "6");
  host.carry();
  CHECK(home.came == Names{"a/b"});
  fs::remove_all(host / "a");
  fs::remove(host / "newest");
  test::write_file(host / "c", "7");
  host.carry();
  CHECK(home.came == Names{"c", "-newest", "-a/b", "-a"});
  CHECK(test::describe_tree(home.folder) == test::describe_tree(host.place.files()));
}

TEST_CASE("files go in the order in which they were written, so that what names another comes after it") {
  Home home;
  CarryingHost host(home);
  host.bring();
  test::write_file(host / "a-pointer", "z-model");
  test::write_file(host / "z-model", "weights");
  test::make_old(host / "z-model");
  host.carry();
  CHECK(home.came == Names{"z-model", "a-pointer"});
}

TEST_CASE("what was written to a moment ago waits, unless all is to go") {
  Home home;
  CarryingHost host(home);
  host.bring();
  test::write_file(host / "old", "1");
  test::make_old(host / "old");
  test::write_file(host / "new", "2");
  host.carry(Which::Quiet);
  CHECK(home.came == Names{"old"});
  host.carry(Which::Growing);
  CHECK(home.came == Names{"new"});
}

TEST_CASE("nothing is deleted or pointed to at home while what replaces it is on its way") {
  Home home;
  CarryingHost host(home);
  host.bring();
  test::write_file(host / "ckpt-1/model", "1");
  test::make_old(host / "ckpt-1/model");
  fs::create_symlink("ckpt-1", host / "latest");
  host.carry(Which::Quiet);
  CHECK(home.came == Names{"ckpt-1", "ckpt-1/model", "latest"});
  test::write_file(host / "ckpt-2/model", "2");
  test::write_file(host / "ckpt-2/part", "2");
  test::make_old(host / "ckpt-2/part");
  fs::remove(host / "latest");
  fs::create_symlink("ckpt-2", host / "latest");
  fs::remove_all(host / "ckpt-1");
  host.carry(Which::Quiet);
  CHECK(home.came == Names{"ckpt-2", "ckpt-2/part"});
  CHECK(test::read_file(home.folder / "latest/model") == "1");
  test::make_old(host / "ckpt-2/model");
  host.carry(Which::Quiet);
  CHECK(home.came == Names{"ckpt-2/model", "latest", "-ckpt-1/model", "-ckpt-1"});
}

TEST_CASE("what came in a turn that broke and was deleted since goes, and does not come back") {
  Home home;
  CarryingHost host(home);
  host.bring();
  test::write_file(host / "tmp/a", "1");
  test::write_file(host / "tmp/b", "2");
  home.lasts_for = 2;
  CHECK(!carry_outputs(host.place, home, {}, Which::Growing, host.memory).ok());
  CHECK(fs::exists(home.folder / "tmp/a"));
  fs::rename(host / "tmp", host / "ckpt");
  host.bring();
  CHECK(!fs::exists(host / "tmp"));
  home.lasts_for = -1;
  host.carry();
  CHECK(test::describe_tree(home.folder) == test::describe_tree(host.place.files()));
  host.carry();
  CHECK(home.came.empty());
}

TEST_CASE("what can't be looked at here stays at home as it is") {
  Home home;
  CarryingHost host(home);
  host.bring();
  test::write_file(host / "x", "1");
  host.carry();
  fs::remove(host / "x");
  REQUIRE(::mkfifo((host / "x").c_str(), 0600) == 0);
  CHECK(host.carry().troubles == Names{"'x' is no file"});
  CHECK(test::read_file(home.folder / "x") == "1");
  host.bring();
  CHECK(fs::is_fifo(host / "x"));
}

TEST_CASE("a directory that became a file is replaced by it") {
  Home home;
  CarryingHost host(home);
  host.bring();
  test::write_file(host / "d/e/f", "1");
  host.carry();
  fs::remove_all(host / "d");
  test::write_file(host / "d", "2");
  host.carry();
  CHECK(home.came == Names{"d"});
  CHECK(test::read_file(home.folder / "d") == "2");
  host.carry();
  CHECK(home.came.empty());
}

TEST_CASE("a host that begins has all that is at home, and brings it once") {
  Home home;
  test::write_file(home.folder / "a/b", "12345");
  test::write_file(home.folder / "empty", "");
  fs::create_symlink("a/b", home.folder / "newest");
  CarryingHost host(home);
  host.bring();
  CHECK(test::describe_tree(home.folder) == test::describe_tree(host.place.files()));
  CHECK(home.brought == 2);
  host.bring();
  CHECK(home.brought == 2);
  host.carry();
  CHECK(home.came.empty());
}

TEST_CASE("changes of two hosts come together, and the later one of the same file stays") {
  Home home;
  test::write_file(home.folder / "both", "0");
  test::write_file(home.folder / "theirs", "0");
  test::write_file(home.folder / "gone", "0");
  CarryingHost host(home), other(home);
  host.bring();
  other.bring();
  test::write_file(host / "both", "earlier");
  test::make_old(host / "both");
  test::write_file(host / "mine", "new");
  test::write_file(other / "both", "later");
  test::write_file(other / "theirs", "1");
  fs::remove(other / "gone");
  other.carry();
  host.bring();
  CHECK(test::read_file(host / "both") == "later");
  CHECK(test::read_file(host / "theirs") == "1");
  CHECK(!fs::exists(host / "gone"));
  CHECK(test::read_file(host / "mine") == "new");
  test::write_file(host / "both", "the last");
  host.bring();
  CHECK(test::read_file(host / "both") == "the last");
  host.carry();
  CHECK(home.came == Names{"mine", "both"});
  other.bring();
  CHECK(test::describe_tree(other.place.files()) == test::describe_tree(host.place.files()));
}

TEST_CASE("what was deleted here and not carried yet does not come back") {
  Home home;
  test::write_file(home.folder / "old", "0");
  CarryingHost host(home);
  host.bring();
  fs::remove(host / "old");
  host.bring();
  CHECK(!fs::exists(host / "old"));
  host.carry();
  CHECK(!fs::exists(home.folder / "old"));
}

TEST_CASE("without its memory of what both have a host compares, and carries what differs") {
  Home home;
  CarryingHost host(home);
  host.bring();
  test::write_file(host / "a", "1");
  test::write_file(host / "b", "2");
  host.carry();
  test::write_file(host.place.common(), "\xff\xff garbage");
  test::write_file(host / "b", "33");
  host.bring();
  host.carry();
  CHECK(home.came == Names{"b"});
  CHECK(test::read_file(home.folder / "b") == "33");
}

TEST_CASE("what home does not take is said, and not tried again until it is another") {
  Home home;
  CarryingHost host(home);
  host.bring();
  home.refuses = "bad";
  test::write_file(host / "bad", "1");
  test::write_file(host / "good", "1");
  CHECK(host.carry().troubles == Names{"refused"});
  CHECK(test::read_file(home.folder / "good") == "1");
  CHECK(host.carry().troubles == Names{"refused"});   // nobody was told before the end
  CHECK(home.came.empty());
  test::write_file(host / "bad", "22");
  host.carry();
  CHECK(home.came == Names{"bad"});
  home.refuses.clear();
  test::write_file(host / "bad", "333");
  CHECK(host.carry().troubles.empty());
  CHECK(test::read_file(home.folder / "bad") == "333");
}

TEST_CASE("when home is gone nothing is taken for carried") {
  Home home;
  CarryingHost host(home);
  host.bring();
  test::write_file(host / "a", "1");
  home.is_gone = true;
  CHECK(carry_outputs(host.place, home, {}, Which::Growing, host.memory).error().code == Code::Unavailable);
  CHECK(bring_outputs(host.place, home, {}, [] { return true; }).error().code == Code::Unavailable);
  home.is_gone = false;
  host.carry();
  CHECK(home.came == Names{"a"});
}

TEST_CASE("large outputs go in several turns") {
  Home home;
  CarryingHost host(home);
  host.bring();
  const std::string long_name(200, 'x');
  for (int i = 0; i < 1'500; ++i) test::write_file(host / (long_name + std::to_string(i)), "1");
  CHECK(host.carry().more);
  CHECK(!host.carry().more);
  CHECK(test::describe_tree(home.folder) == test::describe_tree(host.place.files()));
}

TEST_CASE("what an experiment goes on from is brought, by its own path or not at all") {
  Home home;
  test::write_file(home.folder / "checkpoints/1", "weights");
  CarryingHost host(home);
  const auto resumed = bring_results(host.place, host.place.resumed(), home, {}, home.folder.string(), [] { return true; });
  REQUIRE(resumed.ok());
  CHECK(test::read_file(fs::path(*resumed) / "checkpoints/1") == "weights");
  CHECK(bring_results(host.place, host.place.resumed(), home, {}, home.folder.string(), [] { return true; }).ok());
  CHECK(home.brought == 1);
  CHECK(*bring_results(host.place, host.place.resumed(), home, {}, "/elsewhere", [] { return true; }) == "");
}

TEST_CASE("a copy goes when all of it is at home, and stays when something is not") {
  Home home;
  CarryingHost host(home);
  host.bring();
  test::write_file(host / "a", "1");
  host.carry();
  test::write_file(host / ".dtrain-state", "of this host");
  CHECK(unused_copies(host.scratch.path(), {}) == std::vector{std::pair<std::string, std::string>("4", "abcdef")});
  CHECK(unused_copies(host.scratch.path(), {"4"}).empty());
  CHECK(is_all_carried(host.place));
  test::write_file(host / "b", "1");
  CHECK(!is_all_carried(host.place));
  remove_old_copies(host.scratch.path(), {}, true);
  CHECK(fs::exists(host / "b"));
  host.carry();
  CHECK(is_all_carried(host.place));
  CHECK(fs::exists(discard_copy(host.place) / "files/b"));
  CHECK(!fs::exists(host.place.root));
  CHECK(discard_copy(host.place).empty());
  CHECK(unused_copies(host.scratch.path(), {}).empty());
  remove_old_copies(host.scratch.path(), {}, true);
  CHECK(fs::is_empty(host.scratch.path()));
}

}  // namespace
}  // namespace dtrain::runner
