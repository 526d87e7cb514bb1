#include "runner/left_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <utility>

#include "runner/workdir.h"
#include "schema/exec_limits.h"
#include "schema/quote.h"
#include "schema/write_all.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;
using ErrorCode = boost::system::error_code;

// What is done with what was found.
struct LeftJob {
  SpawnRequest request;
  std::string input;
};

// Of "4.worker.1@2", the last attempt of those that are there.
fs::path last_place(const fs::path& work, const std::string& replica) {
  fs::path last;
  uint32_t last_attempt = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(work, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(replica + "@")) continue;
    uint32_t attempt = 0;
    std::from_chars(name.data() + replica.size() + 1, name.data() + name.size(), attempt);
    if (attempt < last_attempt) continue;
    last_attempt = attempt;
    last = entry.path();
  }
  return last;
}

Result<LeftJob> job_for(const fs::path& work, const std::string& replica, const pb::LeftStart& what) {
  const fs::path place = last_place(work, replica);
  LeftFiles left;
  if (!place.empty()) {
    TRY(left, left_files(place));
  }
  if (left.files.empty()) {
    return Error{Code::NotFound, fmt::format("{} has left nothing on its host that is still there", replica),
                 "it is kept for 7 days; what is in OUTPUT_DIR is there for good"};
  }
  LeftJob job;
  if (!what.archive()) {
    for (const LeftFiles::File& file : left.files) job.input += fmt::format("{}{}{}{}{}{}", file.bytes, '\0', file.path, '\0', file.link_to, '\0');
    job.request.argv = {"cat"};
    return job;
  }
  // Names are of the folder that what is wanted lies in.
  const std::string path = what.path();
  const size_t above = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
  for (const LeftFiles::File& file : left.files) {
    const bool is_within = path.empty() || file.path == path || file.path.starts_with(path + "/");
    if (is_within) job.input.append(file.path.substr(above)).push_back('\0');
  }
  if (job.input.empty()) {
    return Error{Code::NotFound, fmt::format("{} has left no {}", replica, in_quotes(path)), fmt::format("dtrain output ls {} lists what it has", replica)};
  }
  job.request.cwd = (left.folder / path.substr(0, above)).lexically_normal();
  job.request.argv = {"tar", "--null", "--no-recursion", "-cf", "-", "-T", "-"};
  return job;
}

}  // namespace

LeftSession::LeftSession(boost::asio::io_context& loop, std::shared_ptr<ExecPeer> peer, std::function<void()> over)
    : ReplicaSession(std::move(peer), std::move(over)), loop_(loop), output_(loop) {}

void LeftSession::start(FileWorker& files, const fs::path& work, const Environment& env, const pb::LeftOpen& open) {
  hear_peer();
  auto job = std::make_shared<Result<LeftJob>>(LeftJob());
  files.run([job, work, replica = open.replica(), what = open.what()] { *job = job_for(work, replica, what); },
            [job, env, self = shared()] {
              if (self->is_over()) return;
              if (!job->ok()) return self->refuse(job->error());
              (*job)->request.env = env;
              const Status begun = self->run(std::move((*job)->request), (*job)->input);
              if (!begun.ok()) self->refuse(begun.error());
            });
}

Status LeftSession::run(SpawnRequest request, const std::string& input) {
  const Fd names(::memfd_create("left", MFD_CLOEXEC));
  if (!names) return errno_error("list what was left", errno);
  if (const int error = write_all(names.get(), input); error != 0) return errno_error("list what was left", error);
  if (::lseek(names.get(), 0, SEEK_SET) != 0) return errno_error("list what was left", errno);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("a pipe", errno);
  output_.assign(ends[0]);
  output_.non_blocking(true);
  const Fd write_end(ends[1]), errors(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  request.input_fd = names.get();
  request.output_fd = write_end.get();
  request.error_fd = errors.get();
  request.die_with_parent = true;
  auto program = std::make_shared<Program>(loop_);
  TRY(program->child, spawn(request));
  program->died.assign(program->child.pidfd.release());
  program_ = program;
  program->died.async_wait(Descriptor::wait_read, [program, self = std::weak_ptr(shared())](const ErrorCode&) {
    program->status = try_reap(program->child);
    if (const auto live = self.lock()) live->end_if_over();
  });
  pb::ExecOutput message;
  message.mutable_started();
  send(std::move(message));
  read_output();
  return ok();
}

void LeftSession::on_input(const pb::ExecInput& message) {
  if (!message.has_taken()) return;
  output_taken(message.taken());
  read_output();
}

void LeftSession::read_output() {
  if (!program_ || output_ended_ || reads_ || !may_send_output()) return;
  reads_ = true;
  output_.async_wait(Descriptor::wait_read, [self = shared()](const ErrorCode& error) {
    self->reads_ = false;
    if (error || self->is_over()) return;
    std::array<char, kExecPartBytes> bytes;
    const ssize_t got = ::read(self->output_.native_handle(), bytes.data(), bytes.size());
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
      self->output_ended_ = true;
      return self->end_if_over();
    }
    if (got > 0) {
      pb::ExecOutput message;
      message.set_output(bytes.data(), static_cast<size_t>(got));
      self->output_sent(static_cast<size_t>(got));
      self->send(std::move(message));
    }
    self->read_output();
  });
}

void LeftSession::end_if_over() {
  if (is_over() || !output_ended_ || !program_->status) return;
  const int status = *program_->status;
  pb::ExecOutput message;
  message.mutable_ended()->set_code(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  end_with(std::move(message));
}

void LeftSession::close() {
  ErrorCode ignored;
  output_.close(ignored);
  if (program_ && program_->child.pid > 0) ::kill(-program_->child.pid, SIGKILL);
}

}  // namespace dtrain::runner
