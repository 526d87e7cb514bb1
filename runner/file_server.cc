#include "runner/file_server.h"

#include <future>
#include <map>
#include <system_error>
#include <thread>

namespace dtrain::runner {
namespace {

constexpr const char* kNoAnswer = "can't be looked at: its file system does not answer";

}  // namespace

std::string looked_at_within(std::chrono::milliseconds patience, const std::string& path,
                             const std::function<std::string()>& look) {
  static std::map<std::string, std::future<std::string>> asked;
  if (const auto earlier = asked.find(path); earlier != asked.end()) {
    if (earlier->second.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return kNoAnswer;
    asked.erase(earlier);  // an old answer
  }
  std::packaged_task<std::string()> task(look);
  std::future<std::string> found = task.get_future();
  try {
    std::thread(std::move(task)).detach();
  } catch (const std::system_error&) {  // no more threads
    return look();
  }
  if (found.wait_for(patience) == std::future_status::ready) return found.get();
  asked.emplace(path, std::move(found));
  return kNoAnswer;
}

}  // namespace dtrain::runner
