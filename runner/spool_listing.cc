#include "runner/spool_listing.h"

#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace dtrain::runner {

std::optional<std::set<uint64_t>> SpoolListing::sequences(const ReplicaId& replica) {
  if (!known_ && !read()) return std::nullopt;
  const auto found = known_->find(to_string(replica));
  return found == known_->end() ? std::set<uint64_t>() : found->second;
}

// Names such as "spool.4.2.worker.1.7".
bool SpoolListing::read() {
  constexpr std::string_view kPrefix = "spool.";
  std::map<std::string, std::set<uint64_t>> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory_.path(), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const size_t dot = name.rfind('.');
    if (!name.starts_with(kPrefix) || dot < kPrefix.size()) continue;
    uint64_t sequence = 0;
    const char* const end = name.data() + name.size();
    if (std::from_chars(name.data() + dot + 1, end, sequence).ptr != end || sequence == 0) continue;
    found[name.substr(kPrefix.size(), dot - kPrefix.size())].insert(sequence);
  }
  if (error) return false;
  known_ = std::move(found);
  return true;
}

}  // namespace dtrain::runner
