#include "daemon/outputs_api.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <optional>
#include <utility>

#include "daemon/reactor.h"
#include "daemon/summary.h"
#include "schema/clock.h"
#include "schema/disk_room.h"
#include "schema/expand.h"
#include "schema/output_limits.h"
#include "schema/quote.h"
#include "schema/resume.h"

namespace dtrain::daemon {

namespace fs = std::filesystem;

namespace {

constexpr size_t kPartBytes = size_t{1} << 20;
// Hosts always find a thread.
constexpr size_t kCallsOfPerson = 8, kCallsOfPeople = 24;
constexpr int64_t kIdleCallMs = 60'000;   // a call in which nothing goes on for so long is ended
constexpr int64_t kAdmittedMs = 1'000;
constexpr size_t kChangesAtOnce = 64;   // of one visit to the loop; each file is open until then
constexpr size_t kListPartBytes = 512 << 10;
constexpr size_t kLeftOutMost = 50;   // that are told

Error has_no_part(const pb::OutputsRequest& of) {
  return {Code::FailedPrecondition, fmt::format("this host has no part in {} any more", of.experiment()), ""};
}

bool is_within(const fs::path& folder, const fs::path& path) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

// What is wrong with one of the files. All else concerns the rest as well: its disk, or who writes.
bool is_of_one_file(const Error& error) {
  return error.code == Code::InvalidArgument || error.code == Code::NotFound || error.code == Code::AlreadyExists ||
         error.code == Code::PermissionDenied;
}

}  // namespace

class OutputsApi::Turn {
 public:
  // Who has no key any more waits for no thread of others'.
  static Result<std::unique_ptr<Turn>> take(OutputsApi& api, grpc::ServerContext& call) {
    const Caller caller = Caller::of(call);
    const std::string& certificate = caller.certificate();
    const bool is_host = caller.is_own() || api.keys_->holder_of(certificate).ok();
    if (!is_host) TRY(api.users_->person_of(certificate));
    const std::lock_guard lock(api.mutex_);
    const auto held = std::ranges::count_if(api.running_, [&](const Running& each) { return each.caller.certificate() == certificate; });
    if (!caller.is_own() && is_host && held >= static_cast<std::ptrdiff_t>(kOutputCallsAtOnce)) {
      return Error{Code::Unavailable, "too many calls of this host at once", ""};
    }
    const auto of_people = std::ranges::count_if(api.running_, [](const Running& each) { return !each.is_host; });
    if (!is_host && (held >= static_cast<std::ptrdiff_t>(kCallsOfPerson) || of_people >= static_cast<std::ptrdiff_t>(kCallsOfPeople))) {
      return Error{Code::ResourceExhausted, "too many outputs are being read at once", "try again in a moment"};
    }
    api.running_.emplace_front(&call, caller, boottime_ms(), is_host);
    return std::unique_ptr<Turn>(new Turn(api, api.running_.begin()));
  }
  ~Turn() {
    const std::lock_guard lock(api_.mutex_);
    api_.running_.erase(running_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void goes_on() { running_->progress_ms = boottime_ms(); }
  // The other end has said all: what is to do now takes as long as the disk likes.
  void is_heard() { running_->progress_ms = std::numeric_limits<int64_t>::max() / 2; }
  bool is_over() const { return running_->call->IsCancelled(); }
  const Caller& caller() const { return running_->caller; }
  bool is_host() const { return running_->is_host; }

 private:
  Turn(OutputsApi& api, std::list<Running>::iterator running) : api_(api), running_(running) {}

  OutputsApi& api_;
  const std::list<Running>::iterator running_;
};

void OutputsApi::watch() {
  watch_timer_.expires_after(std::chrono::milliseconds(kIdleCallMs / 4));
  watch_timer_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    {
      const std::lock_guard lock(mutex_);
      for (Running& each : running_) {
        if (each.progress_ms + kIdleCallMs < boottime_ms()) each.call->TryCancel();
      }
    }
    watch();
  });
}

Status OutputsApi::admit(Access& access) const {
  const int64_t now_ms = boottime_ms();
  if (access.admitted_ms != 0 && now_ms - access.admitted_ms < kAdmittedMs) return ok();
  access.host = HostId{access.of.host_id()};
  const bool is_person = access.host.hex.empty();
  if (is_person && !access.caller.is_own()) {
    TRY(users_->person_of(access.caller.certificate()));
  } else if (!access.caller.is_own()) {
    TRY(const auto admitted, keys_->admit(access.caller.certificate(), access.host));
    access.host = admitted.id;
  }
  access.admitted_ms = now_ms;
  return ok();
}

// Everybody sees all.
Result<OutputsApi::Place> OutputsApi::place_for_person(const Access& access) const {
  TRY(const ExperimentId id, parse_experiment_id(access.of.experiment()));
  TRY(const auto known, scheduler_.find(id));
  TRY(check_exists(known, {id, {}, {}}));
  return Place{scheduler_.output_dir(id)};
}

Result<OutputsApi::Place> OutputsApi::place_of(const Access& access) const {
  if (access.host.hex.empty()) return place_for_person(access);
  TRY(Place place, own_place_of(access));
  if (access.of.resume().empty()) return place;
  TRY(const ExperimentId id, parse_experiment_id(access.of.experiment()));
  return resumed_place_of(scheduler_.model().experiments.at(id), access.of.resume());
}

Result<OutputsApi::Place> OutputsApi::own_place_of(const Access& access) const {
  TRY(const ExperimentId id, parse_experiment_id(access.of.experiment()));
  const auto found = scheduler_.model().experiments.find(id);
  if (found == scheduler_.model().experiments.end()) return has_no_part(access.of);
  const Experiment& experiment = found->second;
  const bool has_part = std::ranges::any_of(experiment.replicas, [&](const Replica& replica) {
    return !is_build(replica) && replica.attempt == access.of.attempt() && replica.seat.host == access.host && !is_gone(replica) &&
           replica.progress != Progress::None;
  });
  if (!has_part || experiment.submission->submission_id != access.of.submission()) return has_no_part(access.of);
  return Place{scheduler_.output_dir(id)};
}

Result<OutputsApi::Place> OutputsApi::resumed_place_of(const Experiment& experiment, const std::string& path) const {
  const Error none{Code::NotFound, fmt::format("{} is no output of an experiment", in_quotes(path)), ""};
  const Spec& spec = experiment.submission->spec;
  std::error_code error;
  const bool is_after = fs::canonical(scheduler_.after_dir(spec), error) == path;
  if (!is_after && resumed_path(member_spec(spec, experiment.id.member)) != path) return none;
  const fs::path all = fs::canonical(outputs_, error);
  if (error) return none;
  const fs::path named = fs::path(path).lexically_normal();
  const fs::path within = named.lexically_relative(is_within(all, named) ? all : outputs_);
  if (within.empty()) return none;
  // Of one experiment: what a host wrote there may be a link to another's.
  const fs::path outputs = fs::canonical(all / *within.begin(), error);
  if (error || outputs.parent_path() != all) return none;
  const fs::path found = fs::canonical(path, error);
  if (error || !is_within(outputs, found)) return none;
  if (fs::is_directory(found, error)) return Place{found};
  return Place{found.parent_path(), found.filename()};
}

grpc::Status OutputsApi::List(grpc::ServerContext* call, const pb::OutputsRequest* request,
                              grpc::ServerWriter<pb::OutputList>* writer) {
  const auto turn = Turn::take(*this, *call);
  if (!turn.ok()) return to_grpc(turn.error());
  Access access{(*turn)->caller(), *request};
  const auto list = [&]() -> Status {
    TRY(admit(access));
    TRY(const Place place, on_loop([&] { return place_of(access); }));
    TRY(const OutputTree tree, OutputTree::open(place.folder));
    std::vector<pb::OutputEntry> entries;
    std::vector<OutputTree::LeftOut> left_out;
    if (place.file.empty()) {
      TRY(entries, tree.list(&left_out));
    } else {
      TRY(pb::OutputEntry only, tree.look(place.file));
      entries.push_back(std::move(only));
    }
    pb::OutputList part;
    part.set_is_file(!place.file.empty());
    left_out.resize(std::min(left_out.size(), kLeftOutMost));
    for (OutputTree::LeftOut& one : left_out) {
      pb::OutputTrouble& trouble = *part.add_left_out();
      trouble.set_path(std::move(one.path));
      trouble.set_why(as_utf8(one.why));
    }
    if (entries.empty() && !left_out.empty() && !writer->Write(part)) return Error{Code::Cancelled, "the runner is gone", ""};
    size_t bytes = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      bytes += entries[i].ByteSizeLong();
      *part.add_entries() = std::move(entries[i]);
      if (bytes < kListPartBytes && i + 1 < entries.size()) continue;
      if (!writer->Write(part)) return Error{Code::Cancelled, "the runner is gone", ""};
      (*turn)->goes_on();
      TRY(admit(access));
      part.clear_entries();
      part.clear_left_out();
      bytes = 0;
    }
    return ok();
  };
  const Status listed = list();
  return listed.ok() ? grpc::Status::OK : to_grpc(listed.error());
}

grpc::Status OutputsApi::Read(grpc::ServerContext* call, const pb::ReadOutputsRequest* request,
                              grpc::ServerWriter<pb::OutputPart>* writer) {
  const auto turn = Turn::take(*this, *call);
  if (!turn.ok()) return to_grpc(turn.error());
  Access access{(*turn)->caller(), request->of()};
  const auto read_one = [&](const OutputTree& tree, const std::string& path) -> Status {
    const auto file = tree.open_file(path);
    if (!file.ok()) return file.error().code == Code::NotFound ? ok() : Status(file.error());
    pb::OutputPart part;
    *part.mutable_entry() = file->entry;
    uint64_t left = part.entry().size();
    do {
      std::string& data = *part.mutable_data();
      data.resize(static_cast<size_t>(std::min<uint64_t>(left, kPartBytes)));
      const ssize_t got = data.empty() ? 0 : ::read(file->fd.get(), data.data(), data.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno_error(fmt::format("read {}", in_quotes(path)), errno);
      data.resize(static_cast<size_t>(got));
      left -= static_cast<uint64_t>(got);
      part.set_withdrawn(left > 0 && got == 0);   // it became shorter
      part.set_last(left == 0 || got == 0);
      if (!writer->Write(part)) return Error{Code::Cancelled, "the runner is gone", ""};
      (*turn)->goes_on();
      TRY(admit(access));
      part.mutable_entry()->Clear();
      part.mutable_entry()->set_path(path);
    } while (!part.last());
    return ok();
  };
  const auto read = [&]() -> Status {
    std::optional<Place> place;
    for (const std::string& path : request->paths()) {
      if ((*turn)->is_over()) return Error{Code::Cancelled, "the runner is gone", ""};
      TRY(admit(access));
      // A host may lose its part between two files; for a person it stays where it is.
      if (!place || !access.host.hex.empty()) {
        TRY(place, on_loop([&] { return place_of(access); }));
      }
      TRY(const OutputTree tree, OutputTree::open(place->folder));
      TRY(read_one(tree, path));
    }
    return ok();
  };
  const Status done = read();
  return done.ok() ? grpc::Status::OK : to_grpc(done.error());
}

Status OutputsApi::check_room(const OutputTree& tree, uint64_t bytes) const {
  if (spool_room_bytes(tree.fd()) >= std::max<uint64_t>(bytes, kPartBytes)) return ok();
  return Error{Code::ResourceExhausted, fmt::format("no room for {} bytes of outputs in {}", bytes, outputs_.string()),
               "make room where the daemon runs"};
}

grpc::Status OutputsApi::Write(grpc::ServerContext* call, grpc::ServerReader<pb::OutputParts>* reader,
                               pb::WriteOutputsReply* reply) {
  const auto turn = Turn::take(*this, *call);
  if (!turn.ok()) return to_grpc(turn.error());
  if (!(*turn)->is_host()) return to_grpc({Code::PermissionDenied, "outputs are written by hosts alone", ""});
  pb::OutputParts first;
  if (!reader->Read(&first)) return {grpc::StatusCode::INVALID_ARGUMENT, "nothing came"};
  const Status written = write({(*turn)->caller(), first.of()}, first, *reader, **turn, *reply);
  if (!written.ok() && written.error().code != Code::Cancelled) note_refusal(first.of().experiment(), written.error().message);
  return written.ok() ? grpc::Status::OK : to_grpc(written.error());
}

// Who is refused comes again each second.
void OutputsApi::note_refusal(const std::string& experiment, const std::string& why) {
  const std::string text = as_utf8(fmt::format("outputs of {} are not taken: {}", experiment, why));
  const std::lock_guard lock(mutex_);
  if (refusals_.is_news(text, Seldom::Clock::now())) std::fprintf(stderr, "%s\n", text.c_str());
}

// On the loop, while the caller still has its part. What concerns one of them alone is said of it, and the rest goes on.
Status OutputsApi::make(std::vector<Change> changes, Access& access, const OutputTree& tree, pb::WriteOutputsReply& reply) {
  if (changes.empty()) return ok();
  TRY(admit(access));
  return on_loop([&]() -> Status {
    TRY(place_of(access));
    for (Change& change : changes) {
      const Status made = change.removed ? tree.remove(change.entry)
                          : change.file  ? change.file->give_name(change.entry)
                                         : tree.make(change.entry);
      if (made.ok()) continue;
      if (!is_of_one_file(made.error())) return made;
      pb::OutputTrouble& trouble = *reply.add_troubles();
      trouble.set_path(change.entry.path());
      trouble.set_why(made.error().message);
    }
    return ok();
  });
}

Status OutputsApi::write(Access access, pb::OutputParts message, grpc::ServerReader<pb::OutputParts>& reader, Turn& turn,
                         pb::WriteOutputsReply& reply) {
  if (!access.of.resume().empty()) return Error{Code::InvalidArgument, "what was before is not written to", ""};
  TRY(admit(access));
  if (access.host.hex.empty()) return Error{Code::PermissionDenied, "outputs are written by hosts alone", ""};
  TRY(const Place place, on_loop([&] { return place_of(access); }));
  TRY(const OutputTree tree, OutputTree::open(place.folder));
  tree.remove_unnamed();
  std::vector<Change> changes;
  std::optional<Change> coming;   // a file
  do {
    for (pb::OutputPart& part : *message.mutable_parts()) {
      const bool is_file = coming || (!part.removed() && part.entry().kind() == pb::Entry::FILE);
      if (!coming) coming.emplace(Change{std::move(*part.mutable_entry()), part.removed()});
      if (is_file) {
        TRY(check_room(tree, coming->file ? part.data().size() : coming->entry.size()));
        if (!coming->file) {
          TRY(UnnamedOutput file, tree.create());
          coming->file.emplace(std::move(file));
        }
        if (Status put = coming->file->append(part.data()); !put.ok()) {
          return std::move(put).error().with_context(coming->entry.path());
        }
        if (!part.last()) continue;
      }
      if (!part.withdrawn()) changes.push_back(std::move(*coming));
      coming.reset();
      if (changes.size() >= kChangesAtOnce) TRY(make(std::exchange(changes, {}), access, tree, reply));
    }
    TRY(make(std::exchange(changes, {}), access, tree, reply));
    turn.goes_on();
  } while (reader.Read(&message));
  if (coming) return Error{Code::Cancelled, "the runner is gone", ""};
  turn.is_heard();
  return tree.sync();
}

grpc::Status OutputsApi::Over(grpc::ServerContext* call, const pb::OverRequest* request, pb::OverReply* reply) {
  if (const Caller caller = Caller::of(*call); !caller.is_own()) {
    if (const auto holder = keys_->holder_of(caller.certificate()); !holder.ok()) return to_grpc(holder.error());
  }
  if (request->experiments_size() != request->submissions_size()) return {grpc::StatusCode::INVALID_ARGUMENT, "not in pairs"};
  return on_loop([&] {
    for (int i = 0; i < request->experiments_size(); ++i) {
      const auto id = parse_experiment_id(request->experiments(i));
      const auto& experiments = scheduler_.model().experiments;
      const auto found = id.ok() ? experiments.find(*id) : experiments.end();
      const bool unreadable = id.ok() && scheduler_.unreadable().contains(id->number);
      reply->add_over(!unreadable && (found == experiments.end() || found->second.over ||
                                      found->second.submission->submission_id != request->submissions(i)));
    }
    return grpc::Status();
  });
}

}  // namespace dtrain::daemon
