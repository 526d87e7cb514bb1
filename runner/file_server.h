// Looking at what may lie on a file server that is away: whoever asks there waits until it is back.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace dtrain::runner {

// A network's file system may be slow to mount by itself.
inline constexpr std::chrono::seconds kServerPatience{15};

// What `look` says of `path`, or, after `patience`, that its file system does not answer. The thread that looks is left
// to it then, and until it has looked nobody else waits for that path. One thread at a time calls this.
std::string looked_at_within(std::chrono::milliseconds patience, const std::string& path,
                             const std::function<std::string()>& look);

}  // namespace dtrain::runner
