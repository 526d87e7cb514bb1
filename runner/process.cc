#include "runner/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <boost/asio/io_context.hpp>
// clang-format off: Process v2 of Boost 1.81 forgets these two.
#include <boost/optional.hpp>
#include <boost/type_traits.hpp>
// clang-format on
#include <boost/process/v2/posix/vfork_launcher.hpp>
#include <boost/process/v2/process.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "runner/program_path.h"
#include "schema/process_limits.h"

namespace dtrain::runner {
namespace {

namespace asio = boost::asio;
namespace process = boost::process::v2;

constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

// What went wrong between fork and exec; it comes through a pipe that a successful exec closes.
enum class Step : int { Session, Cgroup, Data, Image, Beside, Directory, Descriptors, Exec };
struct Failure {
  Step step;
  int error;
  int which = 0;  // of the programs
  DataMountPlan::Failure data = {};
  ImageRootPlan::Failure image = {};
};

// Everything the child needs, prepared by the parent: after the fork only system calls are allowed.
struct Plan {
  std::vector<std::string> programs;  // the first that is there
  std::vector<char*> argv;
  // For a program without a format the kernel knows: by /bin/sh. Of each of them.
  std::vector<std::vector<char*>> script_argvs;
  std::vector<char*> env;
  std::vector<std::string> env_storage;
  Fd born_in;                     // directory of the first group
  std::vector<Fd> cgroup_procs;   // of the groups to join by writing
  DataMountPlan data;
  ImageRootPlan image;
  const ProcessPlace* beside = nullptr;
  const char* cwd = nullptr;
  std::string oom_score_adj;
  std::optional<cpu_set_t> processors;
  bool die_with_parent = false;
  pid_t parent = ::getpid();
  Fd null;
  int input_fd = -1;
  bool on_terminal = false;
  int output_fd = -1;
  int error_fd = -1;
  Fd failures;  // write end
};

[[noreturn]] void fail(const Plan& plan, const Failure& failure) {
  (void)!::write(plan.failures.get(), &failure, sizeof failure);
  ::_exit(127);
}

[[noreturn]] void fail(const Plan& plan, Step step, int error) {
  fail(plan, {step, error});
}

void reset_signals() {
  struct sigaction defaults = {};
  defaults.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &defaults, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// What is there and can't be run is told of rather than what is not there.
[[noreturn]] void run_program(const Plan& plan) {
  Failure failure{Step::Exec, 0};
  bool is_there = false;
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    ::execve(plan.programs[i].c_str(), plan.argv.data(), plan.env.data());
    if (errno == ENOEXEC) ::execve("/bin/sh", plan.script_argvs[i].data(), plan.env.data());
    const bool this_is = errno != ENOENT && errno != ENOTDIR;
    if (i == 0 || (this_is && !is_there)) failure = {Step::Exec, errno, static_cast<int>(i)};
    is_there = is_there || this_is;
    if (this_is && errno != EACCES) break;
  }
  fail(plan, failure);
}

// Runs in the child, whose memory may be the parent's until it execs (vfork): it only reads.
[[noreturn]] void become(const Plan& plan) {
  if (::setsid() < 0) fail(plan, Step::Session, errno);
  if (plan.on_terminal && ::ioctl(plan.input_fd, TIOCSCTTY, 0) != 0) fail(plan, Step::Session, errno);
  if (plan.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.parent) ::_exit(127);  // it died before that
  }
  for (const Fd& procs : plan.cgroup_procs) {
    if (::write(procs.get(), "0", 1) < 0) fail(plan, Step::Cgroup, errno);
  }
  if (!plan.oom_score_adj.empty()) {
    const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) (void)!::write(fd, plan.oom_score_adj.data(), plan.oom_score_adj.size());
  }
  if (plan.processors) (void)::sched_setaffinity(0, sizeof *plan.processors, &*plan.processors);
  if (!plan.data.empty()) {
    const DataMountPlan::Failure failure = plan.data.enter();
    if (failure.error != 0) fail(plan, {Step::Data, failure.error, 0, failure});
  }
  if (!plan.image.empty()) {
    const ImageRootPlan::Failure failure = plan.image.enter();
    if (failure.error != 0) fail(plan, {Step::Image, failure.error, 0, {}, failure});
  }
  if (plan.beside != nullptr) {
    if (const int error = plan.beside->enter(); error != 0) fail(plan, Step::Beside, error);
  }
  if (plan.cwd != nullptr && ::chdir(plan.cwd) != 0) fail(plan, Step::Directory, errno);
  if (::dup2(plan.input_fd, 0) < 0 || ::dup2(plan.output_fd, 1) < 0 ||
      ::dup2(plan.error_fd, 2) < 0) {
    fail(plan, Step::Descriptors, errno);
  }
  ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
  reset_signals();
  restore_limits();
  run_program(plan);
}

// Boost's launcher forks and wraps; the rest of the way is ours. Left to itself it would close
// descriptors by reading a directory, report a bare errno without saying of which step, and leave
// by exit(), which runs the parent's handlers. So its hook before exec is where the child stops
// being Boost's.
struct Become {
  const Plan& plan;
  template <typename Launcher>
  process::error_code on_exec_setup(Launcher&, const std::filesystem::path&, const char* const*&) {
    become(plan);
  }
};

std::string path_in(const SpawnRequest& request) {
  const auto variable = request.env.find("PATH");
  return variable == request.env.end() ? kDefaultPath : variable->second;
}

Result<std::vector<std::string>> find_programs(const SpawnRequest& request) {
  if (request.argv.empty() || request.argv[0].empty()) {
    return Error{Code::NotFound, "the command is empty", "write what to run, e.g. python train.py"};
  }
  const std::string& name = request.argv[0];
  if (request.beside != nullptr) return program_places(name, path_in(request));
  if (!request.image.files.empty() && name.find('/') == std::string::npos) {
    return Error{Code::NotFound, fmt::format("{}: in an image programs are named by their path", name), ""};
  }
  TRY(std::string program, find_program(name, path_in(request), request.cwd));
  return std::vector<std::string>{std::move(program)};
}

// Above 2, so that putting it on 0, 1 or 2 later is a real duplication and drops close-on-exec.
Fd open_above_stderr(const std::string& path, int flags) {
  Fd fd(::open(path.c_str(), flags | O_CLOEXEC));
  if (fd && fd.get() <= 2) fd.reset(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
  return fd;
}

Error not_possible(const std::string& what, int error);

Status join(const std::string& group, Plan& plan) {
  Fd procs = open_above_stderr(group + "/cgroup.procs", O_WRONLY);
  if (!procs) return not_possible("open " + group + "/cgroup.procs", errno);
  plan.cgroup_procs.push_back(std::move(procs));
  return ok();
}

Status prepare(const SpawnRequest& request, Plan& plan) {
  TRY(plan.programs, find_programs(request));
  for (const std::string& argument : request.argv) {
    plan.argv.push_back(const_cast<char*>(argument.c_str()));
  }
  plan.argv.push_back(nullptr);
  for (std::string& program : plan.programs) {
    auto& argv = plan.script_argvs.emplace_back(std::vector<char*>{const_cast<char*>("sh"), program.data()});
    argv.insert(argv.end(), plan.argv.begin() + 1, plan.argv.end());
  }
  for (const auto& [name, value] : request.env) plan.env_storage.push_back(name + "=" + value);
  for (std::string& variable : plan.env_storage) plan.env.push_back(variable.data());
  plan.env.push_back(nullptr);

  for (size_t i = 1; i < request.cgroups.size(); ++i) TRY(join(request.cgroups[i], plan));
  if (!request.cgroups.empty()) {
    const std::string& first = request.cgroups.front();
    plan.born_in = open_above_stderr(first, O_RDONLY | O_DIRECTORY);
    if (!plan.born_in) return not_possible("open " + first, errno);
  }
  if (!request.data.point.empty()) {
    TRY(plan.data, DataMountPlan::make(request.data));
  }
  if (!request.image.files.empty()) {
    TRY(plan.image, ImageRootPlan::make(request.image, request.image_layer));
  }
  plan.beside = request.beside;
  plan.cwd = request.cwd.empty() ? nullptr : request.cwd.c_str();
  if (!request.processors.empty()) {
    CPU_ZERO(&plan.processors.emplace());
    for (const int processor : request.processors) {
      if (processor >= 0 && processor < CPU_SETSIZE) CPU_SET(static_cast<size_t>(processor), &*plan.processors);
    }
  }
  if (request.oom_score_adj != 0) plan.oom_score_adj = std::to_string(request.oom_score_adj);
  plan.die_with_parent = request.die_with_parent;
  plan.null = open_above_stderr("/dev/null", O_RDWR);
  if (!plan.null) return errno_error("open /dev/null", errno);
  plan.input_fd = request.input_fd >= 0 ? request.input_fd : plan.null.get();
  plan.on_terminal = request.on_terminal;
  plan.output_fd = request.output_fd >= 0 ? request.output_fd : plan.null.get();
  plan.error_fd = request.error_fd >= 0 ? request.error_fd : plan.output_fd;
  return ok();
}

Error exec_error(const SpawnRequest& request, const std::string& program, int error) {
  const std::string text = std::strerror(error);
  const bool in_image = !request.image.files.empty();
  if (request.beside != nullptr && error == ENOENT) {
    if (request.argv[0].find('/') == std::string::npos) return command_not_found(request.argv[0], path_in(request));
    return {Code::NotFound, fmt::format("{}: {}", program, text), ""};
  }
  if (in_image && (error == ENOENT || error == ENOTDIR)) return {Code::NotFound, fmt::format("in the image: {}: {}", program, text), ""};
  if (error == ENOENT && ::access(program.c_str(), F_OK) == 0) {
    return {Code::NotFound,
            fmt::format("{}: the interpreter its first line names does not exist", program),
            "check the line after #! (and for \\r at its end)"};
  }
  if (error == ENOENT || error == ENOTDIR) {
    return {Code::NotFound, fmt::format("{}: {}", program, text), ""};
  }
  if (error == E2BIG) {
    return {Code::PermissionDenied, fmt::format("{}: {}", program, text),
            "arguments and environment together are too long"};
  }
  if (error == ENOMEM || error == EAGAIN) {
    return {Code::ResourceExhausted, fmt::format("{}: {}", program, text), ""};
  }
  return {Code::PermissionDenied, fmt::format("{}: {}", program, text),
          error == EACCES && request.argv[0].find('/') != std::string::npos
              ? fmt::format("chmod +x {}", request.argv[0])
              : ""};
}

// What there is too little of may be there later.
Error not_possible(const std::string& what, int error) {
  Error made = errno_error(what, error);
  if (made.code != Code::ResourceExhausted) made.code = Code::FailedPrecondition;
  return made;
}

Error failure_error(const SpawnRequest& request, const Plan& plan, const Failure& failure) {
  switch (failure.step) {
    case Step::Session:
      return not_possible(plan.on_terminal ? "a session with its terminal" : "a session", failure.error);
    case Step::Cgroup:
      return not_possible("joining " + request.cgroups.front(), failure.error);
    case Step::Data:
      return plan.data.explain(failure.data);
    case Step::Image:
      return plan.image.explain(failure.image);
    case Step::Beside:
      return not_possible("entering what it sees", failure.error);
    case Step::Directory:
      return {Code::FailedPrecondition,
              fmt::format("cannot enter the working directory {}: {}", request.cwd,
                          std::strerror(failure.error)),
              ""};
    case Step::Descriptors:
      return not_possible("connecting the output", failure.error);
    case Step::Exec:
      break;
  }
  return exec_error(request, plan.programs.at(static_cast<size_t>(failure.which)), failure.error);
}

// All signals stay away from the forking thread until the child has reset its own: a handler must
// not run in a child that shares the parent's memory.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  ~SignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// clone3 of a child that shares memory and stack with us until it execs, like vfork's: nothing is copied
// for it. The call must be made in place: from a function that returns, the child would return first and
// overwrite what the parent needs to return. -1: not here. Sanitizers keep books on the stack that the
// child would upset.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr uint64_t kShareMemory = CLONE_VM;
[[gnu::always_inline]] inline long clone3_in_place(clone_args& arguments) {
  long result = SYS_clone3;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(&arguments), "S"(sizeof arguments)
               : "rcx", "r11", "memory");
  return result;
}
#else
constexpr uint64_t kShareMemory = 0;
long clone3_in_place(clone_args& arguments) {
  return ::syscall(SYS_clone3, &arguments, sizeof arguments);
}
#endif

// A fork whose child is born in the group, which spares the wait of a process that joins one. Negative:
// this group or this kernel can't do that.
[[gnu::noinline]] pid_t fork_into(const Plan& plan, const Fd& group) {
  clone_args arguments{};
  arguments.flags = CLONE_INTO_CGROUP | CLONE_VFORK | kShareMemory;
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = static_cast<uint64_t>(group.get());
  const long pid = clone3_in_place(arguments);
  if (pid == 0) become(plan);
  return static_cast<pid_t>(pid);
}

Result<pid_t> launch(const SpawnRequest& request, Plan& plan) {
  const SignalsHeld signals_held;
  if (plan.born_in) {
    if (const pid_t pid = fork_into(plan, plan.born_in); pid > 0) return pid;
    TRY(join(request.cgroups.front(), plan));
  }
  try {
    // A context of its own: the launcher tells its context about the fork in the child too, and the
    // caller's would recreate its epoll there.
    asio::io_context context(1);
    process::posix::vfork_launcher launcher;
    process::error_code error;
    const std::vector<std::string> no_arguments;
    auto launched = launcher(context.get_executor(), error, std::filesystem::path(plan.programs.front()),
                             no_arguments, Become{plan});
    if (error) {
      return Error{Code::ResourceExhausted, fmt::format("cannot fork: {}", error.message()), ""};
    }
    launched.detach();  // reaped by us; its handle would end the process with itself
    return static_cast<pid_t>(launcher.pid);
  } catch (const std::exception& e) {
    return Error{Code::ResourceExhausted, fmt::format("cannot fork: {}", e.what()), ""};
  }
}

// A copy of this process; it does not wait for what the copy does.
Result<pid_t> fork_apart(const SpawnRequest& request, Plan& plan) {
  const SignalsHeld signals_held;
  if (plan.born_in) {
    clone_args arguments{};
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = SIGCHLD;
    arguments.cgroup = static_cast<uint64_t>(plan.born_in.get());
    const long pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0) become(plan);
    if (pid > 0) return static_cast<pid_t>(pid);
    TRY(join(request.cgroups.front(), plan));
  }
  const pid_t pid = ::fork();
  if (pid == 0) become(plan);
  if (pid < 0) return errno_error("cannot fork", errno);
  return pid;
}

// What becomes of the child comes through there.
Result<Fd> open_failures(Plan& plan) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  plan.failures.reset(ends[1]);
  return Fd(ends[0]);
}

ssize_t read_failure(int fd, Failure& failure) {
  ssize_t got;
  do {
    got = ::read(fd, &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

struct Spawning::Parts {
  SpawnRequest request;
  Plan plan;   // points into the request
};

Spawning::Spawning() : parts_(std::make_unique<Parts>()) {}
Spawning::~Spawning() = default;

Result<std::unique_ptr<Spawning>> Spawning::begin(SpawnRequest request) {
  std::unique_ptr<Spawning> made(new Spawning());
  Parts& parts = *made->parts_;
  parts.request = std::move(request);
  TRY(prepare(parts.request, parts.plan));
  TRY(made->failures_, open_failures(parts.plan));
  ::fcntl(made->failures_.get(), F_SETFL, O_NONBLOCK);
  TRY(made->pid_, fork_apart(parts.request, parts.plan));
  parts.plan.failures.reset();
  parts.plan.beside = nullptr;
  return made;
}

std::optional<Status> Spawning::outcome() const {
  Failure failure{};
  const ssize_t got = read_failure(failures_.get(), failure);
  if (got < 0 && errno == EAGAIN) return std::nullopt;
  if (got != static_cast<ssize_t>(sizeof failure)) return ok();
  return Status(failure_error(parts_->request, parts_->plan, failure));
}

Result<Child> spawn(const SpawnRequest& request) {
  Plan plan;
  TRY(prepare(request, plan));
  TRY(const Fd failures, open_failures(plan));
  TRY(const pid_t pid, launch(request, plan));
  plan.failures.reset();

  Failure failure{};
  if (read_failure(failures.get(), failure) == static_cast<ssize_t>(sizeof failure)) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return failure_error(request, plan, failure);
  }
  Child child;
  child.pid = pid;
  child.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  return child;
}

int exec_failure_code(const Error& error) {
  return error.code == Code::NotFound ? 127 : 126;
}

std::optional<int> try_reap(Child& child) {
  if (child.pid <= 0) return std::nullopt;
  int status = 0;
  pid_t got;
  do {
    got = ::waitpid(child.pid, &status, WNOHANG);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return std::nullopt;
  child.pid = -1;
  return status;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::string describe_wait_status(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return fmt::format("killed by {} ({})", signal_name(signal), signal);
  }
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace dtrain::runner
