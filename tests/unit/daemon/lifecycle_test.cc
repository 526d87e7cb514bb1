// Plays the scripts of testdata/lifecycle: each is a story told in events, with the effects they had.
// A step is a line, `----`, and what it led to: rows saved, messages sent, states shown. Rewritten by
// DTRAIN_REWRITE_GOLDEN=1; read the diff.
//
//   host n1 [cpus=8] [gpus=0] [remote] [holds=1.master@1,...]   Hello
//   gone n1 | leaves n1 | contact n1 | time +30s
//   submit 1 ROLE[=COUNT][:ON-FAILURE]... [KEY=VALUE]...
//   kill 1 [force] [by=NAME]
//   prepared n1 1@1 [cached] | failed n1 1@1 [port=N] [user|unfit] REASON...
//   started|released 1.master@1...
//   exited 1.master@1 [code=N] [signal=N] [lost]
//   daemon restarts | output 1
//   quota anna|* [cpus=4] [gpus=2]
//   share anna|* WEIGHT
#include "daemon/lifecycle.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "schema/tensorboard.h"
namespace dtrain::daemon {

namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

struct Setting {
  std::string key, value;
};
Setting setting(const std::string& word) {
  const auto equals = word.find('=');
  if (equals == std::string::npos) return {word, ""};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

HeldReplicaFact fact_of(const std::string& word) {
  const auto at = word.find('@');
  const auto id = parse_replica_id(word.substr(0, at));
  REQUIRE_MESSAGE(id.ok(), word);
  return {*id, static_cast<uint32_t>(std::stoul(word.substr(at + 1)))};
}

// printed:fail, printed+75:restart, 75:exclude-host, silent=30:restart, any:fail
FailureRule rule_of(const std::string& text) {
  FailureRule rule;
  const auto colon = text.find(':');
  const std::string action = text.substr(colon + 1);
  rule.action = action == "restart" ? FailureAction::Restart : action == "exclude-host" ? FailureAction::ExcludeHost : FailureAction::Fail;
  std::string when = text.substr(0, colon);
  if (when.starts_with("printed")) {
    rule.printed = "x";
    when.erase(0, when.find('+') == std::string::npos ? when.size() : when.find('+') + 1);
  }
  if (when.starts_with("silent=")) rule.silent_for_ms = std::stoi(when.substr(7)) * 1000;
  else if (!when.empty() && when != "any") rule.exit_codes = {std::stoi(when)};
  return rule;
}

class Script {
 public:
  std::string run(const std::string& line);

 private:
  void happen(const Event& event) { tell(step(*model_, event, policy_, now_)); }
  void tell(Effects effects);
  void host(const std::vector<std::string>& words);
  void submit(const std::vector<std::string>& words);
  void failed(const std::vector<std::string>& words);
  void kill(const std::vector<std::string>& words);
  void quota(const std::vector<std::string>& words);
  void exited(const std::vector<std::string>& words);
  void restart();
  HostId holder_of(const HeldReplicaFact& fact) const;
  void pass_time(const std::string& by);

  const Policy policy_{};
  TimeMs now_ = 1'000'000;
  std::unique_ptr<Model> model_ = std::make_unique<Model>();
  std::vector<std::shared_ptr<const Submission>> submissions_;
  std::map<ExperimentId, Experiment> rows_;
  std::string out_;
};

std::string list_of(const std::vector<HeldReplicaFact>& facts) {
  std::string text;
  for (const auto& fact : facts) text += fmt::format(" {}@{}", to_string(fact.replica), fact.attempt);
  return text;
}

std::string text_of(const Send& send) {
  if (const auto* launch = std::get_if<SendLaunch>(&send)) {
    std::string text = fmt::format("Launch {}:", to_string(launch->id));
    for (const ReplicaId& id : launch->replicas) text += " " + to_string(id);
    return text;
  }
  if (const auto* start = std::get_if<SendStart>(&send)) {
    return fmt::format("Start {}", to_string(start->id));
  }
  if (const auto* stop = std::get_if<SendStop>(&send)) {
    return fmt::format("Stop{} within {} s: {}", list_of(stop->replicas), stop->grace_ms / 1000,
                       stop->reason);
  }
  return "Forget" + list_of(std::get<SendForget>(send).replicas);
}

void Script::tell(Effects effects) {
  std::string saved;
  for (const ExperimentId& id : effects.persist) {
    saved += " " + to_string(id);
    rows_[id] = model_->experiments.at(id);
  }
  if (!saved.empty()) out_ += "save" + saved + "\n";
  for (const Send& send : effects.send) {
    const HostId& to = std::visit([](const auto& any) -> const HostId& { return any.host; }, send);
    out_ += fmt::format("to {}: {}\n", model_->hosts.at(to).name, text_of(send));
  }
  for (const StateChange& change : effects.notify) {
    out_ += fmt::format("{} --> {}", change.replica ? to_string(*change.replica) : to_string(change.experiment),
                        to_string(change.state));
    if (change.exit_code) out_ += fmt::format(" ({})", *change.exit_code);
    if (change.printer) out_ += fmt::format(" (words of {})", to_string(*change.printer));
    out_ += (change.reason.empty() ? "" : ": " + change.reason) + "\n";
  }
}

void Script::host(const std::vector<std::string>& words) {
  Host host;
  host.name = words.at(1);
  host.id.hex = words.at(1);
  host.address = "address-of-" + host.name;
  host.same_machine = true;
  host.cpus = 8;
  host.memory_bytes = uint64_t{64} << 30;
  std::vector<HeldReplicaFact> held;
  for (size_t i = 2; i < words.size(); ++i) {
    const auto [key, value] = setting(words[i]);
    if (key == "remote") host.same_machine = false;
    else if (key == "cpus") host.cpus = std::stod(value);
    else if (key == "gpus") for (int g = 0; g < std::stoi(value); ++g) host.gpus.push_back({g, "gpu", ""});
    else if (key == "holds") {
      std::istringstream in(value);
      for (std::string fact; std::getline(in, fact, ',');) held.push_back(fact_of(fact));
    } else FAIL("host: " << words[i]);
  }
  happen(HostConnected{host, held});
}

void Script::submit(const std::vector<std::string>& words) {
  auto submission = std::make_shared<Submission>();
  submission->number = static_cast<uint32_t>(std::stoul(words.at(1)));
  Spec& spec = submission->spec;
  spec.project = "story";
  spec.framework = Framework::Tensorflow;
  for (size_t i = 2; i < words.size(); ++i) {
    const auto [key, value] = setting(words[i]);
    const auto colon = words[i].find(':');
    const std::string role_word = words[i].substr(0, std::min(words[i].find('='), colon));
    if (const auto role = parse_role(role_word)) {
      RoleSpec made;
      made.role = *role;
      if (!value.empty()) made.count = std::stoi(value);
      if (colon != std::string::npos) {
        const std::string rule = words[i].substr(colon + 1);
        made.on_failure = rule == "restart"             ? OnFailure::Restart
                          : rule == "restart-on-signal" ? OnFailure::RestartOnSignal
                          : rule == "ignore"            ? OnFailure::Ignore
                                                        : OnFailure::Fail;
      }
      spec.roles.push_back(made);
    } else if (key == "gpus") for (RoleSpec& role_spec : spec.roles) role_spec.resources.gpus = std::stoi(value);
    else if (key == "cpus") for (RoleSpec& role_spec : spec.roles) role_spec.resources.cpus = std::stod(value);
    else if (key == "suspend") spec.suspend = true;
    else if (key == "preemptible") spec.preemptible = true;
    else if (key == "after") spec.after.push_back(*parse_experiment_id(value));
    else if (key == "after-end") spec.after_end.push_back(*parse_experiment_id(value));
    else if (key == "per-host") {
      for (RoleSpec& role_spec : spec.roles) role_spec.per_host = std::stoi(value);
    }
    else if (key == "elastic") spec.elastic = Elastic{std::stoi(value)};
    else if (key == "rule") spec.failure_policy.push_back(rule_of(value));
    else if (key == "restart") spec.restart.limit = std::stoi(value);
    else if (key == "max-duration") spec.max_duration_ms = std::stoi(value) * 1000;
    else if (key == "max-away") spec.max_away_ms = std::stoi(value) * 1000;
    else if (key == "engine") {   // =sync, or another mode
      spec.framework = Framework::Engine;
      spec.engine.in_step = value == "sync";
    }
    else if (key == "completion") spec.completion = Completion::AllWorkers;
    else if (key == "stop-grace") spec.stop_grace_ms = std::stoi(value) * 1000;
    else if (key == "board") spec.roles.push_back(tensorboard_role());
    else if (key == "install") spec.install = {"pip install x"};
    else if (key == "user") submission->user = value;
    else if (key == "priority") spec.priority = std::stoi(value);
    else if (key == "concurrency") spec.concurrency = std::stoi(value);
    else if (key == "max-failed") spec.search.max_failed = std::stoi(value);
    else if (key == "stop-early") {   // =3x2: after 3 epochs, and twice as many
      spec.search.metric = "loss";
      spec.search.stop_early = StopEarly{std::stoi(value), std::stoi(value.substr(value.find('x') + 1)), "epoch"};
    }
    else if (key == "members") {
      Parameter parameter{"p", {}};
      for (int n = 1; n <= std::stoi(value); ++n) parameter.values.push_back(std::to_string(n));
      spec.parameters.push_back(parameter);
    } else FAIL("submit: " << words[i]);
  }
  submission->shapes = shapes_of(spec);
  submissions_.push_back(submission);
  happen(Submitted{submission});
}

void Script::failed(const std::vector<std::string>& words) {
  LaunchFailed event;
  event.host.hex = words.at(1);
  event.launch = *parse_launch_id(words.at(2));
  for (size_t i = 3; i < words.size(); ++i) {
    const auto [key, value] = setting(words[i]);
    if (key == "port" && !value.empty()) event.port_taken = std::stoi(value);
    else if (key == "user") event.ours = false;
    else if (key == "unfit") event.unfit = true;
    else event.reason += (event.reason.empty() ? "" : " ") + words[i];
  }
  happen(event);
}

void Script::quota(const std::vector<std::string>& words) {
  Quota quota;
  if (words.at(1) != "*") quota.user = words[1];
  for (size_t i = 2; i < words.size(); ++i) {
    const auto [key, value] = setting(words[i]);
    if (key == "gpus") quota.gpus = std::stoi(value);
    else quota.cpus = std::stod(value);
  }
  model_->quotas.push_back(quota);
}

void Script::exited(const std::vector<std::string>& words) {
  const HeldReplicaFact fact = fact_of(words.at(1));
  Exit exit;
  for (size_t i = 2; i < words.size(); ++i) {
    const auto [key, value] = setting(words[i]);
    if (key == "code") exit.code = std::stoi(value);
    if (key == "signal") exit.signal = std::stoi(value);
    if (key == "lost") exit.lost_keeper = true;
    if (key == "printed") exit.printed.emplace_back(std::stoi(value), "a line that fits rule " + value);
    if (key == "ended-for-line") exit.ended_for_line = true;
  }
  happen(ReplicaExited{fact.replica, fact.attempt, exit, holder_of(fact)});
}

// Who can say something of it: of a stray who holds it, else who has its seat.
HostId Script::holder_of(const HeldReplicaFact& fact) const {
  for (const auto& [id, host] : model_->hosts) {
    if (host.strays.contains(fact)) return id;
  }
  const auto experiment = model_->experiments.find(fact.replica.experiment);
  if (experiment == model_->experiments.end()) return {};
  for (const Replica& replica : experiment->second.replicas) {
    if (replica.id == fact.replica) return replica.seat.host;
  }
  return {};
}

// Only what was saved survives.
void Script::restart() {
  const std::vector<Quota> quotas = model_->quotas;
  const std::vector<Weight> fair_share = model_->fair_share;
  const auto revoked = model_->revoked;
  model_ = std::make_unique<Model>();
  model_->quotas = quotas;
  model_->fair_share = fair_share;
  model_->revoked = revoked;
  for (const auto& submission : submissions_) {
    const uint32_t last = submission->last_member();
    for (uint32_t member = submission->first_member(); member <= last; ++member) {
      Experiment experiment = first_state(submission, member);
      model_->experiments.emplace(experiment.id, std::move(experiment));
    }
  }
  for (const auto& [id, row] : rows_) model_->experiments.insert_or_assign(id, row);
  rebuild(*model_, now_);
}

void Script::pass_time(const std::string& by) {
  const TimeMs until = now_ + std::stoll(by.substr(1)) * 1000;
  while (!model_->deadlines.empty() && model_->deadlines.begin()->first <= until) {
    now_ = std::max(now_, model_->deadlines.begin()->first);
    happen(Tick{});
    if (model_->place_wanted) tell(place_pending(*model_, policy_, now_));
  }
  now_ = until;
}

void Script::kill(const std::vector<std::string>& words) {
  KillWanted event{*parse_experiment_id(words.at(1))};
  for (size_t i = 2; i < words.size(); ++i) {
    const auto [key, value] = setting(words[i]);
    if (key == "by") event.by = value;
    else event.force = true;
  }
  happen(event);
}

std::string Script::run(const std::string& line) {
  out_.clear();
  const std::vector<std::string> words = words_of(line);
  const std::string& verb = words.at(0);
  if (verb == "host") host(words);
  else if (verb == "gone") happen(HostDisconnected{{words.at(1)}});
  else if (verb == "leaves") happen(HostLeaves{{words.at(1)}, "it is lent no longer"});
  else if (verb == "revoked") happen(HostRevoked{{words.at(1)}});
  else if (verb == "contact") happen(HostContact{{words.at(1)}});
  else if (verb == "time") pass_time(words.at(1));
  else if (verb == "submit") submit(words);
  else if (verb == "kill") kill(words);
  else if (verb == "suspend" || verb == "resume") happen(SuspendWanted{*parse_experiment_id(words.at(1)), verb == "suspend"});
  else if (verb == "failed") failed(words);
  else if (verb == "exited") exited(words);
  else if (verb == "quota") quota(words);
  else if (verb == "share") model_->fair_share.push_back({words.at(1) == "*" ? "" : words[1], std::stod(words.at(2))});
  else if (verb == "output") happen(OutputCame{*parse_experiment_id(words.at(1))});
  else if (verb == "rung") {
    happen(RungReached{*parse_experiment_id(words.at(1)), static_cast<uint32_t>(std::stoul(words.at(2))), std::stod(words.at(3))});
  }
  else if (verb == "daemon") restart();
  else if (verb == "prepared") {
    happen(LaunchPrepared{{words.at(1)}, *parse_launch_id(words.at(2)), words.size() > 3 && words[3] == "cached"});
  } else if (verb == "started" || verb == "released") {
    for (size_t i = 1; i < words.size(); ++i) {
      const HeldReplicaFact fact = fact_of(words[i]);
      const HostId holder = holder_of(fact);
      if (verb == "started")
        happen(ReplicaStarted{fact.replica, fact.attempt, 100 + i, 1, holder});
      else
        happen(ReplicaReleased{fact.replica, fact.attempt, "", holder});
    }
  } else FAIL("unknown: " << line);
  if (model_->place_wanted) tell(place_pending(*model_, policy_, now_));
  return out_;
}

// The script again, with the effects it has now.
std::string replay(const std::string& text) {
  Script script;
  std::istringstream in(text);
  std::string made;
  bool in_output = false;
  for (std::string line; std::getline(in, line);) {
    if (in_output && !line.empty()) continue;
    if (in_output) in_output = false;
    if (line.empty() || line[0] == '#') {
      made += line + "\n";
    } else if (line == "----") {
      in_output = true;
    } else {
      made += line + "\n----\n" + script.run(line);
    }
  }
  return made;
}

}  // namespace

TEST_CASE("lifecycle scripts") {
  int played = 0;
  for (const auto& file : std::filesystem::directory_iterator(TESTDATA "/lifecycle")) {
    CAPTURE(file.path().string());
    std::ifstream in(file.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::string made = replay(text);
    if (std::getenv("DTRAIN_REWRITE_GOLDEN") != nullptr) {
      std::ofstream(file.path()) << made;
    } else {
      CHECK_MESSAGE(made == text, made);
    }
    ++played;
  }
  CHECK(played >= 15);
}

TEST_CASE("a start that fails for ever is tried for ever, at last about once a minute") {
  const Policy policy;
  Model model;
  Host host;
  host.id.hex = host.name = "n1";
  host.cpus = 8;
  host.memory_bytes = uint64_t{64} << 30;
  auto submission = std::make_shared<Submission>();
  submission->number = 1;
  submission->spec.roles.push_back({Role::Train, 1, {}, {"x"}, OnFailure::Fail});
  TimeMs now = 1'000;
  step(model, HostConnected{host, {}}, policy, now);
  step(model, Submitted{submission}, policy, now);
  place_pending(model, policy, now);
  const Experiment& experiment = model.experiments.at({1, 0});
  std::vector<int64_t> waits_s;
  for (uint32_t attempt = 1; attempt <= 30; ++attempt) {
    REQUIRE(experiment.attempt == attempt);
    step(model, LaunchFailed{host.id, {{1, 0}, attempt}, "the disk is full", 0, true}, policy, now);
    waits_s.push_back((experiment.not_before_ms - now) / 1000);
    now = experiment.not_before_ms;
    step(model, Tick{}, policy, now);
    place_pending(model, policy, now);
  }
  CHECK(waits_s == std::vector<int64_t>{1,  1,  1,  2,  2,  2,  4,  4,  4,  8,  8,  8,  16, 16, 16,
                                        32, 32, 32, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64});
  CHECK(experiment.excluded_hosts.size() == 1);
  CHECK_FALSE(experiment.outcome);
}

}  // namespace dtrain::daemon
