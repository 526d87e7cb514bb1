// An image's files as the root of real processes, of root's and of somebody's who is not.
#include "runner/image_root.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "runner/container_image.h"
#include "runner/process.h"
#include "schema/small_file.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"
#include "tests/support/tiny_image.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;
using tests::say_skipped;

constexpr uid_t kNobody = 65534;

struct ImageScene {
  test::TemporaryFolder folder;
  fs::path files = folder / "image";
  fs::path layer = folder / "work/layer";
  fs::path outside = folder / "work/outside";

  ImageScene() {
    fs::create_directories(outside);
    test::write_file(folder / "work/set/train", "pixels\n");
  }
  ImageRoot root() const {
    return {files.string(), {{outside.string(), outside.string()}, {(folder / "work/set").string(), "/data/set", true}}};
  }
  SpawnRequest request(const std::string& script) const {
    SpawnRequest request;
    request.argv = {"/bin/sh", "-c", script};
    request.cwd = outside.string();
    request.env = {{"PATH", "/bin"}};
    request.image = root();
    request.image_layer = layer;
    return request;
  }
};

// What it prints, and then "exit 3"; or why it can't.
std::string shell(const SpawnRequest& asked) {
  SpawnRequest request = asked;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  request.output_fd = write_end.get();
  Result<Child> child = spawn(request);
  if (!child.ok()) return child.error().message;
  write_end.reset();
  std::string text;
  char bytes[4096];
  for (ssize_t got; (got = ::read(read_end.get(), bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<size_t>(got));
  int status = 0;
  ::waitpid(child->pid, &status, 0);
  return text + fmt::format("exit {}\n", WEXITSTATUS(status));
}

// The same as another user, who has nothing of root's; what he finds is in `said`.
std::string shell_as(uid_t user, const SpawnRequest& request, const fs::path& said) {
  test::write_file(said, "");
  const Fd file(::open(said.c_str(), O_WRONLY | O_CLOEXEC));
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool changed = ::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0 &&
                         ::prctl(PR_SET_DUMPABLE, 1) == 0;   // as a program is that he starts
    const std::string text = changed ? shell(request) : "not changed";
    (void)!::write(file.get(), text.data(), text.size());
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  return read_small_file(said).value_or("");
}

constexpr const char* kLook =
    "id -u; pwd; cat /etc/passwd; cat /data/set/train; touch /data/set/x 2>/dev/null || echo read-only; echo mine > result; "
    "echo litter > /tmp/litter; rm /etc/passwd; mkdir /root/d && rm -r /root/d && mkdir /root/d && mv /root/d /root/e; "
    "ls /root; exit 3";

void check_look(const ImageScene& scene, const std::string& text) {
  CHECK(text == fmt::format("0\n{}\nroot:x:0:0::/root:/bin/sh\npixels\nread-only\ne\nexit 3\n", scene.outside.string()));
  CHECK(read_small_file(scene.outside / "result") == "mine\n");
  CHECK(fs::exists(scene.files / "etc/passwd"));
  CHECK(fs::is_empty(scene.files / "tmp"));
  CHECK(fs::is_empty(scene.files / "root"));
  CHECK(!fs::exists(scene.files / "data"));
  CHECK(fs::is_empty(scene.layer / "root"));   // nothing of the mounts is seen outside
  remove_layer(scene.layer);
  CHECK(!fs::exists(scene.layer));
}

TEST_CASE("a process sees the image as its root, what it is shown of the host, and writes to a layer of its own") {
  const ImageScene scene;
  if (const std::string why = tests::tiny_image_unavailable(); !why.empty()) return say_skipped(why);
  tests::make_tiny_image(scene.files);
  check_look(scene, shell(scene.request(kLook)));
}

TEST_CASE("so does one that is not root, in an image of somebody else's") {
  const ImageScene scene;
  if (const std::string why = tests::tiny_image_unavailable(); !why.empty()) return say_skipped(why);
  if (::geteuid() != 0) return say_skipped("only root can be two users");
  tests::make_tiny_image(scene.files);
  fs::permissions(scene.files / "root", fs::perms::owner_all);   // not to be read by him
  for (const auto& path : {scene.folder / "work", scene.outside}) REQUIRE(::chown(path.c_str(), kNobody, kNobody) == 0);
  fs::permissions(scene.folder.path(), fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
  SpawnRequest request = scene.request(kLook);
  const std::string text = shell_as(kNobody, request, scene.folder / "said");
  if (text.starts_with("a user namespace")) return say_skipped("no user namespaces for those who are not root");
  check_look(scene, text);
}

TEST_CASE("links in an image lead to places in the image") {
  const ImageScene scene;
  if (const std::string why = tests::tiny_image_unavailable(); !why.empty()) return say_skipped(why);
  tests::make_tiny_image(scene.files);
  fs::create_symlink("/var", scene.files / "data");
  CHECK(shell(scene.request("cat /var/set/train")) == "pixels\nexit 0\n");
  fs::remove(scene.files / "data");
  const fs::path elsewhere = scene.folder / "elsewhere";   // there is one outside, and none in the image
  fs::create_directory(elsewhere);
  fs::create_symlink(elsewhere, scene.files / "data");
  CHECK(shell(scene.request("cat " + elsewhere.string() + "/set/train")) == "pixels\nexit 0\n");   // made in the image
  CHECK(fs::is_empty(elsewhere));
}

TEST_CASE("what can't be entered or run is said") {
  const ImageScene scene;
  if (const std::string why = tests::tiny_image_unavailable(); !why.empty()) return say_skipped(why);
  fs::create_directories(scene.files);
  CHECK(shell(scene.request("true")) == "in the image: /bin/sh: No such file or directory");
  SpawnRequest request = scene.request("true");
  request.image.shown.push_back({(scene.folder / "none").string(), "/none"});
  CHECK(shell(request) == (scene.folder / "none").string() + ": No such file or directory");
  request.image.files = (scene.folder / "gone").string();
  CHECK(shell(request) == request.image.files + ": No such file or directory");
  CHECK(spawn(request).error().code == Code::FailedPrecondition);
}

TEST_CASE("what is shown may be where the image has something else, or what nobody can write to") {
  const ImageScene scene;
  if (const std::string why = tests::tiny_image_unavailable(); !why.empty()) return say_skipped(why);
  tests::make_tiny_image(scene.files);
  REQUIRE(::mkfifo((scene.files / "etc/hosts").c_str(), 0600) == 0);   // opening one would wait for ever
  fs::create_directories(scene.files / "opt/narrow");
  fs::permissions(scene.files / "opt/narrow", fs::perms::owner_read | fs::perms::owner_exec);
  fs::create_symlink("../../../../../../..", scene.files / "opt/up");
  SpawnRequest request = scene.request("cat /opt/narrow/a/train /opt/narrow/b/train /escaped/train; ls -ld /etc/hosts | head -c1");
  const std::string set = (scene.folder / "work/set").string();
  for (const char* path : {"/opt/narrow/a", "/opt/narrow/b", "/opt/up/../escaped"}) request.image.shown.push_back({set, path, true});
  CHECK(shell(request).starts_with("pixels\npixels\npixels\n-"));
  if (::geteuid() != 0) return tests::say_left_out("as somebody else: only root can be");
  for (const auto& path : {scene.folder / "work", scene.outside}) REQUIRE(::chown(path.c_str(), kNobody, kNobody) == 0);
  fs::permissions(scene.folder.path(), fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
  request.image_layer = scene.folder / "work/other";
  const std::string text = shell_as(kNobody, request, scene.folder / "said");
  CHECK_MESSAGE((text.starts_with("pixels\npixels\npixels\n-") || text.starts_with("a user namespace")), text);
}

TEST_CASE("a careless root changes nothing of the host, and whoever gives up its rights sees the image") {
  const ImageScene scene;
  if (const std::string why = tests::tiny_image_unavailable(); !why.empty()) return say_skipped(why);
  if (::geteuid() != 0) return say_skipped("only root could");
  tests::make_tiny_image(scene.files);
  const mode_t before = ::umask(077);
  const std::string text = shell(scene.request("echo x > /proc/sys/kernel/hostname; mkdir /sys/fs/x; rm -f /dev/null; touch /dev/x; echo x > /dev/null; "
                                               "touch /dev/shm/dtrain-test && rm /dev/shm/dtrain-test && echo shared; ls -ld / /data"));
  ::umask(before);
  CHECK_MESSAGE(text.find("hostname: Read-only file system") != std::string::npos, text);
  CHECK_MESSAGE(text.find("'/sys/fs/x': Read-only file system") != std::string::npos, text);
  CHECK_MESSAGE(text.find("/dev/x: Read-only file system") != std::string::npos, text);
  CHECK_MESSAGE(text.find("shared\ndrwxr-xr-x") != std::string::npos, text);
  CHECK(::access("/dev/null", F_OK) == 0);
}

TEST_CASE("what an image runs by itself is a program in it, with or without arguments") {
  const ImageScene scene;
  if (const std::string why = tests::tiny_image_unavailable(); !why.empty()) return say_skipped(why);
  tests::make_tiny_image(scene.files);
  ImageConfig config;
  config.entrypoint = {"/bin/echo", "it's"};
  config.command = {"me", "$HOME"};
  REQUIRE(write_image_programs({scene.files, config}, scene.layer).ok());
  CHECK(shell(scene.request("/.dtrain/command; /.dtrain/entrypoint 'a b' c")) == "it's me $HOME\nit's a b c\nexit 0\n");
  REQUIRE(write_image_programs(image_of_directory(scene.files), scene.layer).ok());
  CHECK(shell(scene.request("/.dtrain/command 2>/dev/null")) == "exit 127\n");
  CHECK(shell(scene.request("/.dtrain/entrypoint /bin/echo x")) == "x\nexit 0\n");
}

}  // namespace
}  // namespace dtrain::runner
