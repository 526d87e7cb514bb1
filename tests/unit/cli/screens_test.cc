// The smaller views beside train: the sync line, the plan, the monitor, waiting replicas, --since.
#include <doctest/doctest.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "cli/json_printer.h"
#include "cli/line_filter.h"
#include "cli/logs.h"
#include "cli/monitor.h"
#include "cli/plan_view.h"
#include "cli/spec_source.h"
#include "cli/sync_line.h"
#include "cli/sync_size.h"

using namespace dtrain;
using namespace dtrain::cli;

namespace {

pb::ReplicaUsage* add(pb::MonitorSample& sample, const std::string& id, const std::string& state) {
  pb::ReplicaUsage* usage = sample.add_replicas();
  usage->set_replica(id);
  usage->set_state(state);
  return usage;
}

pb::MonitorSample toaster() {
  pb::MonitorSample sample;
  sample.set_project("ai-toaster");
  pb::ReplicaUsage* created = add(sample, "4.worker.1", "CREATED");
  created->set_live(false);
  add(sample, "4.build.1", "FINISHED");
  pb::ReplicaUsage* master = add(sample, "4.master", "RUNNING");
  master->set_live(true);
  master->set_cpu_percent(262.2);
  master->set_memory_bytes(512ull << 20);
  master->set_host_memory_bytes(uint64_t(480.3 * (1u << 30)));
  pb::ReplicaUsage* ps = add(sample, "4.ps.1", "RUNNING");
  ps->set_live(false);
  return sample;
}

}  // namespace

TEST_CASE("the sync line is RiseML's, and silent about what takes no time") {
  SyncLine line({true, false, 80, 24}, 0);
  CHECK(line.reading(3, 1000, 500) == "");
  CHECK(line.sending(6, 5'976'883) == "Syncing project (5.7 MB, 6 files)...");
  CHECK(line.progress(1, 2, 900) == "");
  CHECK(line.done() == "done\n");
}

TEST_CASE("past one second a terminal gets a bar, a pipe does not") {
  SyncLine screen({true, false, 80, 24}, 0);
  CHECK(screen.reading(1024, 4096, 1500) ==
        "\r\x1b[KReading project...[#####...............]  25 % of 4.0 KB");
  CHECK(screen.sending(1, 2048) == "\r\x1b[KSyncing project (2.0 KB, 1 file)...");
  CHECK(screen.progress(1024, 2048, 1600) ==
        "\r\x1b[KSyncing project (2.0 KB, 1 file)...[##########..........]  50 % of 2.0 KB");
  CHECK(screen.progress(1025, 2048, 1601) == "");
  CHECK(screen.done() == "\r\x1b[KSyncing project (2.0 KB, 1 file)...done\n");
  SyncLine pipe({}, 0);
  CHECK(pipe.reading(1024, 4096, 1500) == "");
  CHECK(pipe.sending(1, 2048) == "Syncing project (2.0 KB, 1 file)...");
  CHECK(pipe.progress(1, 2, 9999) == "");
  CHECK(pipe.broken() == "\n");
}

TEST_CASE("on a narrow screen the bar shrinks, and the figures stay") {
  SyncLine line({true, false, 60, 24}, 0);
  line.sending(12, 300 << 20);
  CHECK(line.progress(108 << 20, 300 << 20, 1500) ==
        "\r\x1b[KSyncing project (300.0 MB, 12 files)...  36 % of 300.0 MB");
  SyncLine wider({true, false, 70, 24}, 0);
  wider.sending(12, 300 << 20);
  CHECK(wider.progress(108 << 20, 300 << 20, 1500) ==
        "\r\x1b[KSyncing project (300.0 MB, 12 files)...[###.......]  36 % of 300.0 MB");
}

TEST_CASE("a large project is named by what makes it large") {
  Config config;
  ProjectSize project;
  project.total_bytes = uint64_t{38} << 30;
  project.file_count = 12;
  project.largest = {{"data/", uint64_t{37} << 30}};
  CHECK(size_of_sync(project, config) == SyncSize::Ask);
  CHECK(what_is_large(project, config) == "data/ is 37.0 GB of 38.0 GB (from 1.0 GB on you are asked)");
  project.total_bytes = 1000;
  project.largest = {{"data/", 900}};
  CHECK(size_of_sync(project, config) == SyncSize::Fine);
  project.file_count = 1000;
  CHECK(size_of_sync(project, config) == SyncSize::Warn);
  CHECK(what_is_large(project, config) == "the project is 1000 B in 1000 files");
  config.sync_ask_bytes = 1000;
  CHECK(size_of_sync(project, config) == SyncSize::Ask);
  config.sync_ask_bytes = uint64_t{1} << 30;
  project.total_bytes = uint64_t{286} << 20;
  project.largest = {{"data/", uint64_t{200} << 20}};
  project.file_count = 20'005;
  CHECK(what_is_large(project, config) == "the project is 286.0 MB in 20005 files (from 20000 files on you are asked)");
}

TEST_CASE("the monitor's table: running first, builds left out, N/A where nothing is known") {
  CHECK(render_monitor(toaster(), nullptr, {}) ==
        "ID         PROJECT    STATE    CPU % MEM % MEM-Used / Total    GPU %  GPU-MEM % GPU-MEM "
        "Used/Total\n"
        "4.master   ai-toaster RUNNING  262   0.1   512 MiB / 480.3 GiB N/A    N/A       N/A / N/A\n"
        "4.ps.1     ai-toaster RUNNING  N/A   N/A   N/A / N/A           N/A    N/A       N/A / N/A\n"
        "4.worker.1 ai-toaster CREATED\n");
}

TEST_CASE("a narrow monitor drops the GPU columns, then PROJECT") {
  CHECK(render_monitor(toaster(), nullptr, {true, false, 80, 24}) ==
        "ID         PROJECT    STATE    CPU % MEM % MEM-Used / Total\n"
        "4.master   ai-toaster RUNNING  262   0.1   512 MiB / 480.3 GiB\n"
        "4.ps.1     ai-toaster RUNNING  N/A   N/A   N/A / N/A\n"
        "4.worker.1 ai-toaster CREATED\n");
  CHECK(render_monitor(toaster(), nullptr, {true, false, 52, 24}) ==
        "ID         STATE    CPU % MEM % MEM-Used / Total\n"
        "4.master   RUNNING  262   0.1   512 MiB / 480.3 GiB\n"
        "4.ps.1     RUNNING  N/A   N/A   N/A / N/A\n"
        "4.worker.1 CREATED\n");
  CHECK(render_monitor(toaster(), nullptr, {true, false, 41, 24}) ==
        "ID         CPU % MEM-Used / Total\n"
        "4.master   262   512 MiB / 480.3 GiB\n"
        "4.ps.1     N/A   N/A / N/A\n"
        "4.worker.1\n");
}

TEST_CASE("little memory is shown in MiB") {
  pb::MonitorSample sample;
  pb::ReplicaUsage* usage = add(sample, "4.train", "RUNNING");
  usage->set_live(true);
  usage->set_host_memory_bytes(4ull << 30);
  const auto used = [&](uint64_t bytes) {
    usage->set_memory_bytes(bytes);
    return render_monitor(sample, nullptr, {});
  };
  CHECK(used(7ull << 20).find("7 MiB / 4.0 GiB ") != std::string::npos);
  CHECK(used((1ull << 30) - 1).find("1.0 GiB / 4.0 GiB ") != std::string::npos);
}

TEST_CASE("above the table it says why nothing runs") {
  CHECK(render_reason(toaster(), {}) == "");
  pb::MonitorSample waits;
  waits.set_state("PENDING");
  waits.set_reason("needs 4 GPUs; free: 2");
  CHECK(render_reason(waits, {}) == "PENDING: needs 4 GPUs; free: 2\n");
  waits.set_state("KILLED");
  CHECK(render_reason(waits, {}) == "");
  waits.set_state("PENDING");
  CHECK(render_reason(waits, {true, false, 20, 24}) == "PENDING: needs 4 ...\n");
}

TEST_CASE("sparklines rise with the values") {
  CHECK(sparkline_of({0, 50, 100}, 100) == "▁▅█");
  CHECK(sparkline_of({}, 100) == "");
}

TEST_CASE("a GPU table below each replica") {
  pb::MonitorSample sample;
  pb::ReplicaUsage* usage = add(sample, "4.train", "RUNNING");
  usage->set_live(true);
  pb::GpuUsage* gpu = usage->add_gpus();
  gpu->set_index(1);
  gpu->set_name("H200");
  gpu->set_bus_id("0000:1b:00.0");
  gpu->set_utilization_percent(97);
  gpu->set_memory_used_bytes(3ull << 30);
  gpu->set_memory_total_bytes(139ull << 30);
  gpu->set_power_watts(412);
  gpu->set_power_limit_watts(700);
  gpu->set_temperature_c(55);
  add(sample, "4.ps.1", "RUNNING")->set_live(true);
  CHECK(render_gpus(sample, {}) ==
        "4.train RUNNING\n"
        "  ID  NAME  UTIL   MEM                  POWER        TEMP  BUS ID\n"
        "  1   H200  97 %   3.0 GiB / 139.0 GiB  412 / 700 W  55 C  0000:1b:00.0\n"
        "4.ps.1 RUNNING\n"
        "  has no GPUs\n");
}

TEST_CASE("--since reads ages and moments") {
  constexpr uint64_t kNow = 1504164226000;
  CHECK(*parse_since("10m", kNow) == kNow - 600'000);
  CHECK(*parse_since("2017-08-31T07:00:00Z", kNow) == 1504162800000);
  // A clock time lies behind, the day before where need be.
  for (const int by_s : {-3'600, 0, 60, 3'600, 12 * 3'600}) {
    const std::time_t then = static_cast<std::time_t>(kNow / 1000) + by_s;
    char clock[16];
    std::tm parts{};
    localtime_r(&then, &parts);
    std::strftime(clock, sizeof clock, "%H:%M:%S", &parts);
    CHECK(*parse_since(clock, kNow) == static_cast<uint64_t>(then - (by_s > 0 ? 24 * 3'600 : 0)) * 1000);
  }
  CHECK_FALSE(parse_since("yesterday", kNow).ok());
  CHECK_FALSE(parse_since("", kNow).ok());
}

TEST_CASE("logs say what has not started, and why") {
  pb::ShowReply shown;
  shown.mutable_experiment()->set_id("4");
  shown.mutable_experiment()->set_state("PENDING");
  shown.mutable_experiment()->set_reason("needs 4 GPUs");
  CHECK(not_started_text(shown, {}) == "4 has not started yet: PENDING: needs 4 GPUs\n");
  shown.mutable_experiment()->set_state("RUNNING");
  shown.add_replicas()->set_id("4.worker.1");
  shown.mutable_replicas(0)->set_state("CREATED");
  CHECK(not_started_text(shown, {}) == "Not started yet: 4.worker.1\n");
  CHECK(not_started_text(shown, *parse_id_pattern("4.ps")) == "");
}

TEST_CASE("an attempt that was never made is refused, naming the newest") {
  pb::ShowReply shown;
  shown.mutable_experiment()->set_id("4");
  CHECK(check_attempt(shown, {}, 1).error().message == "4 had no attempt yet");
  shown.mutable_experiment()->set_attempt(3);
  shown.add_replicas()->set_id("4.master");
  shown.mutable_replicas(0)->set_attempt(1);
  CHECK(check_attempt(shown, {}, 0).ok());
  CHECK(check_attempt(shown, {}, 3).ok());
  const auto refused = check_attempt(shown, *parse_id_pattern("4.master"), 2);
  CHECK(refused.error().code == Code::NotFound);
  CHECK(refused.error().message == "4.master had no attempt 2; its newest is 1");
  CHECK(refused.error().hint == "dtrain logs 4.master --attempt 1");

  pb::ShowReply set;
  set.mutable_experiment()->set_id("5");
  set.add_members()->set_attempt(2);
  CHECK(check_attempt(set, {}, 2).ok());
  CHECK_FALSE(check_attempt(set, {}, 3).ok());
}

TEST_CASE("a filter is a regular expression that survives any line") {
  auto filter = compile_filter("loss=[0-9.]+$");
  REQUIRE(filter.ok());
  CHECK(filter.value()("step 1 loss=0.25"));
  CHECK_FALSE(filter.value()("loss=x"));
  CHECK_FALSE(filter.value()({}));
  CHECK_FALSE(filter.value()(std::string(1 << 18, 'x')));
  auto broken = compile_filter("a(");
  REQUIRE_FALSE(broken.ok());
  CHECK(broken.error().code == Code::InvalidArgument);
}

TEST_CASE("a command line becomes the YAML a person would write") {
  CommandForm form;
  form.words = {"python", "train.py", "--note", "it's"};
  form.workers = 2;
  form.ps = 1;
  form.cpus = "0.5";
  auto source = spec_of_command(form, "/home/node/my project");
  REQUIRE(source.ok());
  CHECK(source->yaml ==
        "project: my-project\n"
        "train:\n"
        "  framework: tensorflow\n"
        "  resources: {cpus: 0.5}\n"
        "  tensorflow:\n"
        "    distributed: {worker: 2, ps: 1}\n"
        "  run: \"python train.py --note 'it'\\\\''s'\"\n");
  CHECK(parse_spec(source->yaml, {}).ok());
  form.words.clear();
  CHECK(spec_of_command(form, "/x").error().code == Code::InvalidArgument);
}

TEST_CASE("a command line is refused like the YAML it stands for, once and without lines") {
  const auto refusal = [](const CommandForm& form) {
    const auto source = spec_of_command(form, "/x");
    if (!source.ok()) return source.error().message;
    ParseOptions options;
    options.file_name = source->file_name;
    options.has_lines = source->is_file;
    const auto spec = parse_spec(source->yaml, options);
    return spec.ok() ? "accepted" : spec.error().message;
  };
  CommandForm form;
  form.words = {"true"};
  form.workers = 0;
  CHECK(
      refusal(form) ==
      "command line: train.tensorflow.distributed.worker: at least one worker is needed: without a "
      "chief the first one is the master");
  form.workers = 2;
  form.framework = "pytorch";
  CHECK(refusal(form) == "accepted");
  form.ps = 1;
  CHECK(refusal(form).find("PyTorch has no parameter servers of its own") != std::string::npos);
  form.ps = CommandForm::kLeftOut;
  form.framework = "mpi";
  CHECK(refusal(form) == "accepted");
  form.framework = "horovod";
  CHECK(refusal(form).find("train.framework: got 'horovod'") != std::string::npos);
  CHECK(refusal(form).find('\n') == std::string::npos);
  form.framework = "command";
  CHECK(refusal(form) == "--framework command has neither --workers nor --ps");
  form = {};
  form.gpus = 0;
  CHECK(form.is_given());
}

TEST_CASE("assignments have a name") {
  auto pairs = parse_assignments({"a=1", "b=x=y", "c="}, "-p");
  REQUIRE(pairs.ok());
  CHECK(pairs.value()[1] == std::pair<std::string, std::string>("b", "x=y"));
  CHECK(pairs.value()[2].second == "");
  CHECK_FALSE(parse_assignments({"learning-rate"}, "-p").ok());
  CHECK_FALSE(parse_assignments({"=1"}, "-p").ok());
  const auto example = [](const std::string& word, const char* option) {
    return parse_assignments({word}, option).error().hint;
  };
  CHECK(example("=", "--set") == "for example --set train.resources.cpus=2");
  CHECK(example("train.engine.batch", "--set") == "for example --set train.engine.batch=VALUE");
  CHECK(example("--json", "-p") == "for example -p learning-rate=0.1");
}

TEST_CASE("a parameter that is given twice is meant to have both values") {
  const auto refused = parse_assignments({"x=1", "y=2", "x=3"}, "-p");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message == "-p 'x' is given 2 times");
  CHECK(refused.error().hint == "a list of values is written -p 'x=[1,3]'");
  CHECK(parse_assignments({"x=[1,2]", "x=3"}, "-p").error().hint == "a list of values is written -p 'x=[A,B]'");
  CHECK(parse_assignments({"note=a", "note=b"}, "--set").ok());
}

TEST_CASE("JSON lines are whole objects whatever the bytes") {
  JsonPrinter printer;
  pb::LogChunk chunk;
  chunk.set_replica("4.train");
  chunk.set_attempt(1);
  chunk.set_time_unix_ms(1504164226000);
  chunk.set_data("a \"b\"\n\xff\nrest");
  printer.add(chunk, 0);
  printer.finish();
  CHECK(
      printer.output() ==
      R"({"type":"log","id":"4.train","attempt":1,"time":"2017-08-31T07:23:46.000Z","text":"a \"b\""})"
      "\n"
      R"({"type":"log","id":"4.train","attempt":1,"time":"2017-08-31T07:23:46.000Z","text":"�"})"
      "\n"
      R"({"type":"log","id":"4.train","attempt":1,"time":"2017-08-31T07:23:46.000Z","text":"rest"})"
      "\n");
}

TEST_CASE("in JSON too a line without an end stands before what follows the end of its replica") {
  JsonPrinter printer;
  pb::LogChunk chunk;
  chunk.set_replica("4.train");
  chunk.set_attempt(1);
  chunk.set_data("last words");
  printer.add(chunk, 0);
  pb::StateEvent event;
  event.set_id("4.train");
  event.set_attempt(1);
  event.set_state("RESTARTING");
  printer.add(event);
  const std::string& out = printer.output();
  CHECK_MESSAGE(out.find("last words") < out.find("RESTARTING"), out);
}

TEST_CASE("in JSON too a line carries the time of its first byte") {
  JsonPrinter printer;
  pb::LogChunk chunk;
  chunk.set_replica("4.train");
  for (const auto& [text, seconds] : {std::pair{"begin", 0}, {" end\nnext\n", 3}, {"la", 5}, {"st", 6}}) {
    chunk.set_time_unix_ms(1504164220000 + static_cast<uint64_t>(seconds) * 1000);
    chunk.set_data(text);
    printer.add(chunk, 0);
  }
  printer.finish();
  std::string seen;
  std::istringstream lines(printer.output());
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    seen += object["text"].get<std::string>() + " at " + object["time"].get<std::string>().substr(17, 2) + "; ";
  }
  CHECK(seen == "begin end at 40; next at 43; last at 45; ");
}

TEST_CASE("in JSON too the last words of a replica come before its end") {
  JsonPrinter printer;
  pb::LogChunk chunk;
  chunk.set_replica("4.train");
  chunk.set_data("last");
  printer.add(chunk, 0);
  pb::StateEvent event;
  event.set_id("4.train");
  event.set_state("FINISHED");
  printer.add(event);
  CHECK(printer.output().find("last") < printer.output().find("FINISHED"));
}

TEST_CASE("a plan shows each seat, or why it waits") {
  pb::PlanReply plan;
  pb::SeatInfo* seat = plan.add_seats();
  seat->set_replica("0.master");
  seat->set_host_name("box");
  seat->set_address("127.0.0.1");
  seat->set_port(20000);
  seat->set_cpus(0.5);
  seat->set_memory_bytes(1ull << 30);
  Spec spec;
  spec.project = "p";
  spec.roles.push_back({Role::Master, 1, {}, {"true"}, OnFailure::Fail});
  CHECK(render_plan(plan, spec, {}) ==
        "Project p, framework command, 1 process\n"
        "REPLICA     HOST     ADDRESS         CPUS MEM      GPUS RANK\n"
        "master      box      127.0.0.1:20000 0.5  1.0 GiB  -    0\n"
        "It would start at once. Nothing was submitted.\n");
  plan.set_notice("2 replicas ask for 3 cpus and share the 2 of box");
  CHECK(render_plan(plan, spec, {}).find("share the 2 of box\nIt would") != std::string::npos);
  CHECK(render_plan(plan, spec, {true, false, 40, 24}).find("at once. Nothing was\nsubmitted.\n") != std::string::npos);
  // The members of a set may have other roles and resources.
  spec.parameters = {{"rate", {"0.1", "0.2"}}};
  CHECK(render_plan(plan, spec, {}).starts_with(
      "Project p, framework command, 1 process; a set of 2, each placed like this one\n"));
  spec.source = "train: {resources: {cpus: [1, 2]}}";
  CHECK(render_plan(plan, spec, {}).starts_with(
      "Project p, framework command, 1 process; a set of 2, of which this is the first\n"));
}
