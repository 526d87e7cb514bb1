#include "cli/kubeflow_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "cli/connection.h"
#include "cli/submit.h"
#include "schema/kubeflow_elastic.h"
#include "schema/quote.h"

namespace dtrain::cli {

namespace {

// Whether somebody decides who is none of the workers.
bool has_own_decider(const Spec& spec) {
  const Role role = spec.decider().role;
  if (spec.framework != Framework::Pytorch) return role == Role::Chief || role == Role::Launcher;
  Spec lines = spec;
  return spec.completion != Completion::AllWorkers && !take_elastic_lines(lines).is_given;
}

// "mnist-4" apart: a job, and an experiment.
std::optional<KubeflowName> experiment_called(std::string_view text) {
  const size_t dash = text.rfind('-');
  if (dash == std::string_view::npos || dash == 0) return std::nullopt;
  const auto id = parse_experiment_id(text.substr(dash + 1));
  if (!id.ok()) return std::nullopt;
  return KubeflowName{std::string(text.substr(0, dash)), *id, ""};
}

// Where "-worker-0" begins; npos: it does not end so.
size_t replica_begin(std::string_view text) {
  constexpr std::array<std::string_view, 6> kWords = {"master", "chief", "launcher", "worker", "ps", "evaluator"};
  const size_t dash = text.rfind('-');
  if (dash == std::string_view::npos || dash == 0 || dash + 1 == text.size()) return std::string_view::npos;
  if (text.find_first_not_of("0123456789", dash + 1) != std::string_view::npos) return std::string_view::npos;
  const size_t begin = text.rfind('-', dash - 1);
  if (begin == std::string_view::npos) return begin;
  const std::string_view word = text.substr(begin + 1, dash - begin - 1);
  return std::ranges::find(kWords, word) == kWords.end() ? std::string_view::npos : begin;
}

// All replicas of a Spec.
std::vector<ReplicaId> replicas_of(const Spec& spec, const ExperimentId& experiment) {
  std::vector<ReplicaId> all;
  for (const RoleSpec& role : spec.roles) {
    if (!is_numbered(role.role)) all.push_back({experiment, role.role, 0});
    for (int i = 1; is_numbered(role.role) && i <= role.count; ++i) all.push_back({experiment, role.role, static_cast<uint32_t>(i)});
  }
  return all;
}

std::optional<Error> lacking_number(const std::string& text, Connection& connection) {
  pb::ListRequest request;
  request.set_all(true);
  const auto all = connection.list(request);
  return all.ok() ? lacks_number(text, *all) : std::nullopt;
}

// What may be the name of a job: no ID, range, port or path.
bool may_be_job(const std::string& text) {
  const bool letter = !text.empty() && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
  return letter && text.find('/') == std::string::npos && !parse_id_pattern(text).ok();
}

// The experiment in question is asked for; of several meanings the first that is right counts, or else is complained of.
Result<std::string> resolved(const std::string& text, Connection& connection) {
  std::optional<Error> wrong;
  for (const KubeflowName& name : meanings_of(text)) {
    pb::ShowRequest request;
    request.set_id(to_string(name.experiment));
    auto shown = connection.show(request);
    auto id = shown.ok() ? id_of(name, *shown) : Result<std::string>(std::move(shown).error());
    if (id.ok()) return id;
    if (!wrong) wrong = std::move(id).error();
  }
  if (auto lacking = lacking_number(text, connection)) return std::move(*lacking);
  return *wrong;
}

}  // namespace

std::string kubeflow_name(const pb::ExperimentInfo& info) {
  return fmt::format("{}-{}", info.name().empty() ? info.project() : info.name(), info.id());
}

std::string kubeflow_replica(const Spec& spec, const ReplicaId& id) {
  const bool own = has_own_decider(spec);
  switch (id.role) {
    case Role::Chief:
      return spec.tensorflow.chief_task + "-0";
    case Role::Launcher:
      return "launcher-0";
    case Role::Train:
    case Role::Master:
      return own ? "master-0" : "worker-0";
    case Role::Worker:
      return fmt::format("worker-{}", own ? id.index - 1 : id.index);
    case Role::Ps:
    case Role::Evaluator:
      return fmt::format("{}-{}", to_string(id.role), id.index - 1);
    case Role::Build:
    case Role::Tensorboard:
      break;
  }
  return "";
}

std::vector<KubeflowName> meanings_of(std::string_view text) {
  std::vector<KubeflowName> all;
  if (text.find_first_not_of("0123456789.-") == std::string_view::npos) return all;   // 4-9 are several
  if (const size_t begin = replica_begin(text); begin != std::string_view::npos) {
    if (auto name = experiment_called(text.substr(0, begin))) {
      name->replica = text.substr(begin + 1);
      all.push_back(std::move(*name));
    }
  }
  if (auto name = experiment_called(text)) all.push_back(std::move(*name));
  return all;
}

std::optional<Error> lacks_number(std::string_view text, const pb::ListReply& all) {
  const size_t begin = replica_begin(text);
  for (const std::string_view job : {text, text.substr(0, std::min(begin, text.size()))}) {
    const pb::ExperimentInfo* newest = nullptr;
    for (const pb::ExperimentInfo& info : all.experiments()) {   // in order
      const auto id = parse_experiment_id(info.id());
      if (id.ok() && id->member == 0 && (info.name().empty() ? info.project() : info.name()) == job) newest = &info;
    }
    if (newest == nullptr) continue;
    const std::string_view replica = text.substr(job.size());   // "-worker-0"
    return Error{Code::InvalidArgument, fmt::format("{} may be of several experiments, and lacks the number of one", in_quotes(as_utf8(std::string(text)))),
                 fmt::format("the newest that is called so is {}: {}{}", newest->id(), kubeflow_name(*newest), replica)};
  }
  return std::nullopt;
}

Result<std::string> id_of(const KubeflowName& name, const pb::ShowReply& shown) {
  const std::string id = to_string(name.experiment), called = kubeflow_name(shown.experiment());
  if (called != fmt::format("{}-{}", name.job, id)) {
    return Error{Code::InvalidArgument, fmt::format("experiment {} is {}, not {}", id, in_quotes(called), in_quotes(fmt::format("{}-{}", name.job, id))),
                 "dtrain status -a --kubeflow lists names; an ID such as 4 or 4.worker.1 does as well"};
  }
  if (name.replica.empty()) return id;
  TRY(const Spec spec, parse_spec(shown.spec_yaml(), {}));
  std::string others;
  for (const ReplicaId& replica : replicas_of(spec, name.experiment)) {
    const std::string word = kubeflow_replica(spec, replica);
    if (word == name.replica) return to_string(replica);
    constexpr size_t kMostLetters = 200;
    if (!word.empty() && others.size() < kMostLetters) others += (others.empty() ? "" : ", ") + word;
  }
  return Error{Code::InvalidArgument, fmt::format("{} has no {}", called, name.replica), "it has: " + others};
}

// A role is no user: "worker.1" lacks its experiment.
std::string without_user(const std::string& text, std::string_view me) {
  const size_t begin = text.starts_with('.') ? 1 : 0;
  for (size_t dot = text.find('.', begin); dot != std::string::npos; dot = text.find('.', dot + 1)) {
    const std::string_view user = std::string_view(text).substr(begin, dot - begin), id = std::string_view(text).substr(dot + 1);
    if (user.find_first_not_of("0123456789") == std::string_view::npos || parse_role(user) || user.find('/') != std::string_view::npos) return text;
    if (parse_id_pattern(id).ok()) return begin == 1 || user == me ? std::string(id) : text;
  }
  return text;
}

Status replace_names(std::string& typed, const CommandContext& context) {
  std::optional<Connection> connection;
  std::string ids;
  for (size_t at = 0; at <= typed.size();) {
    const size_t end = std::min(typed.find(',', at), typed.size());
    std::string text = typed.substr(at, end - at);
    if (meanings_of(text).empty()) {
      text = without_user(text, user_name());
      if (may_be_job(text)) {
        auto reached = connect(Autostart::No, context);
        auto lacking = reached.ok() ? lacking_number(text, *reached) : std::nullopt;
        if (lacking) return std::move(*lacking);
      }
    } else {
      if (!connection) {
        TRY(connection, connect(Autostart::IfNeeded, context));
      }
      TRY(text, resolved(text, *connection));
    }
    ids += (at == 0 ? "" : ",") + text;
    at = end + 1;
  }
  typed = std::move(ids);
  return ok();
}

}  // namespace dtrain::cli
