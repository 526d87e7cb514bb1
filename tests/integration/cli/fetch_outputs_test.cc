// Outputs of a daemon that is elsewhere, which may send anything.
#include "cli/fetch_outputs.h"

#include <doctest/doctest.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <fstream>
#include <map>

#include "cli/remote_outputs.h"
#include "cli/signals.h"
#include "schema/dtrain.grpc.pb.h"
#include "schema/small_file.h"
#include "tests/support/project.h"

namespace dtrain::cli {
namespace {

namespace fs = std::filesystem;

pb::OutputEntry entry_of(pb::Entry::Kind kind, const std::string& path, uint64_t size = 0) {
  pb::OutputEntry entry;
  entry.set_kind(kind);
  entry.set_path(path);
  entry.set_size(size);
  entry.set_mode(kind == pb::Entry::DIRECTORY ? 0755 : 0644);
  return entry;
}

// Lists and sends what a test says, in parts of three bytes.
class SentOutputs final : public pb::Outputs::Service {
 public:
  explicit SentOutputs(const fs::path& socket) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket.string(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~SentOutputs() override { server_->Shutdown(); }

  grpc::Status List(grpc::ServerContext*, const pb::OutputsRequest* request, grpc::ServerWriter<pb::OutputList>* writer) override {
    if (request->experiment() != "4" || !request->host_id().empty()) return {grpc::StatusCode::NOT_FOUND, "no such experiment"};
    for (const pb::OutputEntry& entry : listed) {
      pb::OutputList part;
      *part.add_entries() = entry;
      writer->Write(part);
    }
    pb::OutputList part;
    for (const std::string& path : left_out) {
      pb::OutputTrouble& trouble = *part.add_left_out();
      trouble.set_path(path);
      trouble.set_why(path + " stays");
    }
    writer->Write(part);
    return grpc::Status::OK;
  }
  grpc::Status Read(grpc::ServerContext*, const pb::ReadOutputsRequest* request, grpc::ServerWriter<pb::OutputPart>* writer) override {
    for (const std::string& path : request->paths()) {
      asked.push_back(path);
      const auto found = contents.find(path);
      if (found == contents.end()) continue;   // gone since
      pb::OutputPart part;
      *part.mutable_entry() = entry_of(pb::Entry::FILE, sent_as.empty() ? path : sent_as, said_size == 0 ? found->second.size() : said_size);
      size_t at = 0;
      do {
        if (breaks > 0 && at > 3) {
          --breaks;
          return {grpc::StatusCode::UNAVAILABLE, "the network is away"};
        }
        part.set_data(found->second.substr(at, 3));
        at += part.data().size();
        part.set_last(at == found->second.size());
        part.set_withdrawn(part.last() && path == withdrawn);
        writer->Write(part);
        part.mutable_entry()->Clear();
        part.mutable_entry()->set_path(path);
      } while (!part.last());
    }
    return grpc::Status::OK;
  }

  void add(const std::string& path, const std::string& bytes) {
    contents[path] = bytes;
    listed.push_back(entry_of(pb::Entry::FILE, path, bytes.size()));
  }
  void add_link(const std::string& path, const std::string& target) {
    listed.push_back(entry_of(pb::Entry::SYMLINK, path));
    listed.back().set_target(target);
  }

  std::vector<pb::OutputEntry> listed;
  std::map<std::string, std::string> contents;
  std::vector<std::string> left_out;
  std::vector<std::string> asked;   // for the content of
  int breaks = 0;                   // so many files break off in their middle
  std::string withdrawn, sent_as;
  uint64_t said_size = 0;   // 0: as it is

 private:
  std::unique_ptr<grpc::Server> server_;
};

struct OutputScene {
  test::TemporaryFolder folder;
  SentOutputs outputs{folder.path() / "socket"};
  RpcChannel channel{connected()};
  fs::path target = folder.path() / "target";
  std::function<Result<bool>(const Signals&)> again;

  std::unique_ptr<Wire> connected() const {
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (folder.path() / "socket").c_str());
    REQUIRE(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    return std::make_unique<SocketWire>(std::move(fd));
  }
  Result<FetchedOutputs> fetch(const std::vector<fs::path>& paths = {}, bool force = false) {
    return fetch_outputs({[this]() -> RpcChannel& { return channel; }, again}, "4", paths, target, force);
  }
  std::string text(const std::string& path) const { return dtrain::read_file(target / path).value().value_or("nothing"); }
};

TEST_CASE("all of it, or what is named by its last name, comes as it is there") {
  OutputScene scene;
  scene.outputs.listed.push_back(entry_of(pb::Entry::DIRECTORY, "a"));
  scene.outputs.listed.push_back(entry_of(pb::Entry::DIRECTORY, "a/b"));
  scene.outputs.add("a/b/c", "content");
  scene.outputs.add("a/empty", "");
  scene.outputs.add("ab", "another");
  const auto all = scene.fetch();
  REQUIRE_MESSAGE(all.ok(), all.error().message);
  CHECK(all->items == 2);
  CHECK(scene.text("a/b/c") == "content");
  CHECK(scene.text("a/empty") == "");
  CHECK(scene.text("ab") == "another");
  scene.target = scene.folder.path() / "part";
  REQUIRE(scene.fetch({"a/b", "a/empty"}).ok());
  CHECK(scene.text("b/c") == "content");
  CHECK(scene.text("empty") == "");
  CHECK(!fs::exists(scene.target / "ab"));
  CHECK(scene.fetch({"a/b"}).error().code == Code::AlreadyExists);
  CHECK(scene.fetch({"a/b"}, true).ok());
  CHECK(scene.fetch({"none"}).error().code == Code::NotFound);
  CHECK(scene.fetch({"a/b", "a/b"}, true).error().code == Code::InvalidArgument);
  CHECK(fetch_outputs({[&]() -> RpcChannel& { return scene.channel; }}, "5", {}, scene.target, true).error().code == Code::NotFound);
}

TEST_CASE("what changed meanwhile is told, and what is gone is not there") {
  OutputScene scene;
  scene.outputs.add("changing", "content");
  scene.outputs.add("gone", "content");
  scene.outputs.add("kept", "content");
  scene.outputs.withdrawn = "changing";
  scene.outputs.contents.erase("gone");
  const auto fetched = scene.fetch();
  REQUIRE(fetched.ok());
  CHECK(fetched->left_out == std::vector<std::string>{"changing (it was written to meanwhile)"});
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(scene.target)) names.push_back(file.path().filename());
  CHECK(names == std::vector<std::string>{"kept"});
}

TEST_CASE("what does not travel is told, of what was asked for, and by itself it is refused") {
  OutputScene scene;
  scene.outputs.add("file", "content");
  scene.outputs.left_out = {"a/socket", "latest"};
  scene.outputs.add_link("sub", "x");
  scene.outputs.listed.back().set_kind(pb::Entry::DIRECTORY);
  scene.outputs.add_link("sub/up", "../file");
  CHECK(scene.fetch()->left_out == std::vector<std::string>{"a/socket stays", "latest stays"});
  CHECK(fs::read_symlink(scene.target / "sub/up") == "../file");
  CHECK(scene.fetch({"file"}, true)->left_out.empty());
  CHECK(scene.fetch({"latest"}, true).error().message == "latest stays");
  // Out of what is copied with it.
  scene.target = scene.folder.path() / "part";
  const auto part = scene.fetch({"sub/up", "file"});
  REQUIRE(part.ok());
  CHECK(part->left_out.size() == 1);
  CHECK(scene.text("file") == "content");
}

TEST_CASE("no directory of a person's gives way to a file or a link, nor a link to one") {
  for (const std::string kind : {"file", "link"}) {
    CAPTURE(kind);
    OutputScene scene;
    if (kind == "file") scene.outputs.add("src", "content");
    if (kind == "link") scene.outputs.add_link("src", "elsewhere");
    fs::create_directories(scene.target / "src");
    std::ofstream(scene.target / "src/precious") << "mine";
    CHECK(scene.fetch({}, true).error().code == Code::AlreadyExists);
    CHECK(scene.text("src/precious") == "mine");
  }
  OutputScene scene;
  scene.outputs.listed.push_back(entry_of(pb::Entry::DIRECTORY, "ckpt"));
  scene.outputs.add("ckpt/1", "content");
  fs::create_directories(scene.folder.path() / "large disk");
  fs::create_directories(scene.target);
  fs::create_symlink(scene.folder.path() / "large disk", scene.target / "ckpt");
  CHECK(scene.fetch({}, true).error().code == Code::AlreadyExists);
  CHECK(fs::is_symlink(scene.target / "ckpt"));
  fs::remove(scene.target / "ckpt");
  std::ofstream(scene.target / "ckpt") << "a file";
  CHECK(scene.fetch({}, true).error().code == Code::AlreadyExists);
  CHECK(scene.text("ckpt") == "a file");
  fs::remove(scene.target / "ckpt");
  fs::create_directories(scene.target / "ckpt");
  std::ofstream(scene.target / "ckpt/0") << "kept";
  std::ofstream(scene.target / "ckpt/1") << "replaced";
  CHECK(scene.fetch({}, true).ok());
  CHECK(scene.text("ckpt/0") == "kept");
  CHECK(scene.text("ckpt/1") == "content");
}

TEST_CASE("a daemon that sends more than it said fills no disk") {
  OutputScene scene;
  scene.outputs.add("file", std::string(100, 'x'));
  scene.outputs.said_size = 10;
  CHECK(scene.fetch().error().code == Code::DataLoss);
  CHECK(fs::is_empty(scene.target));
}

TEST_CASE("nothing is written out of the directory, whatever the daemon calls it") {
  for (const std::string path : {"../out", "/etc/out", "a/../../out"}) {
    CAPTURE(path);
    OutputScene scene;
    scene.outputs.add(path, "content");
    (void)scene.fetch({path});
    CHECK(!fs::exists(scene.folder.path() / "out"));
    CHECK(!fs::exists("/etc/out"));
  }
  OutputScene scene;
  fs::create_directory(scene.folder.path() / "elsewhere");
  scene.outputs.add_link("link", "../elsewhere");
  scene.outputs.add("link/file", "content");
  (void)scene.fetch();
  CHECK(fs::is_empty(scene.folder.path() / "elsewhere"));
  // Another file than was asked for.
  OutputScene other;
  other.outputs.add("file", "content");
  other.outputs.sent_as = "another";
  CHECK(other.fetch().error().code == Code::DataLoss);
  CHECK(fs::is_empty(other.target));
}

TEST_CASE("over connections that break, what has come whole does not come again, and nothing is left of the rest") {
  OutputScene scene;
  scene.outputs.add("a", "12");   // too short to break
  scene.outputs.add("b", "a long content");
  scene.outputs.add("c", "another content");
  scene.outputs.breaks = 2;
  CHECK(scene.fetch().error().code == Code::Unavailable);
  CHECK(scene.text("a") == "12");
  CHECK(!fs::exists(scene.target / "b"));

  scene.outputs.breaks = 2;
  scene.outputs.asked.clear();
  int connections = 0;
  scene.again = [&](const Signals&) -> Result<bool> { return ++connections % 2 == 0; };   // not at once
  REQUIRE(scene.fetch({}, true).ok());
  CHECK(scene.outputs.asked == std::vector<std::string>{"a", "b", "b", "b", "c"});
  CHECK(scene.text("b") == "a long content");
  CHECK(scene.text("c") == "another content");
  size_t names = 0;
  for (auto entry = fs::directory_iterator(scene.target); entry != fs::directory_iterator(); ++entry) ++names;
  CHECK(names == 3);

  scene.outputs.breaks = 1;
  scene.again = [](const Signals&) -> Result<bool> { return Error{Code::PermissionDenied, "revoked", ""}; };
  CHECK(scene.fetch({}, true).error().message == "revoked");
}

TEST_CASE("one file as a temporary one, or none") {
  OutputScene scene;
  scene.outputs.add("file", "content");
  const FilePointer file = open_output(scene.channel, "4", "file");
  REQUIRE(file);
  char bytes[16] = "";
  CHECK(std::fread(bytes, 1, sizeof bytes, file.get()) == 7);
  CHECK(std::string(bytes) == "content");
  CHECK(!open_output(scene.channel, "4", "none"));
  scene.outputs.withdrawn = "file";
  CHECK(open_output(scene.channel, "4", "file"));   // an event file grows while it is read
}

}  // namespace
}  // namespace dtrain::cli
