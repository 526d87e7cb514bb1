#include "runner/launch_files.h"

#include <utility>

#include "runner/daemon_outputs.h"

namespace dtrain::runner {

namespace {

using Made = LaunchFiles::Made;

// A host that lacks what is named by path need not fetch anything. Nothing: its outputs have to be brought first.
std::optional<Made> make_here(const LaunchSite& site, const pb::Launch& message, const LaunchDir& directory) {
  const DaemonOutputs outputs = look_for_outputs(message);
  auto lacking = outputs.trouble.empty() ? lacking_here(site, message, outputs.are_here) : outputs.trouble;
  if (!lacking.ok()) return Made{false, std::move(lacking).error()};
  if (!lacking->empty()) return Made{true, Error{Code::NotFound, std::move(*lacking), ""}};
  if (!outputs.are_here) return std::nullopt;
  return Made{false, prepare_launch(site, message, PlacedOutputs{message.output_dir(), {}, message.after_dir()}, directory)};
}

}  // namespace

void LaunchFiles::make_ready(const pb::Launch& message, const LaunchDir& directory, Then then) {
  auto job = std::make_shared<Job>(Job{message, directory, std::move(then)});
  files_.run([job, &site = site_] { job->made = make_here(site, job->message, job->directory); },
             [this, job] { job->made ? job->then(std::move(*job->made)) : bring_outputs(job); });
}

void LaunchFiles::bring_outputs(const std::shared_ptr<Job>& job) {
  if (!*wanted_) return job->then({false, Error{Code::Cancelled, "stopped before its outputs were brought", ""}});
  bringing_ = std::make_unique<FileWorker>(loop_);
  auto placed = std::make_shared<std::optional<Result<PlacedOutputs>>>();
  bringing_->run([placed, job, &site = site_,
                  wanted = wanted_] { *placed = place_outputs(site, job->message, [wanted] { return wanted->load(); }); },
                 [this, placed, job] {
                   if (placed->value().ok()) return prepare(job, std::move(**placed).value());
                   // Whatever the daemon says of them: they are not of this host.
                   const Error& error = placed->value().error();
                   job->then({false, Error{Code::Unavailable, "bringing outputs: " + error.message, error.hint}});
                 });
}

void LaunchFiles::prepare(const std::shared_ptr<Job>& job, PlacedOutputs placed) {
  files_.run([job, placed = std::move(placed),
              &site = site_] { job->made = Made{false, prepare_launch(site, job->message, placed, job->directory)}; },
             [job] { job->then(std::move(*job->made)); });
}

}  // namespace dtrain::runner
