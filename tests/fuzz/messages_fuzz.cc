// Any bytes as what the daemon takes from runners, from the CLI and from its database: a value or
// an error. What was taken is written and read back the same, and the core goes on with it.
//
// The first byte of an input says what the rest is:
//   r   messages of runners, parted by kStepEnd; the letter before each is the host that says it
//   s   a SubmitRequest
//   m   a manifest
//   e   an ExperimentRecord
#include <google/protobuf/stubs/logging.h>

#include "daemon/incoming_messages.h"
#include "daemon/record.h"
#include "schema/manifest.h"
#include "schema/sha256.h"
#include "tests/fuzz/steps.h"

using namespace dtrain;
using namespace dtrain::daemon;
using namespace dtrain::fuzz;

namespace {

const std::string kBoot = "boot-a";

const std::shared_ptr<const Submission>& submission() {
  static const auto made = [] {
    Submission submission;
    submission.number = 4;
    const auto spec = parse_spec(
        "{project: p, train: {run: x, restart: {limit: 2}, framework: tensorflow, tensorflow: "
        "{distributed: {worker: 2, ps: {count: 1, on-failure: fail}}}}}",
        {});
    INVARIANT(spec.ok(), "the submission's YAML is accepted");
    submission.spec = *spec;
    return std::make_shared<const Submission>(std::move(submission));
  }();
  return made;
}

void check_refusal(const Error& error, Code code) {
  INVARIANT(error.code == code && !error.message.empty(), "a refusal says why");
}

// What is stored is what is loaded again; what is derived is not stored.
void check_stored(Experiment experiment, TimeMs now) {
  const auto record = to_record(experiment, now, kBoot);
  pb::ExperimentRecord read;
  INVARIANT(read.ParseFromString(record.SerializeAsString()), "a record is read back");
  const auto loaded = from_record(read, experiment.id, experiment.submission, now, kBoot);
  INVARIANT(loaded.ok(), "what was stored is loaded");
  experiment.held = false;
  experiment.wait_reason.clear();
  for (Replica& replica : experiment.replicas) replica.stop_sent = false;
  experiment.not_before_ms = std::max<TimeMs>(experiment.not_before_ms, 0);
  INVARIANT(*loaded == experiment, "and is the same");
}

void check_runner_messages(const std::vector<Step>& steps) {
  Model model;
  const Policy policy;
  TimeMs now = 1'000'000;
  step(model, Submitted{submission()}, policy, now);
  for (const Step& message : steps) {
    pb::FromRunner said;
    if (!said.ParseFromString(std::string(message.rest))) continue;
    now += 1'000;
    const HostId host{std::string(1, static_cast<char>(message.what & 0x7f))};
    if (said.has_hello() || said.has_inventory()) {
      pb::Hello hello = said.hello();
      if (said.has_inventory()) *hello.mutable_inventory() = said.inventory();
      if (said.has_inventory() || !hello.host_id().empty()) hello.set_host_id(host.hex);
      auto facts = host_from_message(hello, kBoot);
      if (!facts.ok()) {
        check_refusal(facts.error(), Code::InvalidArgument);
        continue;
      }
      if (said.has_inventory()) {
        if (model.hosts.contains(host)) step(model, HostChanged{*std::move(facts)}, policy, now);
        continue;
      }
      HostConnected connected{*std::move(facts), {}};
      for (const auto& held : hello.held()) {
        if (const auto id = parse_replica_id(held.replica()); id.ok()) {
          connected.held.push_back({*id, held.attempt()});
        }
      }
      step(model, connected, policy, now);
    } else if (said.has_renew()) {
      step(model, HostContact{host}, policy, now);
    } else if (auto event = event_from_message(host, said); !event.ok()) {
      check_refusal(event.error(), Code::InvalidArgument);
    } else if (*event) {
      step(model, **event, policy, now);
    }
    if (model.place_wanted) place_pending(model, policy, now);
    for (const auto& [id, experiment] : model.experiments) {
      (void)state_of(experiment);
      for (const Replica& replica : experiment.replicas) (void)state_of(experiment, replica);
      check_stored(experiment, now);
    }
  }
  now += 100'000'000;
  step(model, Tick{}, policy, now);
  for (const auto& [id, experiment] : model.experiments) check_stored(experiment, now);
}

void check_submit(const std::string& bytes) {
  pb::SubmitRequest request;
  if (!request.ParseFromString(bytes)) return;
  const auto root =
      sha256_from_bytes(request.has_blob() ? request.blob().sha256() : request.header().snapshot());
  if (!root.ok()) check_refusal(root.error(), Code::InvalidArgument);
  if (!request.has_header()) return;
  const auto taken = submission_from_message(request.header());
  if (!taken.ok()) return check_refusal(taken.error(), Code::InvalidArgument);
  INVARIANT(taken->spec_yaml == request.header().spec_yaml(), "it is kept as it came");
  INVARIANT(taken->submission_id.size() == 32, "its id is one");
}

bool same(const ManifestEntry& a, const pb::Entry& b) {
  return a.path == b.path() && a.kind == b.kind() && a.mode == b.mode() && a.size == b.size() &&
         a.sha256 == b.sha256() && a.target == b.target();
}

// The two ways to read a manifest, by protobuf and by hand, agree wherever both read it.
void check_manifest_bytes(const std::string& bytes) {
  const auto parsed = parse_manifest(bytes);
  if (!parsed.ok()) check_refusal(parsed.error(), Code::InvalidArgument);
  std::string_view left = bytes;
  std::vector<ManifestEntry> entries;
  for (ManifestEntry entry; read_entry(left, entry);) entries.push_back(entry);
  pb::Manifest raw;
  if (left.empty()) {
    INVARIANT(raw.ParseFromString(bytes), "what is read by hand is a message");
    INVARIANT(
        std::equal(entries.begin(), entries.end(), raw.entry().begin(), raw.entry().end(), same),
        "and says the same");
  }
  if (!parsed.ok()) return;
  std::string written;
  pb::Manifest known;  // without what a later version may have added
  for (const pb::Entry& entry : parsed->entry()) {
    append_entry(written, {entry.path(),
                           entry.kind(),
                           entry.mode(),
                           entry.size(),
                           entry.sha256(),
                           entry.target(),
                           {}});
    pb::Entry& copy = *known.add_entry();
    copy.set_path(entry.path());
    copy.set_kind(entry.kind());
    copy.set_mode(entry.mode());
    copy.set_size(entry.size());
    copy.set_sha256(entry.sha256());
    copy.set_target(entry.target());
  }
  INVARIANT(written == known.SerializeAsString(), "both write the same bytes");
  left = written;
  for (const pb::Entry& entry : parsed->entry()) {
    ManifestEntry read;
    INVARIANT(read_entry(left, read) && same(read, entry), "what is written is read back");
  }
  INVARIANT(left.empty() && parse_manifest(written).ok(), "to its end");
}

void check_record(const std::string& bytes) {
  pb::ExperimentRecord record;
  if (!record.ParseFromString(bytes)) return;
  for (const std::string& boot : {kBoot, record.boot_id()}) {
    const TimeMs now = 5'000'000;
    auto loaded = from_record(record, {4, 0}, submission(), now, boot);
    if (!loaded.ok()) continue;
    (void)state_of(*loaded);
    for (const Replica& replica : loaded->replicas) (void)state_of(*loaded, replica);
    check_stored(*loaded, now);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer silence;
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'r') check_runner_messages(steps_of(data + 1, size - 1));
  if (data[0] == 's') check_submit(bytes);
  if (data[0] == 'm') check_manifest_bytes(bytes);
  if (data[0] == 'e') check_record(bytes);
  return 0;
}
