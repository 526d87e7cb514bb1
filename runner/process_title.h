// What `ps` shows of this process.
#pragma once

#include <string>
#include <vector>

namespace dtrain::runner {

// Writes `words` over the arguments this process was started with, cut to their length: for a process
// that was forked without an exec. To be called before other threads exist.
void set_process_title(const std::vector<std::string>& words);

// The name without arguments that `ps` and `top` show, of at most 15 bytes. By itself it is that of
// the file which was executed: "exe" where that was /proc/self/exe.
void set_process_name(const char* name);

}  // namespace dtrain::runner
