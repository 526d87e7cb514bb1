#include "schema/slurm_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "schema/cluster_env.h"
#include "schema/expand.h"
#include "schema/shell_words.h"

namespace dtrain {

namespace {

// Those of a role, counted from the first: as many tasks of Slurm.
struct Tasks {
  const RoleSpec* role;
  int first;
  int count;
  int after() const { return first + count; }
};

std::string time_limit(int64_t ms) {
  const int64_t s = (ms + 999) / 1000, hours = s / 3600;
  return fmt::format("{}-{:02}:{:02}:{:02}", hours / 24, hours % 24, s / 60 % 60, s % 60);
}

class Script {
 public:
  explicit Script(const Spec& spec) : spec_(spec) {
    for (const RoleSpec& one : spec.roles) {
      const bool is_launcher = one.role == Role::Launcher;   // the script is that itself
      if (one.role == Role::Tensorboard || is_launcher) continue;
      tasks_.push_back({&one, count_, one.count});
      count_ += one.count;
      if (one.role == Role::Ps || one.role == Role::Evaluator) servers_ += one.count;
    }
  }

  Exported exported() {
    leave_out();
    put_options();
    put_environment();
    if (spec_.framework == Framework::Pytorch) put_pytorch();
    if (spec_.framework == Framework::Mpi) {
      text_ += "\n" + lines_of(spec_.decider());
    } else {
      put_tasks();
    }
    out_.text = std::move(text_);
    return std::move(out_);
  }

 private:
  bool tells_tf_config() const { return spec_.framework == Framework::Tensorflow && count_ > 1; }
  void line(const std::string& text) { text_ += text + "\n"; }
  void option(std::string_view name, const std::string& value) { line(fmt::format("#SBATCH --{}{}", name, value.empty() ? "" : "=" + value)); }
  void set(const std::string& name, const std::string& value) { line(fmt::format("export {}={}", name, shell_quoted(value))); }

  std::vector<std::string> lines_of_all() const {
    std::vector<std::string> lines;
    for (const RoleSpec& one : spec_.roles) {
      if (one.role != Role::Tensorboard) lines.insert(lines.end(), one.run.begin(), one.run.end());
    }
    return lines;
  }

  int processes(const RoleSpec& role) const {
    Seat seat;
    seat.replica.role = role.role;
    seat.gpus.resize(static_cast<size_t>(role.resources.gpus));
    return processes_in(spec_, seat);
  }

  // ---- what has no place there

  void lose(bool is_there, std::string key, std::string why) {
    if (is_there) out_.left_out.push_back({std::move(key), std::move(why)});
  }
  void leave_out() {
    const Spec usual;
    lose(!spec_.image.empty(), "image", "what it holds has to be on the nodes");
    lose(!spec_.mounts.empty(), "mounts", "without an image all of a node is there as it is");
    lose(!spec_.install.empty(), "install", "it has to be done before");
    lose(!spec_.tensorflow.version.empty(), "version", "it has to be there before");
    lose(spec_.python != usual.python, "python", "commands find that of the shell which submits");
    lose(!spec_.outputs.empty(), "outputs", "all tasks work in the project's directory itself");
    lose(!spec_.hosts.empty(), "hosts", "--nodelist and --constraint say it there");
    lose(!spec_.after.empty() || !spec_.after_end.empty(), "after", "sbatch --dependency says it there");
    lose(!spec_.metrics.empty(), "metrics", "they are in the job's output");
    lose(spec_.role(Role::Tensorboard) != nullptr, "tensorboard", "one is started apart from the job");
    lose(spec_.priority != usual.priority, "priority", "--nice and --qos say it there");
    lose(!spec_.note.empty(), "note", "it says nothing to Slurm");
    lose(spec_.elastic.has_value(), "elastic", "a job begins with all of its tasks");
    const auto is_trainer = [](const RoleSpec& one) { return one.role != Role::Tensorboard; };
    lose(std::ranges::any_of(spec_.roles, [&](const RoleSpec& one) { return is_trainer(one) && restarts(one.on_failure); }), "restart",
         "who wants it again submits it again");
    lose(std::ranges::any_of(spec_.roles, [&](const RoleSpec& one) { return is_trainer(one) && one.on_failure == OnFailure::Ignore; }),
         "on-failure: ignore", "one that fails ends the job");
    lose(spec_.stop_grace_ms != usual.stop_grace_ms, "stop-grace", "KillWait of the cluster says it there");
    const int64_t usual_grace = spec_.framework == Framework::Mpi ? 0 : usual.finish_grace_ms;
    lose(spec_.finish_grace_ms != usual_grace, "finish-grace", "a job ends when all of its workers have");
    lose(spec_.hard_cpus || spec_.hard_memory, "limits", "whether they are caps is the cluster's to say");
    const bool are_alike = std::ranges::all_of(tasks_, [&](const Tasks& one) { return one.role->resources == tasks_.front().role->resources; });
    if (!are_alike) out_.notes.push_back("each task gets the most that one of them asks for: those of a job are all alike");
    const auto missed = names_in_lines(lines_of_all(), [](std::string_view name) {
      return name.starts_with("DTRAIN_") || name == "AFTER_DIR" || name == "EXPERIMENT_ID" || name == "DATA_DIR";
    });
    if (!missed.empty()) out_.notes.push_back(fmt::format("not set in a job, and in what is run: {}", fmt::join(missed, ", ")));
    if (servers_ > 0) out_.notes.push_back("a parameter server or evaluator that fails does not end the job");
    out_.notes.push_back("all nodes have to see the project's directory, in which sbatch is called");
  }

  // ---- the job

  void put_options() {
    Resources most{0, 0, 0};
    for (const Tasks& one : tasks_) {
      most.cpus = std::max(most.cpus, one.role->resources.cpus);
      most.memory_bytes = std::max(most.memory_bytes, one.role->resources.memory_bytes);
      most.gpus = std::max(most.gpus, one.role->resources.gpus);
    }
    // A task is a rank of MPI, of which a replica has several.
    const int parts = spec_.framework == Framework::Mpi ? processes(*tasks_.front().role) : 1;
    const int cpus = std::max(1, static_cast<int>(std::ceil(most.cpus / parts)));
    const auto mib = static_cast<int64_t>(std::ceil(static_cast<double>(most.memory_bytes) / (1 << 20) / parts / cpus));
    line("#!/bin/sh");
    option("job-name", spec_.name.empty() ? spec_.project : one_line(spec_.name));
    option("ntasks", std::to_string(count_ * parts));
    option("cpus-per-task", std::to_string(cpus));
    option("mem-per-cpu", fmt::format("{}M", std::max<int64_t>(mib, 1)));
    if (most.gpus > 0) option("gpus-per-task", std::to_string(std::max(1, most.gpus / parts)));
    if (spec_.max_duration_ms > 0) option("time", time_limit(spec_.max_duration_ms));
    if (spec_.suspend) option("hold", "");
  }
  // Options are words apart.
  static std::string one_line(std::string name) {
    std::ranges::replace_if(name, [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '\'' || c == '\\' || c == '#'; }, '-');
    return name;
  }

  void put_environment() {
    line("");
    line("export SRUN_CPUS_PER_TASK=\"$SLURM_CPUS_PER_TASK\"  # srun does not ask for what sbatch was given");
    line("export OMP_NUM_THREADS=\"$SLURM_CPUS_PER_TASK\"");
    line("export PYTHONUNBUFFERED=1");
    line("export OUTPUT_DIR=\"$PWD/runs/slurm-$SLURM_JOB_ID\"");
    line("mkdir -p \"$OUTPUT_DIR\" || exit");
    for (const std::string& name : spec_.env_from_shell) line(fmt::format(": \"${{{}?has to be set in the shell that submits}}\"", name));
    for (const auto& [name, value] : spec_.env) set(name, value);
    for (const Parameter& parameter : spec_.parameters) set(parameter_env_name(parameter.name), parameter.values.front());
    for (const auto& [name, path] : spec_.data) set(parameter_env_name(name) + "_DIR", path);
  }

  void put_pytorch() {
    int world = 0;
    for (const Tasks& one : tasks_) world += one.count * processes(*one.role);
    text_ += fmt::format(R"(
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
WORLD_SIZE={}
export MASTER_ADDR MASTER_PORT WORLD_SIZE PET_MASTER_ADDR="$MASTER_ADDR" PET_MASTER_PORT="$MASTER_PORT" PET_NNODES={}
)", world, count_);
  }

  // ---- its tasks

  // A line after another, until one fails.
  std::string lines_of(const RoleSpec& role) const {
    std::string text = role.run.size() > 1 ? "set -e\n" : "";
    for (const std::string& one : role.run) text += one + (one.ends_with('\n') ? "" : "\n");
    return text;
  }

  void put_tasks() {
    const bool are_numbered = spec_.framework == Framework::Pytorch || tells_tf_config() || tasks_.size() > 1;
    std::string task = are_numbered ? "number=$((SLURM_PROCID + ${1:-0}))\n" : "";
    if (spec_.framework == Framework::Pytorch) task += pytorch_of_task();
    if (tells_tf_config()) task += tf_config_of_task();
    // Neighbours that run the same do so as one.
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const size_t begin = i;
      std::string who(to_string(tasks_[i].role->role));
      while (i + 1 < tasks_.size() && tasks_[i + 1].role->run == tasks_[begin].role->run) who += fmt::format(", {}", to_string(tasks_[++i].role->role));
      const std::string lines = lines_of(*tasks_[begin].role);
      const bool is_first = begin == 0, is_last = i + 1 == tasks_.size();
      if (is_first && is_last) {
        task += lines;
      } else if (is_last) {
        task += fmt::format("else  # {}\n{}fi\n", who, lines);
      } else {
        task += fmt::format("{} [ \"$number\" -lt {} ]; then  # {}\n{}", is_first ? "if" : "elif", tasks_[i].after(), who, lines);
      }
    }
    std::string end = "TASK";
    while (("\n" + task).find("\n" + end + "\n") != std::string::npos) end += "_";
    if (tells_tf_config()) {
      text_ += "\n# Where the tasks are, which each of them writes down.\nexport PLACES=\"$OUTPUT_DIR/.places\"\n"
               "rm -rf \"$PLACES\" && mkdir \"$PLACES\" || exit\n";
    }
    text_ += fmt::format("\n# What each task does.\ntask=$(cat <<'{0}'\n{1}{0}\n)\n", end, task);
    const int trainers = count_ - servers_;
    if (servers_ > 0) text_ += "# Servers end with this script.\n";
    if (servers_ > 0) text_ += fmt::format("srun --label --exact --ntasks={} sh -c \"$task\" task {} &\n", servers_, trainers);
    text_ += fmt::format("srun --label --exact --ntasks={} --kill-on-bad-exit=1 sh -c \"$task\"\n", trainers);
  }

  // What counts for a task and those after it.
  static std::string from(int first, const std::string& line) {
    return first == 0 ? line + "\n" : fmt::format("[ \"$number\" -lt {} ] || {{ {}; }}\n", first, line);
  }

  std::string pytorch_of_task() const {
    int before = 0;
    std::string text;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const Tasks& one = tasks_[i];
      const int each = processes(*one.role);
      const bool are_alike = std::ranges::all_of(tasks_, [&](const Tasks& other) { return processes(*other.role) == each; });
      const std::string rank = one.first == 0 ? fmt::format("number * {}", each) : fmt::format("{} + (number - {}) * {}", before, one.first, each);
      text += from(one.first, fmt::format("RANK=$(({})) LOCAL_WORLD_SIZE={}", rank, each));
      if (are_alike) break;
      before += one.count * each;
    }
    const bool are_several = spec_.pytorch.nproc_per_node != 1 && !spec_.env.contains("OMP_NUM_THREADS");
    if (are_several) text += "export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK > LOCAL_WORLD_SIZE ? SLURM_CPUS_PER_TASK / LOCAL_WORLD_SIZE : 1))\n";
    return text +
           "export RANK LOCAL_WORLD_SIZE LOCAL_RANK=0 NODE_RANK=\"$number\" GROUP_RANK=\"$number\"\n"
           "export PET_NODE_RANK=\"$number\" PET_NPROC_PER_NODE=\"$LOCAL_WORLD_SIZE\"\n";
  }

  // Each writes down where it is, and what it is told is made of what all have written.
  std::string tf_config_of_task() const {
    std::string text = "echo \"\\\"$SLURMD_NODENAME:$((20000 + (SLURM_JOB_ID * 64 + number) % 10000))\\\"\" > \"$PLACES/.$number\"\n"
                       "mv \"$PLACES/.$number\" \"$PLACES/$number\"\n";
    text += fmt::format("until [ \"$(ls \"$PLACES\" | wc -l)\" -eq {} ]; do sleep 1; done\n", count_);
    text += "# places FIRST LAST: those of tasks, as JSON has them.\nplaces() { seq \"$1\" \"$2\" | sed \"s|^|$PLACES/|\" | xargs -d '\\n' cat | paste -sd, -; }\n";
    struct Part {
      std::string type;
      int first, last;
    };
    std::vector<Part> parts;
    for (const Tasks& one : tasks_) {
      const std::string type = tensorflow_task(spec_, ReplicaId{{}, one.role->role, 1}).type;
      if (!parts.empty() && parts.back().type == type) {
        parts.back().last = one.after() - 1;
      } else {
        parts.push_back({type, one.first, one.after() - 1});
      }
    }
    std::string cluster;
    for (const Part& part : parts) {
      if (part.type == "evaluator") continue;
      cluster += fmt::format("{}\\\"{}\\\":[$(places {} {})]", cluster.empty() ? "" : ",", part.type, part.first, part.last);
    }
    text += fmt::format("cluster=\"{}\"\n", cluster);
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      std::string line = fmt::format("type={} index={}", part.type, part.first == 0 ? "$number" : fmt::format("$((number - {}))", part.first));
      if (part.type == "evaluator") line += fmt::format(" cluster=\"$cluster,\\\"evaluator\\\":[$(places {} {})]\"", part.first, part.last);
      text += from(part.first, line);
    }
    return text + "export TF_CONFIG=\"{\\\"cluster\\\":{$cluster},\\\"task\\\":{\\\"type\\\":\\\"$type\\\",\\\"index\\\":$index}}\"\n";
  }

  const Spec& spec_;
  std::vector<Tasks> tasks_;
  int count_ = 0;
  int servers_ = 0;  // the last of them, who end with the others
  std::string text_;
  Exported out_;
};

}  // namespace

Result<Exported> slurm_script(const Spec& spec) {
  if (spec.framework == Framework::Engine) {
    return Error{Code::InvalidArgument, "framework: engine is trained by dtrain-engine, which dtrain starts itself", "pools in config.yml have Slurm lend it hosts"};
  }
  return Script(spec).exported();
}

}  // namespace dtrain
