#include "cli/add_host.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "cli/connection.h"
#include "cli/remote.h"
#include "cli/temporary_directory.h"
#include "cli/words.h"
#include "schema/config.h"
#include "schema/engine_read.h"
#include "schema/needed_glibc.h"
#include "schema/shell_words.h"
#include "schema/small_file.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

// What is done over there, with an archive of the programs and the key on its standard input; $1 is the host's name.
// One that ran there by an earlier key is ended: what it has started goes on, and is the next one's.
constexpr const char* kJoin = R"sh(set -eu
umask 077
name=$1
dir=${XDG_STATE_HOME:-$HOME/.local/state}/dtrain/hosts/$name
mkdir -p "$dir"
cd "$dir"
tar -xf -
./dtrain version > /dev/null || { echo "this dtrain does not run there" >&2; exit 71; }
if [ -f pid ] && grep -q "$name.key" "/proc/$(cat pid)/cmdline" 2> /dev/null; then
  kill "$(cat pid)"
  while [ -d "/proc/$(cat pid)" ]; do sleep 0.1; done
fi
: > log
setsid ./dtrain runner run --join "$name.key" --home "$dir/runner" >> log 2>&1 < /dev/null &
echo $! > pid
tries=0
until grep -q "^joined the daemon" log; do
  tries=$((tries + 1))
  if [ $tries -gt 100 ] || [ ! -d "/proc/$(cat pid)" ]; then
    echo "it did not join; $(hostname):$dir/log says:" >&2
    tail -n 3 log >&2
    kill "$(cat pid)" 2> /dev/null || true
    exit 1
  fi
  sleep 0.2
done
)sh";

constexpr int kDoesNotRun = 71, kSshFailed = 255;   // the latter says SSH

// What is sent: files of $2, one of $3. $1 is SSH, with its options.
constexpr const char* kSend = R"sh(programs=$2 keys=$3 target=$4 name=$5 script=$6
tar -cf - -C "$programs" dtrain $(cd "$programs" && ls dtrain-engine 2> /dev/null) -C "$keys" "$name.key" |
  $1 "$target" "sh -c $script sh $name")sh";

// To its end; SSH may ask at the terminal. Ctrl-C is its alone, so that what was begun for it is taken back.
Result<int> run_shell(const char* script, const std::vector<std::string>& words) {
  std::string command = "sh -c " + shell_quoted(script) + " sh";
  for (const std::string& word : words) command += " " + shell_quoted(word);
  const int status = std::system(command.c_str());
  if (status == -1) return errno_error("start a shell", errno);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct NewHost {
  std::string target, name, address;
};

// "me@gpu1.lab" is called gpu1.lab.
std::string name_of(const NewHost& host) {
  return host.name.empty() ? host.target.substr(host.target.find('@') + 1) : host.name;
}

Result<int> add(const NewHost& host, const CommandContext& context) {
  const std::string name = name_of(host);
  if (!is_host_name(name) || host.target.starts_with('-')) {
    return Error{Code::InvalidArgument, fmt::format("'{}' is nothing that SSH reaches", host.target),
                 "user@host, or a Host of ~/.ssh/config; --name calls it something else"};
  }
  TRY(const auto keys, TemporaryDirectory::make("key"));
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  pb::InviteRequest request;
  request.set_name(name);
  request.set_address(host.address);
  TRY(const pb::InviteReply reply, connection.invite(request));
  pb::RevokeRequest back;
  back.set_name(name);
  std::error_code error;
  const fs::path programs = fs::read_symlink("/proc/self/exe", error).parent_path();
  fmt::print(stderr, "Sending dtrain to {}\n", host.target);
  Result<int> joined = write_file(keys->path() / (name + ".key"), reply.key()).ok()
                           ? run_shell(kSend, {ssh_command(), programs.string(), keys->path().string(),
                                                host.target, name, shell_quoted(kJoin)})
                           : Error{Code::Unavailable, fmt::format("can't write to {}", keys->path().string()), ""};
  if (!joined.ok() || *joined != 0) {
    (void)connection.revoke(back).ok();
    if (!joined.ok()) return joined;
    return Error{Code::Unavailable, fmt::format("{} did not become a host; its key is revoked", host.target),
                 *joined == kSshFailed ? fmt::format("`{} {}` says what SSH lacks", ssh_command(), host.target)
                 : *joined == kDoesNotRun
                     ? fmt::format("dtrain of this machine takes glibc {} or later there, and a processor of the same kind; with a dtrain that was "
                                   "built there, dtrain hosts invite {} has it join",
                                   needed_glibc(), name)
                     : fmt::format("it has to reach {}: --address, or `listen:` in config.yml, says another address", reply.daemon())};
  }
  fmt::print("{} has joined. When that machine starts anew, revoke its key and add it again, or have systemd start its "
             "runner there\n",
             name);
  return 0;
}

}  // namespace

Run declare_add_host(Options& options, CommandContext& context) {
  auto host = std::make_shared<NewHost>();
  options.positional("USER@HOST", host->target, "as SSH reaches it", true);
  options.text("--name", host->name, "what it is called; left out: HOST");
  options.text("--address", host->address, "how it reaches this machine; left out: as config.yml says", "ADDRESS");
  return [&context, host] { return add(*host, context); };
}

}  // namespace dtrain::cli
