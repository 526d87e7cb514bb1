#include "daemon/client_api.h"

#include <optional>

#include "tests/integration/daemon/served_daemon.h"

namespace dtrain::daemon {
namespace {

TEST_CASE("kill is answered once it is on disk, or that it can't be") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  const auto stub = pb::Client::NewStub(daemon.channel);
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  REQUIRE(daemon.scheduler.submit(a_submission("a"), {}).ok());
  daemon.scheduler.handle(HostDisconnected{a_host().id});
  daemon.loop.poll();

  grpc::ClientContext kill_call, info_call, list_call;
  pb::ListRequest what;
  pb::ListReply list;
  pb::KillRequest kill;
  pb::KillReply killed;
  kill.add_ids("1");
  pb::InfoRequest ask;
  pb::InfoReply info;
  bool informed = false;
  std::optional<grpc::Status> answer;
  {
    FullDisk full;
    stub->async()->Kill(&kill_call, &kill, &killed, [&](const grpc::Status& status) {
      boost::asio::post(daemon.loop, [&, status] { answer = status; });
    });
    daemon.until([&] { return answer.has_value(); });
    CHECK(daemon.scheduler.model().live.empty());
    CHECK(answer->error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    CHECK_MESSAGE(answer->error_message().starts_with(
                      "the processes of 1 are being ended, but that can't be written down: database "),
                  answer->error_message());
    // A later call is answered meanwhile.
    stub->async()->Info(&info_call, &ask, &info, [&](const grpc::Status&) {
      boost::asio::post(daemon.loop, [&] { informed = true; });
    });
    daemon.until([&] { return informed; });
    CHECK(info.trouble().find("the daemon can't write") == 0);
    CHECK(info.experiments_live() == 1);
    // And what was decided is not shown before it is done.
    bool listed = false;
    stub->async()->List(&list_call, &what, &list, [&](const grpc::Status&) {
      boost::asio::post(daemon.loop, [&] { listed = true; });
    });
    daemon.until([&] { return listed; });
    REQUIRE(list.experiments_size() == 1);
    CHECK(list.experiments(0).state() == "PENDING");
  }
  // It tries again by itself.
  daemon.until([&] { return daemon.scheduler.trouble().empty(); });
  const auto rows = daemon.store->experiments(1);
  REQUIRE(rows.ok());
  REQUIRE(rows->size() == 1);
  CHECK(rows->at(0).record.over());
}

TEST_CASE("a kill of more than anybody means keeps nobody waiting") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  const auto stub = pb::Client::NewStub(daemon.channel);
  pb::KillRequest request;
  for (int i = 0; i < 200'000; ++i) request.add_ids("1");
  grpc::Status status;
  bool done = false;
  std::thread caller([&] {
    grpc::ClientContext context;
    pb::KillReply reply;
    status = stub->Kill(&context, request, &reply);
    boost::asio::post(daemon.loop, [&] { done = true; });
  });
  daemon.until([&] { return done; });
  caller.join();
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK_MESSAGE(status.error_message().find("200000 IDs are more than 10000 at once") != std::string::npos, status.error_message());
}

TEST_CASE("an end of everything that the disk can't take is refused at once, and the daemon stays") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  bool stopped = false;
  daemon.client_api.on_stop = [&] { stopped = true; };
  daemon.scheduler.on_turn = [&] { daemon.client_api.after_turn(); };
  const auto stub = pb::Client::NewStub(daemon.channel);
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  REQUIRE(daemon.scheduler.submit(a_submission("a"), {}).ok());
  daemon.scheduler.handle(HostDisconnected{a_host().id});
  daemon.loop.poll();
  std::optional<grpc::Status> answer;
  grpc::ClientContext call, again_call;
  pb::ShutdownRequest request;
  pb::ShutdownReply reply;
  request.set_kill(true);
  const auto take = [&](const grpc::Status& status) {
    boost::asio::post(daemon.loop, [&, status] { answer = status; });
  };
  {
    const FullDisk full;
    stub->async()->Shutdown(&call, &request, &reply, take);
    daemon.until([&] { return answer.has_value(); });
    CHECK(answer->error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    CHECK_MESSAGE(answer->error_message().starts_with("the daemon can't write: "), answer->error_message());
    CHECK(!stopped);
  }
  answer.reset();
  daemon.until([&] { return daemon.scheduler.trouble().empty(); });
  CHECK(!stopped);
  stub->async()->Shutdown(&again_call, &request, &reply, take);
  daemon.until([&] { return answer.has_value(); });
  REQUIRE_MESSAGE(answer->ok(), answer->error_message());
  daemon.until([&] { return stopped; });
}

TEST_CASE("members with many metrics come in pages that are whole together") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  const auto stub = pb::Client::NewStub(daemon.channel);
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  Submission submission = a_submission("set");
  submission.spec_yaml =
      "project: testing\ntrain:\n  resources: {cpus: 2, mem: 64}\n  concurrency: 1\n"
      "  parameters: {n: {range: {min: 1, max: 600, step: 1}}}\n  run: 'true'\n  metrics:\n";
  for (int i = 0; i < 64; ++i) submission.spec_yaml += fmt::format("    - m{}\n", i);
  submission.spec = parse_spec(submission.spec_yaml, {}).value();
  REQUIRE(daemon.scheduler.submit(std::move(submission), {}).ok());
  daemon.loop.poll();

  const auto show = [&](uint32_t from) {
    grpc::ClientContext call;
    pb::ShowRequest request;
    request.set_id("1");
    request.set_members_from(from);
    pb::ShowReply reply;
    bool answered = false;
    stub->async()->Show(&call, &request, &reply, [&](const grpc::Status& status) {
      boost::asio::post(daemon.loop, [&, good = status.ok()] { answered = good; });
    });
    daemon.until([&] { return answered; });
    return reply;
  };
  CHECK(show(0).members_size() == 250);
  CHECK(show(0).members_left_out() == 350);
  std::vector<std::string> ids;
  uint32_t from = 1;
  for (const int size : {250, 250, 100}) {
    const pb::ShowReply page = show(from);
    REQUIRE(page.members_size() == size);
    from += static_cast<uint32_t>(size);
    CHECK(page.members_left_out() == 601 - from);
    for (const auto& member : page.members()) ids.push_back(member.id());
  }
  CHECK(ids.front() == "1.1");
  CHECK(ids.back() == "1.600");
  CHECK(show(601).members().empty());
}

TEST_CASE("what is stored of one experiment and can't be read hides no other") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  const auto stub = pb::Client::NewStub(daemon.channel);
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  Submission newer = a_submission("newer");
  newer.spec_yaml = "train: {run: 'true', a-key-of-tomorrow: 1}\n";
  REQUIRE(daemon.store->add_submission(newer, {}).ok());
  REQUIRE(daemon.store->close_submission(1).ok());
  REQUIRE(daemon.scheduler.submit(a_submission("a"), {}).ok());
  daemon.loop.poll();

  grpc::ClientContext list_call, show_call;
  pb::ListRequest all;
  all.set_all(true);
  pb::ListReply list;
  bool listed = false;
  stub->async()->List(&list_call, &all, &list, [&](const grpc::Status& status) {
    boost::asio::post(daemon.loop, [&, good = status.ok()] { listed = good; });
  });
  daemon.until([&] { return listed; });
  REQUIRE(list.experiments_size() == 2);
  CHECK(list.experiments(0).id() == "1");
  CHECK(list.experiments(0).state() == "UNREADABLE");
  CHECK_MESSAGE(list.experiments(0).reason().find("a-key-of-tomorrow") != std::string::npos,
                list.experiments(0).reason());
  CHECK(list.experiments(1).id() == "2");
  pb::ShowRequest request;
  request.set_id("1");
  pb::ShowReply reply;
  std::optional<grpc::Status> shown;
  stub->async()->Show(&show_call, &request, &reply, [&](const grpc::Status& status) {
    boost::asio::post(daemon.loop, [&, status] { shown = status; });
  });
  daemon.until([&] { return shown.has_value(); });
  CHECK(shown->error_message().starts_with("experiment 1 is stored, but this dtrain can't read it: "));
}

TEST_CASE("what can't be read is in the list of what lives, until it is killed") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  leave_unreadable(home, {"a", "b"});
  ServedDaemon daemon(home);
  const auto stub = pb::Client::NewStub(daemon.channel);
  const auto listed = [&] {
    grpc::ClientContext call;
    pb::ListRequest request;
    pb::ListReply list;
    bool done = false;
    stub->async()->List(&call, &request, &list, [&](const grpc::Status& status) {
      boost::asio::post(daemon.loop, [&, good = status.ok()] { done = good; });
    });
    daemon.until([&] { return done; });
    std::string text;
    for (const auto& each : list.experiments()) text += each.id() + " " + each.state() + "\n";
    return text;
  };
  CHECK(listed() == "1 UNREADABLE\n2 STARTING\n");
  grpc::ClientContext call;
  pb::KillRequest request;
  request.add_ids("1");
  pb::KillReply reply;
  bool killed = false;
  stub->async()->Kill(&call, &request, &reply, [&](const grpc::Status& status) {
    boost::asio::post(daemon.loop, [&, good = status.ok()] { killed = good; });
  });
  daemon.until([&] { return killed; });
  CHECK(reply.items(0).message().find("given up") != std::string::npos);
  CHECK(listed() == "2 STARTING\n");
}

TEST_CASE("a list of any length comes in replies that fit a message each") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  const auto stub = pb::Client::NewStub(daemon.channel);
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  constexpr int kExperiments = 30;
  const std::string note(7'000, 'n');
  const std::string project(60'000, 'd');
  for (int i = 0; i < kExperiments; ++i) {
    Submission submission = a_submission(fmt::format("{}", i));
    submission.spec.note = note;
    submission.project_dir = "/" + project;
    REQUIRE(daemon.scheduler.submit(std::move(submission), {}).ok());
  }
  daemon.loop.poll();

  for (const bool all : {false, true}) {
    pb::ListRequest request;
    request.set_all(all);
    std::vector<std::string> ids;
    int replies = 0;
    do {
      grpc::ClientContext call;
      pb::ListReply reply;
      bool answered = false;
      stub->async()->List(&call, &request, &reply, [&](const grpc::Status& status) {
        boost::asio::post(daemon.loop, [&, good = status.ok()] { answered = good; });
      });
      daemon.until([&] { return answered; });
      CHECK(reply.ByteSizeLong() < kMessageBytesMax);
      for (const auto& info : reply.experiments()) {
        ids.push_back(info.id());
        CHECK(info.note() == note.substr(0, 200) + "...");
      }
      request.set_from(reply.next());
      ++replies;
    } while (request.from() != 0);
    CHECK(replies > 1);
    REQUIRE(ids.size() == kExperiments);
    for (int i = 0; i < kExperiments; ++i) CHECK(ids[static_cast<size_t>(i)] == std::to_string(i + 1));
  }
}

}  // namespace
}  // namespace dtrain::daemon
