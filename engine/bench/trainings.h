// Trainings by the program itself, as dtrain would start them: real processes that find each other
// by TF_CONFIG. For benches: what is measured is what is used.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "schema/engine_spec.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::engine {

// A folder of its own, gone with its owner.
class ScratchFolder {
 public:
  static Result<ScratchFolder> create();
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// A free port of 127.0.0.1 that nobody else gets while this lives; a server may listen there.
class ReservedPort {
 public:
  static Result<ReservedPort> take();
  std::string address() const;

 private:
  Fd fd_;
  int port_ = 0;
};

// Runs a command to its end: what it wrote to stdout. Unavailable, with the end of what it wrote to
// stderr, if it failed. It dies with this process.
struct Command {
  std::vector<std::string> words;
  std::map<std::string, std::string> environment = {};  // beside this process's
};
Result<std::string> run_command(const Command& command);
// The same, at once; the outputs in their order. One that fails ends the others.
Result<std::vector<std::string>> run_commands(const std::vector<Command>& commands);

// "key=value ..." lines, in their order; words without "=" have no value.
using Line = std::map<std::string, std::string>;
std::vector<Line> parse_lines(const std::string& text);

// What a training told while it ran.
struct MeasuredInterval {
  int64_t step = 0;  // at its end
  int64_t samples = 0;
  double seconds = 0;    // without evaluations
  double accuracy = -1;  // on the test set; -1: not tested
};
struct TrainingRecord {
  std::vector<MeasuredInterval> intervals;
  // Bytes of the master's process.
  int64_t parameters = 0, gradients = 0, state = 0, activations = 0;

  int64_t samples() const;
  double seconds() const;
  double samples_per_second() const { return static_cast<double>(samples()) / seconds(); }
  double final_accuracy() const { return intervals.back().accuracy; }
  // The first interval at whose end the test set's accuracy was at least so high; none:
  // intervals.size().
  size_t reached(double accuracy) const;
};

// Runs `program train` as so many workers. `spec` names absolute paths, and says what an epoch is. `environment`:
// beside this process's.
Result<TrainingRecord> run_training(const std::string& program, const EngineSpec& spec, int workers,
                                    const std::map<std::string, std::string>& environment = {});

}  // namespace dtrain::engine
