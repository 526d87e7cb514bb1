// A daemon of another machine: `dtrain --on cluster train`, or DTRAIN_ON=cluster.
//
// One that SSH reaches: what reads or writes files here speaks to it over SSH, all other commands run over there. Or one
// on the network, by the file of a person's key (`dtrain --on anna.key train`): then all run here.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/wire.h"
#include "schema/result.h"

namespace dtrain::cli {

// As SSH takes it, or the file of a key; empty: the daemon is of this machine.
std::string remote_machine();
// Whether it is the file of a key: what has a '/', and is no ssh://, or ends in ".key".
bool is_by_key();
// Whose key it is; empty: it is none, or can't be read.
std::string key_user();
// How people call the machine where the daemon is; of one that is elsewhere.
std::string name_of_there();
// FailedPrecondition where a key leads to the daemon: `what` needs the machine that it runs on.
Status check_not_by_key(std::string_view what);
// Takes "--on MACHINE" off the front of a command line. InvalidArgument: it is nothing for SSH.
Status take_remote_machine(std::vector<std::string>& words);

// What a command to be typed begins with: "dtrain", or where only the command line names the machine, "dtrain --on MACHINE".
// Over there it is what it is over here.
const std::string& called();
// A text for people in which `dtrain status` and the like are so. Of commands that need no daemon, and of those that are
// for another machine (`...`, where it runs), it leaves the words alone.
std::string as_called(std::string text);

// Whether a command is to run over there.
bool is_for_there(const std::vector<std::string>& words);
// Becomes that command over there: returns only an error.
Error run_there(const std::string& machine, const std::vector<std::string>& words);

// What SSH is called with: DTRAIN_SSH, else "ssh".
std::string ssh_command();

// A connection to the daemon over there. `starts`: one is started if need be, which takes SSH.
Result<std::unique_ptr<Wire>> dial_there(const std::string& machine, bool starts);

// How a project is called at a daemon of another machine: by this machine's name, too.
std::string name_of_project(const std::filesystem::path& root);

}  // namespace dtrain::cli
