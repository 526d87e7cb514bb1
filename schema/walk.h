// The walk behind take_snapshot: one pass over a project in manifest order, deciding for each name
// whether it is in. It reads no file's content: what the stat cache does not know is left to
// content.h.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schema/fd.h"
#include "schema/ignore.h"
#include "schema/listing.h"
#include "schema/problems.h"
#include "schema/snapshot.h"
#include "schema/stat_cache.h"

namespace dtrain {

// A file whose content must be read before it has an entry.
struct UnreadFile {
  std::string path;
  uint64_t size = 0;         // as listed
  size_t manifest_byte = 0;  // where its entry belongs in Walk::manifest
  size_t key_index = 0;      // and its key in Walk::keys
};

class Walk {
 public:
  // Both must outlive it.
  Walk(const SnapshotOptions& options, StatCache& cache);

  // Once. Takes over the project's directory.
  Status run(Fd root);

  // What the walk found. manifest and keys have one entry each for the same things, but for what is
  // unread: that is counted, and has neither.
  std::string manifest;
  std::vector<StatKey> keys;
  bool changed = false;  // against the cache: something was added, removed or had to be looked into
  uint64_t total_bytes = 0;
  uint64_t file_count = 0;
  std::vector<UnreadFile> unread;
  const int64_t start_ns;
  std::vector<std::pair<std::string, uint64_t>> top_level;
  std::vector<std::string> left_out;        // by default, nobody having asked for it
  std::vector<std::string> git_ignored;     // folders at the top, for what is hidden is no news
  std::vector<std::string> secret;          // the same: keys of dtrain's
  std::vector<std::string> special;         // sockets, fifos, devices
  std::vector<std::string> absolute_links;  // "data -> /mnt/data"

 private:
  // A directory on the way down to where the walk is.
  struct Directory {
    Fd fd;
    Directory* parent = nullptr;
    size_t path_bytes = 0;  // of path_ that name it
    uint32_t mode = 0;
    bool asked_for = false;  // a '!' pattern takes it in
    std::string out_why;     // not empty: it is out, and walked only for what is to be in again
    bool emitted = false;
    bool has_rules = false;
  };

  Status enter(Directory& directory);
  Status leave_home_out(const Directory& directory);
  bool holds_stat_cache(const Directory& directory) const;
  bool is_virtual_env(const Directory& directory, const Listing& names);
  bool is_links_to_outputs(const Directory& directory, const Listing& names);
  Status read_rules(Directory& directory, const Listing& names);
  Status check_count() const;
  Status visit(Directory& directory, const char* name, std::string_view name_view);
  bool is_secret(const Directory& directory, const char* name, const struct stat& st) const;
  // Empty: it is in.
  std::string why_out(const Directory& directory, const char* name,
                      const IgnoreRules::Verdict& verdict);
  bool is_our_runs(const Directory& directory, const char* name);
  Status visit_directory(Directory& parent, const char* name, const struct stat& st,
                         const IgnoreRules::Verdict& verdict, std::string out_why);
  Status visit_file(Directory& parent, const struct stat& listed);
  Status visit_link(Directory& parent, const char* name, const struct stat& st);

  void emit_directory(Directory& directory);
  void emit(const ManifestEntry& entry, const StatKey& key);  // new, or not as it was
  void keep(const ManifestEntry& entry, const StatKey& key);  // as the cache has it
  void count(const Directory& parent, uint64_t size);
  void explain(std::string_view path, bool included, const std::string& why);

  static constexpr size_t kRefusedMax = 20;

  struct stat cache_folder_ = {};   // of options_.stat_cache; {}: there is none
  const SnapshotOptions& options_;
  std::vector<Error> refused_;  // names that can't travel
  StatCache& cache_;
  IgnoreRules rules_;
  std::deque<Listing> listings_;  // one for each level, reused; a deque keeps them in place
  size_t depth_ = 0;
  std::string path_;
};

}  // namespace dtrain
