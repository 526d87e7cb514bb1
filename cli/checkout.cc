// dtrain checkout: the files that an experiment was sent with, in a directory.
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/escapes.h"
#include "cli/new_file.h"
#include "cli/remote.h"
#include "cli/signals.h"
#include "cli/words.h"
#include "schema/blob.h"
#include "schema/ids.h"
#include "schema/manifest.h"
#include "schema/materialise.h"
#include "schema/shell_words.h"
#include "schema/small_file.h"
#include "schema/spec.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kManifestBytesMax = uint64_t{256} << 20;   // as the daemon takes them
constexpr size_t kNamesAtOnce = 10'000;                       // of one request, which is one message
constexpr std::array<std::string_view, 2> kSpecNames = {"dtrain.yml", "riseml.yml"};

struct CheckoutOptions {
  std::string id;
  std::string directory;
};

struct Source {
  RpcChannel& channel;
  Signals signals{{SIGINT, SIGQUIT, SIGTERM, SIGHUP}};
  int stopped_by = 0;   // one of them
};

// Blobs from the daemon, one after the other in the order in which they are named at first.
class BlobReader {
 public:
  BlobReader(Source& source, std::vector<std::string> names) : source_(source), names_(std::move(names)) {}

  // The next: of at most `size_max` bytes, into one of the two.
  Status next(uint64_t size_max, int fd, std::string* bytes) {
    if (!call_) ask();
    bool is_first = true;
    for (pb::BlobPart part; read(part); is_first = false) {
      if (part.sha256() != names_[next_] || part.size() > size_max) return unexpected();
      if (is_first) {
        TRY(const Sha256 name, sha256_from_bytes(part.sha256()));
        decoder_.begin(name, part.size(), fd, bytes);
      }
      TRY(decoder_.add(part.data()));
      if (!part.last()) continue;
      TRY(decoder_.finish());
      if (++next_ == asked_) call_.reset();
      return ok();
    }
    if (source_.stopped_by != 0) return Error{Code::Cancelled, "interrupted", ""};
    const Status ended = call_->finish();
    if (ended.ok()) return unexpected();
    if (ended.error().code != Code::Unimplemented) return ended;
    return Error{Code::Unimplemented, "the daemon is of an older dtrain, which sends no files back", "dtrain daemon stop && dtrain daemon start"};
  }

 private:
  // False: there is no more, or somebody stops it, however long nothing comes.
  bool read(pb::BlobPart& part) {
    while (true) {
      source_.stopped_by = source_.signals.take();
      if (source_.stopped_by != 0) return false;
      if (call_->take(part)) return true;
      if (call_->ended()) return false;
      std::array<pollfd, 2> waits = {{{call_->fd(), call_->events(), 0}, {source_.signals.fd(), POLLIN, 0}}};
      (void)::poll(waits.data(), waits.size(), -1);
    }
  }

  static Status unexpected() { return Error{Code::DataLoss, "the daemon sends other files than it was asked for", ""}; }

  void ask() {
    asked_ = std::min(names_.size(), next_ + kNamesAtOnce);
    pb::FetchRequest request;
    for (size_t i = next_; i < asked_; ++i) request.add_sha256(names_[i]);
    call_.emplace(source_.channel, kFetchMethod);
    call_->write(request);
    call_->writes_done();
  }

  Source& source_;
  const std::vector<std::string> names_;
  size_t next_ = 0, asked_ = 0;   // of names_
  std::optional<RpcCall> call_;
  BlobDecoder decoder_;
};

Result<pb::Manifest> fetch_manifest(Source& source, const std::string& snapshot) {
  std::string bytes;
  TRY(BlobReader(source, {snapshot}).next(kManifestBytesMax, -1, &bytes));
  return parse_manifest(bytes);
}

Status write_tree(Source& source, const pb::Manifest& manifest, const fs::path& target) {
  const Sha256 nothing = sha256("");
  std::vector<std::string> names;
  for (const pb::Entry& entry : manifest.entry()) {
    if (entry.kind() == pb::Entry::FILE && entry.sha256() != to_bytes(nothing)) names.push_back(entry.sha256());
  }
  BlobReader blobs(source, std::move(names));
  return materialise(manifest, target, [&](const Sha256& name, uint64_t size, int fd) {
    return name == nothing ? ok() : blobs.next(size, fd, nullptr);
  });
}

// All of it or nothing, whatever stops it.
Status write_snapshot(RpcChannel& channel, const std::string& name, const fs::path& target, pb::Manifest& manifest, int& stopped_by) {
  Source source{channel};
  auto fetched = fetch_manifest(source, name);
  if (fetched.ok()) manifest = std::move(*fetched);
  const Status written = fetched.ok() ? write_tree(source, manifest, target) : Status(fetched.error());
  stopped_by = source.stopped_by;
  return written;
}

// What the file in there would submit, in the one form that a Spec has; "" where it can't be read, or there is none.
std::string submits(const fs::path& file) {
  std::error_code failed;
  if (!fs::is_regular_file(fs::symlink_status(file, failed))) return "";
  auto text = read_small_file(file);
  if (!text) return "";
  ParseOptions parsing;
  parsing.file_name = file.filename();
  const auto spec = parse_spec(*text, parsing);
  return spec.ok() ? to_yaml(*spec) : "";
}

bool has_spec_file(const pb::Manifest& manifest) {
  return std::any_of(manifest.entry().begin(), manifest.entry().end(),
                     [](const pb::Entry& entry) { return std::find(kSpecNames.begin(), kSpecNames.end(), entry.path()) != kSpecNames.end(); });
}

// What `train` is to be told in there, so that it submits what was submitted then. Where no file says that, one is added.
Result<std::string> words_of_train(const pb::ShowReply& shown, const pb::Manifest& manifest, const fs::path& target) {
  TRY(Spec spec, parse_spec(shown.spec_yaml(), {}));
  std::string member;   // which of a set it is
  for (const Parameter& parameter : spec.parameters) {
    const auto value = shown.experiment().parameters().find(parameter.name);
    if (shown.experiment().members() == 0 && parameter.values.size() > 1 && value != shown.experiment().parameters().end()) {
      member += fmt::format(" -p {}", shell_quoted(parameter.name + "=" + value->second));
    }
  }
  spec.suspend = false;   // that was for then
  const std::string wanted = to_yaml(spec);
  for (const std::string_view name : kSpecNames) {
    std::error_code failed;
    if (!fs::exists(fs::symlink_status(target / name, failed))) continue;
    if (const std::string there = submits(target / name); there == wanted || there == shown.spec_yaml()) return "train" + member;
    break;   // the first that is there counts
  }
  const std::string added = has_spec_file(manifest) ? fmt::format("dtrain-{}.yml", shown.experiment().id()) : std::string(kSpecNames.front());
  TRY(write_new_file(target / added, wanted, 0666, ""));
  fmt::print("{} is added: what was submitted{}\n", added, added == kSpecNames.front() ? "" : ", with what the command line changed");
  return (added == kSpecNames.front() ? "train" : "train -f " + added) + member;
}

Result<int> checkout(const CheckoutOptions& options, const CommandContext& context) {
  TRY(const ExperimentId id, parse_experiment_id(options.id));
  fs::path target = options.directory.empty() ? fs::path("checkout-" + to_string(id)) : fs::path(options.directory);
  if (!target.has_filename()) target = target.parent_path();   // "d/"
  std::error_code failed;
  if (fs::exists(fs::symlink_status(target, failed))) {
    return Error{Code::AlreadyExists, target.string() + " exists", fmt::format("{} checkout {} DIR makes another one", called(), to_string(id))};
  }
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  pb::ShowRequest request;
  request.set_id(to_string(id));
  TRY(const pb::ShowReply shown, connection.show(request));
  fs::create_directories(target.has_parent_path() ? target.parent_path() : fs::path("."), failed);
  if (failed) return errno_error("creating " + target.parent_path().string(), failed.value());
  pb::Manifest manifest;
  int stopped_by = 0;
  const Status written = write_snapshot(connection.channel(), shown.snapshot(), target, manifest, stopped_by);
  if (stopped_by != 0) end_by(stopped_by);
  TRY(written);
  uint64_t files = 0, bytes = 0;
  for (const pb::Entry& entry : manifest.entry()) {
    if (entry.kind() != pb::Entry::FILE) continue;
    ++files;
    bytes += entry.size();
  }
  fmt::print("{} of {} in {}: {}\n", human_count(files, "file"), to_string(id), on_one_line(target.string()), human_size(bytes));
  TRY(const std::string words, words_of_train(shown, manifest, target));
  fmt::print("Next: cd {} && {} {}\n", shell_quoted(target.string()), called(), words);
  return 0;
}

}  // namespace

Run declare_checkout(Options& options, CommandContext& context) {
  auto typed = std::make_shared<CheckoutOptions>();
  options.id(typed->id, "experiment (4) or member (4.2)", true);
  options.positional("DIR", typed->directory, "a directory that is made; left out: checkout-ID");
  options.footer("dtrain checkout 4 && cd checkout-4 && dtrain train");
  return [typed, &context] { return checkout(*typed, context); };
}

}  // namespace dtrain::cli
