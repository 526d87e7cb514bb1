#include "cli/connection.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <fstream>

#include "cli/command.h"
#include "cli/commands.h"
#include "fake_daemon.h"
#include "schema/fd.h"

namespace dtrain::cli {
namespace {

namespace fs = std::filesystem;

Result<int> type(Run (*declare)(Options&, CommandContext&), std::vector<std::string> words,
                 CommandContext& context) {
  const Command command = {"command", "Group", "", declare};
  auto run = parse_command(command, context, std::move(words));
  if (!run.ok()) return run.error();
  return run.value()();
}

TEST_CASE("no daemon: says for which home, and how to start one") {
  const ScratchHome scratch;
  const auto connection = connect(Autostart::No, CommandContext());
  REQUIRE(!connection.ok());
  CHECK(connection.error().code == Code::Unavailable);
  CHECK(connection.error().message == "no daemon runs for " + scratch.home().root.string());
  CHECK(connection.error().hint == "start one: dtrain daemon start");
}

TEST_CASE("a socket that nobody listens on any more is no daemon") {
  const ScratchHome scratch;
  { const FakeDaemon daemon(scratch.home()); }
  std::ofstream(scratch.home().socket()) << "left behind";
  CHECK(connect(Autostart::No, CommandContext()).error().code == Code::Unavailable);
}

TEST_CASE("a version mismatch names the side to upgrade") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  daemon.info.set_protocol(kProtocol + 1);
  daemon.info.set_version("9.9");
  auto connection = connect(Autostart::No, CommandContext());
  REQUIRE(!connection.ok());
  CHECK(connection.error().code == Code::FailedPrecondition);
  CHECK(connection.error().message.find("is dtrain 9.9 with protocol") != std::string::npos);
  CHECK(connection.error().hint == "upgrade this dtrain to the daemon's version");
  daemon.info.set_protocol(kProtocol - 1);
  connection = connect(Autostart::No, CommandContext());
  REQUIRE(!connection.ok());
  CHECK(connection.error().hint.starts_with("upgrade the daemon: dtrain daemon stop"));
  // Stopping the other version must still be possible.
  CHECK(connect_any_version(scratch.home()).ok());
}

TEST_CASE("a daemon that hangs is named with its pid, and the command ends") {
  const ScratchHome scratch;
  const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, scratch.home().socket().c_str());
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(listener.get(), 8) == 0);
  const auto connection = connect_any_version(scratch.home(), 300);
  REQUIRE(!connection.ok());
  CHECK(connection.error().code == Code::DeadlineExceeded);
  CHECK(connection.error().message == fmt::format("the daemon (pid {}) does not answer", getpid()));
  CHECK(connection.error().hint.find("daemon.log") != std::string::npos);
}

TEST_CASE("a refusal arrives with its hint") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  daemon.show_status = {grpc::StatusCode::NOT_FOUND, "no experiment 9", "dtrain status -a"};
  CommandContext context;
  for (auto* declare : {declare_status, declare_why}) {
    const auto result = type(declare, {"9"}, context);
    REQUIRE(!result.ok());
    CHECK(result.error().code == Code::NotFound);
    CHECK(result.error().message == "no experiment 9");
    CHECK(result.error().hint == "dtrain status -a");
    CHECK(daemon.asked_show.id() == "9");
  }
}

TEST_CASE("what a dying daemon leaves without an answer is asked of the next one") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  daemon.show.mutable_experiment()->set_id("9");
  daemon.dies_at_show = 2;
  auto connection = connect(Autostart::No, CommandContext());
  REQUIRE(connection.ok());
  const auto shown = connection->show(pb::ShowRequest());
  REQUIRE(shown.ok());
  CHECK(shown->experiment().id() == "9");
  CHECK(daemon.asked_shows.size() == 3);
  daemon.dies_at_show = 100;
  CHECK(connection->show(pb::ShowRequest()).error().code == Code::Unavailable);
}

TEST_CASE("status asks for what was typed") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  daemon.list.add_experiments()->set_id("3");
  CommandContext context;
  CHECK(type(declare_status, {"-a", "-n", "3", "-l"}, context).value() == 0);
  CHECK(daemon.asked_list.all());
  CHECK(daemon.asked_list.last() == 4);  // one more tells whether there are others
  CHECK(daemon.asked_list.members());
  CHECK(type(declare_status, {}, context).value() == 0);
  CHECK(!daemon.asked_list.all());
  CHECK(daemon.asked_list.last() == 0);  // everything that goes on
  CHECK(type(declare_status, {"-n", "3"}, context).value() == 0);
  CHECK(daemon.asked_list.all());
  CHECK(daemon.asked_list.last() == 4);
  CHECK(type(declare_status, {"-a"}, context).value() == 0);
  CHECK(daemon.asked_list.last() == 11);
  CHECK(type(declare_status, {"04"}, context).error().code == Code::InvalidArgument);
}

TEST_CASE("kill: a replica alone is refused before anything is asked") {
  const ScratchHome scratch;  // no daemon at all
  CommandContext context;
  const auto refused = type(declare_kill, {"4.2.worker.1"}, context);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == Code::InvalidArgument);
  CHECK(refused.error().hint == "dtrain kill 4.2");
}

TEST_CASE("kill without an ID kills the newest of this project that runs") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  pb::ExperimentInfo* mine = daemon.list.add_experiments();
  mine->set_id("12");
  mine->set_project_dir(project_dir());
  pb::ExperimentInfo* other = daemon.list.add_experiments();
  other->set_id("13");
  other->set_project_dir("/another/project");
  CommandContext context;
  CHECK(type(declare_kill, {"--force"}, context).value() == 0);
  CHECK(!daemon.asked_list.all());
  REQUIRE(daemon.asked_shows.size() == 1);
  CHECK(daemon.asked_shows[0].id() == "12");  // what became of it
  REQUIRE(daemon.asked_kill.ids_size() == 1);
  CHECK(daemon.asked_kill.ids(0) == "12");
  CHECK(daemon.asked_kill.force());
}

TEST_CASE("kill without an ID kills nothing of another project") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  daemon.show.mutable_experiment()->set_id("13");
  pb::ExperimentInfo* other = daemon.list.add_experiments();
  other->set_id("13");
  other->set_project_dir("/another/project");
  CommandContext context;
  const auto refused = type(declare_kill, {}, context);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == Code::NotFound);
  CHECK(refused.error().message.ends_with("of other projects: 13"));
  CHECK(refused.error().hint == "to end one of those, give its ID: dtrain kill 13");
  CHECK(daemon.asked_kill.ids().empty());
}

TEST_CASE("output refuses to leave its directory or to overwrite") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  const fs::path output = scratch.home().root / "outputs" / "4";
  const fs::path target = scratch.home().root / "copy";
  fs::create_directories(output / "ckpt");
  std::ofstream(output / "ckpt" / "model") << "weights";
  daemon.show.mutable_experiment()->set_id("4");
  daemon.show.set_output_dir(output.string());
  CommandContext context;
  CHECK(type(declare_output, {"cp", "4", "../4/ckpt"}, context).error().code ==
        Code::InvalidArgument);
  CHECK(type(declare_output, {"cp", "4", "none"}, context).error().code == Code::NotFound);
  CHECK(type(declare_output, {"cp", "4", "--to", target.string()}, context).value() == 0);
  CHECK(fs::file_size(target / "ckpt" / "model") == 7);
  CHECK(type(declare_output, {"cp", "4", "ckpt", "--to", target.string()}, context).error().code ==
        Code::AlreadyExists);
  CHECK(type(declare_output, {"cp", "4", "ckpt", "--to", target.string(), "-f"}, context).value() ==
        0);
}

}  // namespace
}  // namespace dtrain::cli
