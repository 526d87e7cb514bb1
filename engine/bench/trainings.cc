#include "engine/bench/trainings.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

extern char** environ;

namespace dtrain::engine {

namespace fs = std::filesystem;

// ---- what they need

Result<ScratchFolder> ScratchFolder::create() {
  std::error_code error;
  std::string name = (fs::temp_directory_path(error) / "dtrain-bench-XXXXXX").native();
  if (error || ::mkdtemp(name.data()) == nullptr)
    return errno_error("make a folder like " + name, errno);
  return ScratchFolder(name);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

// Bound, but not listening: a listener that may reuse addresses can join it, and no one else is
// given it.
Result<ReservedPort> ReservedPort::take() {
  ReservedPort port;
  port.fd_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* address = reinterpret_cast<sockaddr*>(&at);
  if (!port.fd_ || ::setsockopt(port.fd_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
      ::bind(port.fd_.get(), address, size) != 0 ||
      ::getsockname(port.fd_.get(), address, &size) != 0) {
    return errno_error("find a free port", errno);
  }
  port.port_ = ntohs(at.sin_port);
  return port;
}

std::string ReservedPort::address() const {
  return fmt::format("127.0.0.1:{}", port_);
}

// ---- processes

namespace {

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Its last lines.
std::string tail(const std::string& text) {
  const size_t most = 1000;
  std::string end = text.size() > most ? text.substr(text.size() - most) : text;
  while (!end.empty() && end.back() == '\n') end.pop_back();
  return end;
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string entry = *each;
    if (!changes.contains(entry.substr(0, entry.find('=')))) all.push_back(entry);
  }
  for (const auto& [name, value] : changes) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

class Process {
 public:
  Process(Command command, const fs::path& out, const fs::path& err)
      : name_(command.words.front()), out_(out), err_(err) {
    std::vector<std::string> environment = environment_with(command.environment);
    const std::vector<char*> words = pointers(command.words), variables = pointers(environment);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), 1);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
    ::execvpe(words[0], words.data(), variables.data());
    ::_exit(127);
  }
  ~Process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Status wait() {
    if (pid_ < 0) return errno_error("start " + name_, EAGAIN);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ok();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
      return Error{Code::NotFound, fmt::format("can't run {}", name_), ""};
    }
    return Error{Code::Unavailable,
                 WIFEXITED(status)
                     ? fmt::format("{} ended with code {}", name_, WEXITSTATUS(status))
                     : fmt::format("{} was ended by signal {}", name_, WTERMSIG(status)),
                 tail(read_all(err_))};
  }
  std::string output() const { return read_all(out_); }

 private:
  pid_t pid_ = -1;
  const std::string name_;
  const fs::path out_, err_;
};

}  // namespace

Result<std::vector<std::string>> run_commands(const std::vector<Command>& commands) {
  TRY(const ScratchFolder scratch, ScratchFolder::create());
  std::vector<std::unique_ptr<Process>> processes;
  for (const Command& command : commands) {
    const std::string number = std::to_string(processes.size());
    processes.push_back(std::make_unique<Process>(command, scratch.path() / ("out" + number),
                                                  scratch.path() / ("err" + number)));
  }
  std::vector<std::string> outputs;
  for (const auto& process : processes) {
    TRY(process->wait());
    outputs.push_back(process->output());
  }
  return outputs;
}

Result<std::string> run_command(const Command& command) {
  TRY(auto outputs, run_commands({command}));
  return std::move(outputs.front());
}

// ---- what they tell

std::vector<Line> parse_lines(const std::string& text) {
  std::vector<Line> lines;
  std::istringstream all(text);
  for (std::string each; std::getline(all, each);) {
    Line line;
    std::istringstream words(each);
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      line[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

int64_t TrainingRecord::samples() const {
  int64_t sum = 0;
  for (const MeasuredInterval& each : intervals) sum += each.samples;
  return sum;
}

double TrainingRecord::seconds() const {
  double sum = 0;
  for (const MeasuredInterval& each : intervals) sum += each.seconds;
  return sum;
}

size_t TrainingRecord::reached(double accuracy) const {
  size_t i = 0;
  while (i < intervals.size() && intervals[i].accuracy < accuracy) ++i;
  return i;
}

namespace {

double number(const Line& line, const char* key, double otherwise) {
  const auto found = line.find(key);
  return found == line.end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
}
int64_t whole(const Line& line, const char* key) {
  return std::llround(number(line, key, 0));
}

// Samples of that many steps.
int64_t samples_of_steps(const EngineSpec& spec, int64_t batch, int64_t steps) {
  const int64_t of_an_epoch = (spec.epoch_samples + batch - 1) / batch;
  return steps / of_an_epoch * spec.epoch_samples + steps % of_an_epoch * batch;
}

TrainingRecord record_of(const std::string& output, const EngineSpec& spec, int64_t batch) {
  TrainingRecord record;
  int64_t before = 0;
  for (const Line& line : parse_lines(output)) {
    if (line.contains("memory")) {
      record.parameters = whole(line, "parameters");
      record.gradients = whole(line, "gradients");
      record.state = whole(line, "state");
      record.activations = whole(line, "activations");
    }
    if (!line.contains("samples_per_second")) continue;
    const int64_t step = whole(line, "step");
    const int64_t samples =
        samples_of_steps(spec, batch, step) - samples_of_steps(spec, batch, before);
    record.intervals.push_back(
        {.step = step,
         .samples = samples,
         .seconds = static_cast<double>(samples) / number(line, "samples_per_second", 0),
         .accuracy = number(line, "accuracy", -1)});
    before = step;
  }
  return record;
}

}  // namespace

Result<TrainingRecord> run_training(const std::string& program, const EngineSpec& spec, int workers,
                                    const std::map<std::string, std::string>& environment) {
  TRY(const ScratchFolder scratch, ScratchFolder::create());
  std::vector<ReservedPort> ports;
  nlohmann::json addresses = nlohmann::json::array();
  for (int i = 0; i < workers; ++i) {
    TRY(ports.emplace_back(), ReservedPort::take());
    addresses.push_back(ports.back().address());
  }
  std::vector<Command> commands;
  for (int i = 0; i < workers; ++i) {
    const nlohmann::json place = {{"cluster", {{"worker", addresses}}},
                        {"task", {{"type", "worker"}, {"index", i}}}};
    commands.push_back({{program, "train"},
                        {{kEngineVariable, to_json(spec)},
                         {"TF_CONFIG", workers == 1 ? "" : place.dump()},
                         {"OUTPUT_DIR", (scratch.path() / "out").native()},
                         {"EXPERIMENT_ID", scratch.path().native()},
                         {"DTRAIN_ATTEMPT", "1"}}});
    // On CPUs, unless the bench says otherwise.
    commands.back().environment.emplace("CUDA_VISIBLE_DEVICES", "");
    for (const auto& [name, value] : environment) commands.back().environment[name] = value;
  }
  TRY(const auto outputs, run_commands(commands));
  const int64_t batch = static_cast<int64_t>(spec.batch) * (spec.weak_scaling ? workers : 1);
  TrainingRecord record = record_of(outputs.front(), spec, batch);
  if (record.intervals.empty() || record.seconds() <= 0) {
    return Error{Code::Internal, "a training told nothing of its steps", tail(outputs.front())};
  }
  return record;
}

}  // namespace dtrain::engine
