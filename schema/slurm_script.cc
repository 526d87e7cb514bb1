#include "schema/slurm_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "schema/cluster_env.h"
#include "schema/expand.h"
#include "schema/kubeflow_container.h"
#include "schema/run_script.h"
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
    for (RoleSpec& one : spec_.roles) {
      std::erase(one.run, kIntoImageDirectory);   // there is no image
      const bool is_launcher = one.role == Role::Launcher;   // the script is that itself
      if (one.role == Role::Tensorboard || is_launcher) continue;
      tasks_.push_back({&one, count_, one.count});
      count_ += one.count;
      if (is_server(one)) servers_ += one.count;
    }
  }

  Exported exported() {
    leave_out();
    put_options();
    put_environment();
    if (spec_.framework == Framework::Pytorch) put_pytorch();
    if (spec_.framework == Framework::Jax) put_jax();
    if (spec_.framework == Framework::Mpi) {
      if (tells_replica()) line("export DTRAIN_REPLICA=\"$SLURM_JOB_ID.launcher\"");
      put_text("dtrain_run", "What starts the ranks.", run_script(spec_.decider().run));
      text_ += start("\"$dtrain_run\"");
    } else {
      put_tasks();
    }
    out_.text = std::move(text_);
    return std::move(out_);
  }

 private:
  static bool is_server(const RoleSpec& role) { return role.role == Role::Ps || role.role == Role::Evaluator; }
  bool tells_tf_config() const { return spec_.framework == Framework::Tensorflow && count_ > 1; }
  void line(const std::string& text) { text_ += text + "\n"; }
  void option(std::string_view name, const std::string& value) { line(fmt::format("#SBATCH --{}{}", name, value.empty() ? "" : "=" + value)); }
  // A variable of the script that holds a text as it is.
  void put_text(const std::string& name, const std::string& comment, const std::string& text) {
    std::string end = "END";
    while (("\n" + text + "\n").find("\n" + end + "\n") != std::string::npos) end += "_";
    text_ += fmt::format("\n# {0}\n{1}=$(cat <<'{2}'\n{3}{4}{2}\n)\n", comment, name, end, text, text.empty() || text.ends_with('\n') ? "" : "\n");
  }
  // Whether whoever submits says it, or the Spec does.
  bool is_given(const std::string& name) const {
    return spec_.env.contains(name) || std::ranges::find(spec_.env_from_shell, name) != spec_.env_from_shell.end();
  }
  std::vector<std::string> lines_of_all() const {
    std::vector<std::string> lines;
    for (const RoleSpec& one : spec_.roles) {
      if (one.role != Role::Tensorboard) lines.insert(lines.end(), one.run.begin(), one.run.end());
    }
    return lines;
  }
  bool tells_replica() const {
    return !names_in_lines(lines_of_all(), [](std::string_view name) { return name == "DTRAIN_REPLICA"; }).empty();
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
    lose(spec_.search.stop_early.has_value(), "stop-early", "a job is one member, and runs to its end");
    lose(spec_.role(Role::Tensorboard) != nullptr, "tensorboard", "one is started apart from the job");
    lose(spec_.priority != usual.priority, "priority", "--nice and --qos say it there");
    lose(!spec_.note.empty(), "note", "it says nothing to Slurm");
    lose(spec_.elastic.has_value(), "elastic", "a job begins with all of its tasks");
    const bool is_limited = std::ranges::any_of(tasks_, [](const Tasks& one) { return one.role->per_host > 0; });
    lose(is_limited && per_host() == 0, "per-host", "a job counts all of its tasks on a node, of whatever role");
    const auto is_trainer = [](const RoleSpec& one) { return one.role != Role::Tensorboard; };
    lose(std::ranges::any_of(spec_.roles, [&](const RoleSpec& one) { return is_trainer(one) && restarts(one.on_failure); }), "restart",
         "who wants it again submits it again");
    lose(!spec_.failure_policy.empty(), "failure-policy", "nobody looks there at what it prints");
    const auto is_ignored = [&](const RoleSpec& one) { return is_trainer(one) && !is_server(one) && one.on_failure == OnFailure::Ignore; };
    lose(std::ranges::any_of(spec_.roles, is_ignored), "on-failure: ignore", "one that fails ends the job");
    lose(spec_.stop_grace_ms != usual.stop_grace_ms, "stop-grace", "KillWait of the cluster says it there");
    const int64_t usual_grace = spec_.framework == Framework::Mpi ? 0 : usual.finish_grace_ms;
    lose(spec_.finish_grace_ms != usual_grace, "finish-grace", "a job ends when all of its workers have");
    lose(spec_.hard_cpus || spec_.hard_memory, "limits", "whether they are caps is the cluster's to say");
    const bool are_alike = std::ranges::all_of(tasks_, [&](const Tasks& one) { return one.role->resources == tasks_.front().role->resources; });
    if (!are_alike) out_.notes.push_back("each task gets the most that one of them asks for: those of a job are all alike");
    const auto missed = names_in_lines(lines_of_all(), [](std::string_view name) {
      const bool is_ours = name.starts_with("DTRAIN_") && name != "DTRAIN_REPLICA";
      return is_ours || name == "AFTER_DIR" || name == "RESUME_DIR" || name == "EXPERIMENT_ID";
    });
    if (!missed.empty()) out_.notes.push_back(fmt::format("not set in a job, and in what is run: {}", fmt::join(missed, ", ")));
    note_ending();
    if (spec_.framework == Framework::Mpi) note_ranks();
    out_.notes.push_back("all nodes have to see the project's directory, in which sbatch is called");
  }

  void note_ending() {
    const bool some_fail = std::ranges::any_of(spec_.roles, [](const RoleSpec& one) {
      return is_server(one) && one.on_failure != OnFailure::Ignore;
    });
    if (some_fail) out_.notes.push_back("a parameter server or evaluator that fails does not end the job");
    const bool decides = spec_.framework != Framework::Mpi && spec_.completion == Completion::Decider && count_ - servers_ > 1;
    if (!decides) return;
    out_.notes.push_back(fmt::format("the job ends when all of its workers have: the {} does not decide", to_string(spec_.decider().role)));
  }
  void note_ranks() {
    const Resources& worker = tasks_.front().role->resources;
    const Resources& launcher = spec_.decider().resources;
    const int parts = processes(*tasks_.front().role);
    if (launcher.gpus > 0 || launcher.cpus > worker.cpus || launcher.memory_bytes > worker.memory_bytes) {
      out_.notes.push_back("the launcher runs beside the first ranks, with what those have: it gets no resources of its own");
    }
    if (worker.gpus > 0 && parts > 1) {
      out_.notes.push_back(fmt::format("GPUs are asked for by rank, {} each; with dtrain the {} ranks of a worker share {}",
                                       gpus_each(worker.gpus, parts), parts, worker.gpus));
    }
  }
  // Of the tasks on a node, at the most, where it is the same role that all of them have; 0: no matter.
  int per_host() const {
    const bool is_one_role = std::ranges::all_of(tasks_, [&](const Tasks& one) { return counted_as(one.role->role) == counted_as(tasks_.front().role->role); });
    return is_one_role ? tasks_.front().role->per_host : 0;
  }
  static int gpus_each(int gpus, int parts) { return std::max(1, gpus / parts); }

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
    if (per_host() > 0) option("ntasks-per-node", std::to_string(per_host() * parts));
    option("cpus-per-task", std::to_string(cpus));
    option("mem-per-cpu", fmt::format("{}M", std::max<int64_t>(mib, 1)));
    if (most.gpus > 0) option("gpus-per-task", std::to_string(gpus_each(most.gpus, parts)));
    if (spec_.max_duration_ms > 0) option("time", time_limit(spec_.max_duration_ms));
    if (spec_.preemptible) option("requeue", "");
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
    if (!is_given("OMP_NUM_THREADS")) line("export OMP_NUM_THREADS=\"$SLURM_CPUS_PER_TASK\"");
    if (!is_given("PYTHONUNBUFFERED")) line("export PYTHONUNBUFFERED=1");
    line("export OUTPUT_DIR=\"$PWD/runs/slurm-$SLURM_JOB_ID\"");
    line("mkdir -p \"$OUTPUT_DIR\" || exit");
    for (const std::string& name : spec_.env_from_shell) line(fmt::format(": \"${{{}?has to be set in the shell that submits}}\"", name));
    if (spec_.data.empty()) return;
    line("export DATA_DIR=\"$OUTPUT_DIR/.data\"");
    line("mkdir -p \"$DATA_DIR\" || exit");
    for (const auto& [name, path] : spec_.data) line(fmt::format("ln -sfn {} \"$DATA_DIR/{}\" || exit", shell_quoted(path), name));
  }

  // What becomes a process. Its variables are for it alone: this script and Slurm's programs have some by the same names.
  std::string start(const std::string& script) const {
    std::map<std::string, std::string> texts = spec_.env;
    for (const Parameter& parameter : spec_.parameters) texts[parameter_env_name(parameter.name)] = parameter.values.front();
    for (const auto& [name, path] : spec_.data) texts[parameter_env_name(name) + "_DIR"] = path;
    std::string text = texts.empty() ? "exec " : "exec env \\\n  ";
    for (const auto& [name, value] : texts) text += fmt::format("{}={} \\\n  ", name, shell_quoted(value));
    return text + "/bin/sh -c " + script + "\n";
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

  void put_jax() {
    text_ += fmt::format(R"(
COORDINATOR_ADDRESS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
COORDINATOR_PORT=$((20000 + SLURM_JOB_ID % 10000))
export COORDINATOR_ADDRESS COORDINATOR_PORT NUM_PROCESSES={0} JAX_NUM_PROCESSES={0}
export JAX_COORDINATOR_ADDRESS="$COORDINATOR_ADDRESS:$COORDINATOR_PORT" JAX_COORDINATOR_PORT="$COORDINATOR_PORT"
)", count_);
  }

  // ---- its tasks

  void put_tasks() {
    const bool are_numbered = spec_.framework == Framework::Pytorch || spec_.framework == Framework::Jax || tells_tf_config() || tells_replica() || tasks_.size() > 1;
    std::string task = are_numbered ? "dtrain_number=$((SLURM_PROCID + $1))\n" : "";
    if (spec_.framework == Framework::Pytorch) task += pytorch_of_task();
    if (spec_.framework == Framework::Jax) task += "export PROCESS_ID=\"$dtrain_number\" JAX_PROCESS_ID=\"$dtrain_number\"\n";
    if (tells_tf_config()) task += tf_config_of_task();
    if (tells_replica()) task += replica_of_task();
    std::string scripts;
    int number = 0;
    // Neighbours that run the same do so as one.
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const Tasks& first = tasks_[i];
      std::string who(to_string(first.role->role));
      while (i + 1 < tasks_.size() && tasks_[i + 1].role->run == first.role->run) who += fmt::format(", {}", to_string(tasks_[++i].role->role));
      const std::string name = fmt::format("dtrain_run_{}", ++number);
      put_text(name, fmt::format("What is run by: {}.", who), run_script(first.role->run));
      scripts += fmt::format(" \"${}\"", name);
      if (number == 1) {
        task += "dtrain_run=$2\n";
      } else {
        task += from(first.first, fmt::format("dtrain_run=${}", number + 1));
      }
    }
    if (tells_tf_config()) {
      text_ += "\n# Where the tasks are, which each of them writes down.\nrm -rf \"$OUTPUT_DIR/.places\" && mkdir \"$OUTPUT_DIR/.places\" || exit\n";
    }
    put_text("dtrain_task", "What each task does.", task + start("\"$dtrain_run\""));
    const int trainers = count_ - servers_;
    if (servers_ > 0) text_ += "# Servers end with this script.\n";
    if (servers_ > 0) text_ += fmt::format("srun --label --exact --ntasks={} sh -c \"$dtrain_task\" task {}{} &\n", servers_, trainers, scripts);
    text_ += fmt::format("srun --label --exact --ntasks={} --kill-on-bad-exit=1 sh -c \"$dtrain_task\" task 0{}\n", trainers, scripts);
  }

  // What counts for a task and those after it.
  static std::string from(int first, const std::string& line) {
    return first == 0 ? line + "\n" : fmt::format("[ \"$dtrain_number\" -lt {} ] || {{ {}; }}\n", first, line);
  }

  std::string pytorch_of_task() const {
    int before = 0;
    std::string text;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const Tasks& one = tasks_[i];
      const int each = processes(*one.role);
      const bool are_alike = std::ranges::all_of(tasks_, [&](const Tasks& other) { return processes(*other.role) == each; });
      const std::string rank = one.first == 0 ? fmt::format("dtrain_number * {}", each)
                                              : fmt::format("{} + (dtrain_number - {}) * {}", before, one.first, each);
      text += from(one.first, fmt::format("RANK=$(({})) LOCAL_WORLD_SIZE={}", rank, each));
      if (are_alike) break;
      before += one.count * each;
    }
    const bool are_several = spec_.pytorch.nproc_per_node != 1 && !is_given("OMP_NUM_THREADS");
    if (are_several) text += "export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK > LOCAL_WORLD_SIZE ? SLURM_CPUS_PER_TASK / LOCAL_WORLD_SIZE : 1))\n";
    return text +
           "export RANK LOCAL_WORLD_SIZE LOCAL_RANK=0 NODE_RANK=\"$dtrain_number\" GROUP_RANK=\"$dtrain_number\"\n"
           "export PET_NODE_RANK=\"$dtrain_number\" PET_NPROC_PER_NODE=\"$LOCAL_WORLD_SIZE\"\n";
  }

  // As ids.h has it, in the job of that number.
  std::string replica_of_task() const {
    std::string text;
    for (const Tasks& one : tasks_) {
      std::string name(to_string(one.role->role));
      if (is_numbered(one.role->role)) name += fmt::format(".$((dtrain_number - {}))", one.first - 1);
      text += from(one.first, fmt::format("DTRAIN_REPLICA=\"$SLURM_JOB_ID.{}\"", name));
    }
    return text + "export DTRAIN_REPLICA\n";
  }

  // Each writes down where it is, and what it is told is made of what all have written.
  std::string tf_config_of_task() const {
    std::string text = "dtrain_places=\"$OUTPUT_DIR/.places\"\n"
                       "echo \"\\\"$SLURMD_NODENAME:$((20000 + (SLURM_JOB_ID * 64 + dtrain_number) % 10000))\\\"\" > \"$dtrain_places/.$dtrain_number\"\n"
                       "mv \"$dtrain_places/.$dtrain_number\" \"$dtrain_places/$dtrain_number\"\n";
    text += fmt::format("until [ \"$(ls \"$dtrain_places\" | wc -l)\" -eq {} ]; do sleep 1; done\n", count_);
    text += "# dtrain_part FIRST LAST: where those tasks are, as JSON has it.\n"
            "dtrain_part() { seq \"$1\" \"$2\" | sed \"s|^|$dtrain_places/|\" | xargs -d '\\n' cat | paste -sd, -; }\n";
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
      cluster += fmt::format("{}\\\"{}\\\":[$(dtrain_part {} {})]", cluster.empty() ? "" : ",", part.type, part.first, part.last);
    }
    text += fmt::format("dtrain_cluster=\"{}\"\n", cluster);
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      const std::string index = part.first == 0 ? "$dtrain_number" : fmt::format("$((dtrain_number - {}))", part.first);
      std::string line = fmt::format("dtrain_type={} dtrain_index={}", part.type, index);
      if (part.type == "evaluator") {
        line += fmt::format(" dtrain_cluster=\"$dtrain_cluster,\\\"evaluator\\\":[$(dtrain_part {} {})]\"", part.first, part.last);
      }
      text += from(part.first, line);
    }
    return text + "export TF_CONFIG=\"{\\\"cluster\\\":{$dtrain_cluster},\\\"task\\\":{\\\"type\\\":\\\"$dtrain_type\\\",\\\"index\\\":$dtrain_index}}\"\n";
  }

  Spec spec_;
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
