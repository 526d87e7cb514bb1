// What hosts are told.
#include <algorithm>
#include <fstream>
#include <utility>

#include "daemon/configuration_file.h"
#include "daemon/outgoing_messages.h"
#include "daemon/scheduler.h"
#include "schema/expand.h"
#include "schema/quote.h"
#include "schema/version.h"

namespace dtrain::daemon {

namespace {

// And in it what ran, for whoever finds the results later.
Status make_output_dir(const Experiment& experiment, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return errno_error(fmt::format("create {}", folder.string()), error.value());
  if (!experiment.is_shared()) {
    std::ofstream(folder / kConfigurationFile)
        << to_yaml(member_spec(experiment.submission->spec, experiment.id.member));
  }
  return ok();
}

// Links of this machine mean nothing to others.
std::filesystem::path without_links(const std::filesystem::path& folder) {
  if (folder.empty()) return folder;
  std::error_code error;
  auto path = std::filesystem::canonical(folder, error);
  return error ? folder : path;
}

}  // namespace

// Meant for an earlier stream of the host: what is still true of it, the Hello brings up again.
void Scheduler::drop_sends_to(const HostId& host) {
  std::erase_if(waiting_send_, [&host](const Send& send) {
    return std::visit([](const auto& any) -> const HostId& { return any.host; }, send) == host;
  });
}

// Should the daemon die before it can write the kill down, the next one sees processes that a signal
// ended: nothing that was accepted is lost, and nothing runs twice. What the same replicas are still to
// be told before stays before.
void Scheduler::send_stops_of_killed() {
  const auto is_killed = [this](const ExperimentId& id) {
    return std::any_of(kills_.begin(), kills_.end(), [&id](const ExperimentId& killed) {
      return killed == id || (killed.member == 0 && killed.number == id.number);
    });
  };
  std::set<LaunchId> begins;   // that are to be launched or started
  std::vector<Send> later;
  for (Send& what : std::exchange(waiting_send_, {})) {
    if (const auto* launch = std::get_if<SendLaunch>(&what)) {
      begins.insert(launch->id);
    } else if (const auto* start = std::get_if<SendStart>(&what)) {
      begins.insert(start->id);
    }
    const auto* stop = std::get_if<SendStop>(&what);
    const bool now = stop != nullptr && is_killed(stop->experiment) &&
                     std::none_of(stop->replicas.begin(), stop->replicas.end(),
                                  [&](const HeldReplicaFact& held) {
                                    return begins.contains(launch_of(held.replica, held.attempt));
                                  });
    if (now) {
      send(what);
    } else {
      later.push_back(std::move(what));
    }
  }
  waiting_send_.insert(waiting_send_.begin(), std::make_move_iterator(later.begin()),
                       std::make_move_iterator(later.end()));
}

std::filesystem::path Scheduler::output_dir(const ExperimentId& id) const {
  const auto base = home_.outputs() / std::to_string(id.number);
  return id.member == 0 ? base : base / std::to_string(id.member);
}

std::filesystem::path Scheduler::after_dir(const Spec& spec) const {
  if (!spec.after.empty()) return output_dir(spec.after.front());
  return spec.after_end.empty() ? std::filesystem::path() : output_dir(spec.after_end.front());
}

void Scheduler::send(const Send& what) {
  if (const auto* launch = std::get_if<SendLaunch>(&what)) return send_launch(*launch);
  pb::ToRunner message;
  HostId host;
  if (const auto* start = std::get_if<SendStart>(&what)) {
    host = start->host;
    *message.mutable_start() = to_message(*start);
  } else if (const auto* stop = std::get_if<SendStop>(&what)) {
    host = stop->host;
    *message.mutable_stop() = to_message(*stop);
  } else if (const auto* forget = std::get_if<SendForget>(&what)) {
    host = forget->host;
    *message.mutable_forget() = to_message(*forget);
  }
  outbox_.send(host, std::move(message));
}

void Scheduler::send_launch(const SendLaunch& launch) {
  const auto failed = [&](const std::string& why, bool ours) {
    handle(LaunchFailed{launch.host, launch.id, as_utf8(why), 0, ours});
  };
  const ExperimentId& id = launch.id.experiment;
  const auto found = model_.experiments.find(id);
  INVARIANT(found != model_.experiments.end(), "only a live experiment is launched");
  const auto folder = output_dir(id);
  if (const auto made = make_output_dir(found->second, folder); !made.ok()) {
    return failed(made.error().message, true);
  }
  // Of what never began, or left nothing, it is empty.
  const auto after = after_dir(found->second.submission->spec);
  std::error_code error;
  if (!after.empty()) std::filesystem::create_directories(after, error);
  if (error) return failed(errno_error(fmt::format("create {}", after.string()), error.value()).message, true);
  const auto extras = extras_.find(id.number);
  pb::ToRunner message;
  *message.mutable_launch() =
      to_message(launch, found->second, extras == extras_.end() ? nullptr : &extras->second,
                 without_links(folder).string(), without_links(after).string(), output_mark_, spool_limit_bytes_);
  // Its runner would end the stream, and again each time it is told. check_size() can't know it all.
  if (message.ByteSizeLong() > kMessageBytesMax) {
    return failed("it is too large to be told to a host in one message", false);
  }
  outbox_.send(launch.host, std::move(message));
}

}  // namespace dtrain::daemon
