#include "cli/left_files.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <functional>
#include <optional>
#include <system_error>

#include "cli/rpc.h"
#include "schema/dtrain.pb.h"
#include "schema/quote.h"
#include "schema/shell_words.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

// To the end of what comes.
Result<pb::ExecStarted> read_left(Connection& connection, const pb::LeftStart& what, const std::function<Status(const std::string&)>& take) {
  RpcCall call(connection.channel(), kExecMethod);
  pb::ExecInput first;
  *first.mutable_left() = what;
  call.write(first);
  std::optional<pb::ExecStarted> started;
  pb::ExecOutput message;
  while (call.read(message)) {
    if (message.has_started()) started = message.started();
    if (message.has_output()) {
      TRY(take(message.output()));
      pb::ExecInput taken;
      taken.set_taken(message.output().size());
      call.write(taken);
    }
    if (!message.has_ended()) continue;
    // 1, as tar says it: something was written to meanwhile.
    if (message.ended().code() <= 1 && started) return *started;
    return Error{Code::DataLoss, fmt::format("it was not read to its end over there: tar ended with {}", message.ended().code()), ""};
  }
  TRY(call.finish());
  return Error{Code::Unavailable, "the daemon broke off before the end", ""};
}

struct ClosePipe {
  void operator()(std::FILE* pipe) const { ::pclose(pipe); }
};

}  // namespace

Result<LeftFilesList> list_left(Connection& connection, const std::string& replica) {
  pb::LeftStart what;
  what.set_id(replica);
  std::string text;
  TRY(const pb::ExecStarted started, read_left(connection, what, [&](const std::string& bytes) {
        text += bytes;
        return ok();
      }));
  LeftFilesList list{started.replica(), started.host_name(), {}};
  std::vector<std::string> words;
  for (size_t at = 0, end; (end = text.find('\0', at)) != std::string::npos; at = end + 1) words.push_back(text.substr(at, end - at));
  for (size_t i = 0; i + 2 < words.size(); i += 3) {
    uint64_t bytes = 0;
    std::from_chars(words[i].data(), words[i].data() + words[i].size(), bytes);
    list.files.push_back({words[i + 1], words[i + 2].empty() ? bytes : 0, words[i + 2]});
  }
  return list;
}

Status copy_left(Connection& connection, const std::string& replica, const std::string& path, const fs::path& target, bool force) {
  std::error_code failed;
  const fs::path made = target / fs::path(path).filename();
  if (!force && !path.empty() && fs::exists(fs::symlink_status(made, failed))) {
    return Error{Code::AlreadyExists, made.string() + " exists", "-f overwrites"};
  }
  fs::create_directories(target, failed);
  if (failed) return errno_error("creating " + target.string(), failed.value());
  pb::LeftStart what;
  what.set_id(replica);
  what.set_archive(true);
  what.set_path(path);
  std::signal(SIGPIPE, SIG_IGN);   // tar says why it ends
  const std::string unpack = fmt::format("tar -x --no-same-owner {} -C {} -f -", force ? "--overwrite" : "--keep-old-files", shell_quoted(target.string()));
  std::unique_ptr<std::FILE, ClosePipe> tar(::popen(unpack.c_str(), "we"));
  if (tar == nullptr) return errno_error("start tar", errno);
  const auto came = read_left(connection, what, [&](const std::string& bytes) -> Status {
    if (std::fwrite(bytes.data(), 1, bytes.size(), tar.get()) == bytes.size()) return ok();
    return Error{Code::Aborted, "tar took no more", ""};
  });
  const int status = ::pclose(tar.release());
  if (!came.ok() && came.error().code != Code::Aborted) return came.error();
  if (status == 0 && came.ok()) return ok();
  return Error{Code::Aborted, fmt::format("not all of it is in {}: tar ended with {}", target.string(), WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)),
               force ? "" : "-f overwrites what is there"};
}

}  // namespace dtrain::cli
