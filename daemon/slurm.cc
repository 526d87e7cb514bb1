#include "daemon/slurm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "schema/shell_words.h"

namespace dtrain::daemon::slurm {

namespace {

constexpr int64_t kMinuteMs = 60'000;

// Bytes as Slurm's --mem has them: whole MiB.
std::string mebibytes(uint64_t bytes) { return fmt::format("{}M", std::max<uint64_t>(bytes >> 20, 1)); }

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// The next field of a line of squeue, which loses it.
std::string take_field(std::string_view& line) {
  const size_t bar = line.find('|');
  const std::string field(trimmed(line.substr(0, bar)));
  line.remove_prefix(bar == std::string_view::npos ? line.size() : bar + 1);
  return field;
}

}  // namespace

std::vector<std::string> submit_words(const SlurmPool& pool, const Request& request) {
  std::vector<std::string> words = {
      "sbatch",
      "--parsable",
      "--no-requeue",
      "--job-name=" + request.name,
      fmt::format("--nodes={}", request.hosts),
      "--ntasks-per-node=1",
      fmt::format("--cpus-per-task={}", pool.cpus),
      "--mem=" + mebibytes(pool.memory_bytes),
      fmt::format("--time={}", (pool.time_ms + kMinuteMs - 1) / kMinuteMs),
      "--output=/dev/null",
      "--chdir=/",
  };
  if (!pool.partition.empty()) words.push_back("--partition=" + pool.partition);
  if (pool.gpus > 0) words.push_back(fmt::format("--gpus-per-node={}", pool.gpus));
  words.insert(words.end(), pool.options.begin(), pool.options.end());
  return words;
}

std::string script(const SlurmPool& pool, const Request& request) {
  // What each node runs: the key comes by standard input, and is nowhere on its disk. A runner that a signal killed is
  // begun again, and takes over what it had. The shell waits for its runner through a TERM, and takes the home away
  // unless something of an experiment is in it.
  const std::string on_node = fmt::format(
      R"sh(umask 077
dtrain={}
key=$(cat)
home=$(mktemp -d "${{TMPDIR:-/tmp}}/dtrain-XXXXXX") || exit 1
ends=$(($(date +%s) + {}))
told=
trap 'told=yes' TERM INT
while :; do
  printf '%s\n' "$key" | "$dtrain" runner run --join - --name "${{SLURMD_NODENAME:-$(hostname)}}" --for $((ends - $(date +%s)))s --cpus {} --mem {} --ports {}-{} --home "$home" &
  runner=$!
  wait $runner
  code=$?
  while kill -0 $runner 2>/dev/null; do wait $runner; code=$?; done
  [ $code -gt 128 ] && [ -z "$told" ] || break
  sleep 1
done
rmdir "$home/launches" 2>/dev/null || [ ! -e "$home/launches" ] && rm -rf "$home"
exit $code)sh",
      shell_quoted(pool.dtrain.empty() ? request.dtrain : pool.dtrain), pool.time_ms / 1000, pool.cpus,
      mebibytes(pool.memory_bytes) + "iB", request.ports.first, request.ports.last);
  return fmt::format(
      "#!/bin/sh\n"
      "# Hosts for experiments of dtrain. It ends by itself once they are needed no more.\n"
      "log={}\n"
      "if [ -w \"$(dirname \"$log\")\" ]; then exec >> \"$log\" 2>&1; fi   # else its nodes don't see that directory\n"
      "exec srun --kill-on-bad-exit=0 --cpus-per-task={} sh -c {} << 'end of the key'\n{}end of the key\n",
      shell_quoted(request.log), pool.cpus, shell_quoted(on_node), to_text(request.key));
}

Result<std::string> submitted_job(std::string_view output) {
  // "17", or "17;cluster".
  const std::string_view line = trimmed(output);
  const std::string job(line.substr(0, line.find(';')));
  if (!job.empty() && job.find_first_not_of("0123456789") == std::string::npos) return job;
  return Error{Code::Unavailable, fmt::format("sbatch said no number of a job but '{}'", line.substr(0, 200)), ""};
}

std::vector<std::string> queue_words() {
  return {"squeue", "--noheader", "--states=all", fmt::format("--user={}", ::getuid()), "--format=%i|%T|%r|%j"};
}

std::map<std::string, Job> queued_jobs(std::string_view output) {
  std::map<std::string, Job> jobs;
  while (!output.empty()) {
    const size_t end = output.find('\n');
    std::string_view line = output.substr(0, end);
    output.remove_prefix(end == std::string_view::npos ? output.size() : end + 1);
    Job job{take_field(line), take_field(line), take_field(line)};
    const std::string name(trimmed(line));
    if (!job.id.empty() && !name.empty()) jobs.insert_or_assign(name, std::move(job));
  }
  return jobs;
}

std::vector<std::string> cancel_words(const std::string& job) { return {"scancel", job}; }

bool is_over(const Job& job) {
  static constexpr std::string_view kLives[] = {"PENDING",   "CONFIGURING", "RUNNING",   "COMPLETING", "SUSPENDED",
                                                "STOPPED",   "SIGNALING",   "STAGE_OUT", "RESIZING",   "REQUEUED",
                                                "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"};
  return std::find(std::begin(kLives), std::end(kLives), job.state) == std::end(kLives);
}

}  // namespace dtrain::daemon::slurm
