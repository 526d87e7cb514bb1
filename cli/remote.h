// A daemon of another machine, which SSH reaches: `dtrain --on cluster train`, or DTRAIN_ON=cluster. What reads files
// here speaks to it over SSH; all other commands run over there, where the outputs are.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::cli {

// As SSH takes it; empty: the daemon is of this machine.
std::string remote_machine();
// Takes "--on MACHINE" off the front of a command line. InvalidArgument: it is nothing for SSH.
Status take_remote_machine(std::vector<std::string>& words);

// What a command to be typed begins with: "dtrain", or where only the command line names the machine, "dtrain --on MACHINE".
const std::string& called();

// Whether a command is to run over there.
bool is_for_there(const std::vector<std::string>& words);
// Becomes that command over there: returns only an error.
Error run_there(const std::string& machine, const std::vector<std::string>& words);

// `dtrain` with these words over there, with what it reads and prints at the other end of `line`.
struct StartedThere {
  pid_t ssh;
  Fd line;
};
Result<StartedThere> start_there(const std::string& machine, const std::vector<std::string>& words);
// Its exit code. 255: SSH's own.
int exit_code_there(pid_t started);

// What SSH is called with: DTRAIN_SSH, else "ssh".
std::string ssh_command();

// A connection to the daemon over there. `starts`: one is started if need be.
Result<Fd> dial_there(const std::string& machine, bool starts);

// How a project is called at a daemon of another machine: by this machine's name, too.
std::string name_of_project(const std::filesystem::path& root);

}  // namespace dtrain::cli
