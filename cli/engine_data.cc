#include "cli/engine_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "schema/engine_read.h"
#include "schema/expand.h"
#include "schema/quote.h"
#include "schema/snapshot.h"
#include "schema/suggest.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

// Of the members of a large set the first so many: paths seldom differ at all.
constexpr uint64_t kMembersMax = 256;

struct Wanted {
  fs::path path;  // in the project
  enum class Kind { Digits, Text, Start } kind = Kind::Digits;
};

const char* hint_for(Wanted::Kind kind) {
  switch (kind) {
    case Wanted::Kind::Digits: return "dtrain-engine data digits draws data/train and data/test";
    case Wanted::Kind::Text: return "a gpt reads a file of text or tokens";
    case Wanted::Kind::Start: return "an OUTPUT_DIR is named by its whole path: dtrain output path 4";
  }
  return "";
}

// The set that a path below /data is of, where `data:` has sets and that is none of them; else empty.
std::string unknown_set(const std::string& path, const Spec& spec) {
  const std::string name = data_set_of(path);
  return spec.data.empty() || spec.data.contains(name) ? "" : name;
}

Error no_such_set(const std::string& path, const std::string& name, const Spec& spec) {
  std::vector<std::string_view> known;
  for (const auto& [set, place] : spec.data) known.push_back(set);
  const std::string_view meant = nearest(name, known);
  return {Code::InvalidArgument,
          fmt::format("{} is of no data set that `data:` names{}", in_quotes(path),
                      meant.empty() ? "" : fmt::format("; did you mean /data/{}?", meant)),
          fmt::format("`data:` names {}", fmt::join(known, ", "))};
}

// Each path once, in the order in which they are met. An error of the first that no host has.
Result<std::vector<Wanted>> wanted_of(const Spec& spec) {
  std::vector<Wanted> all;
  const auto members = static_cast<uint32_t>(std::min(spec.member_count(), kMembersMax));
  for (uint32_t member = 1; member <= members; ++member) {
    const auto engine = engine_spec_of(member_spec(spec, spec.is_set() ? member : 0));
    if (!engine.ok()) continue;
    const auto want = [&](const std::string& path, Wanted::Kind kind) {
      if (path.empty() || path.starts_with('/')) return;
      fs::path normal = fs::path(path).lexically_normal();
      if (!normal.has_filename()) normal = normal.parent_path();  // data/ is data
      if (normal == ".") return;                                  // the project itself
      if (std::ranges::find(all, normal, &Wanted::path) != all.end()) return;
      all.push_back({normal, kind});
    };
    for (const std::string* path : {&engine->train_data, &engine->test_data, &engine->checkpoint_from}) {
      const std::string name = unknown_set(*path, spec);
      if (!name.empty()) return no_such_set(*path, name, spec);
    }
    const bool is_text = std::holds_alternative<GptSpec>(engine->model);
    for (const std::string& path : {engine->train_data, engine->test_data}) {
      want(path, is_text ? Wanted::Kind::Text : Wanted::Kind::Digits);
    }
    want(engine->checkpoint_from, Wanted::Kind::Start);
  }
  return all;
}

bool is_within(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

Status check_engine_data(const Spec& spec, const fs::path& root) {
  if (spec.framework != Framework::Engine) return ok();
  TRY(const std::vector<Wanted> wanted, wanted_of(spec));
  for (const auto& [path, kind] : wanted) {
    std::error_code failed;
    if (fs::exists(root / path, failed)) continue;
    return Error{Code::InvalidArgument,
                 fmt::format("there is no {} in {}", in_quotes(path.string()), root.string()),
                 fmt::format("{}; what lies on the hosts is named in `data:`", hint_for(kind))};
  }
  std::set<fs::path> copied;
  std::map<fs::path, std::string> why;  // something in it is left out
  SnapshotOptions options;
  options.limits.file_bytes_max = UINT64_MAX;  // whoever reads the files says what is too large
  options.explain = [&](const SyncDecision& decision) {
    const fs::path path = fs::path(decision.path).lexically_normal();
    std::error_code failed;
    for (const auto& [one, kind] : wanted) {
      const bool inside = is_within(path, one);
      // A folder alone is not what is read.
      if (decision.included && inside && !fs::is_directory(root / path, failed)) copied.insert(one);
      if (!decision.included && (inside || is_within(one, path))) why.emplace(one, decision.why);
    }
  };
  TRY(explain_snapshot(root, options));
  for (const auto& [path, kind] : wanted) {
    if (copied.contains(path)) continue;
    std::error_code failed;
    const fs::path real = fs::canonical(root / path, failed);
    if (!failed && !is_within(real, fs::canonical(root, failed))) {
      // ../other/data, runs/4, or a link of the user's own.
      const bool leaves = *path.begin() == "..";
      return Error{Code::InvalidArgument,
                   fmt::format("{} {}, and is not copied", in_quotes(path.string()),
                               leaves ? "lies outside the project" : "is a link out of the project"),
                   kind == Wanted::Kind::Start
                       ? fmt::format("checkpoint: {{from: {}}}", yaml_scalar(real.string()))
                       : "put it into the project; what lies on the hosts is named in `data:`"};
    }
    if (!why.contains(path)) {
      return Error{Code::InvalidArgument, fmt::format("there are no files in {}", in_quotes(path.string())),
                   hint_for(kind)};
    }
    return Error{Code::InvalidArgument,
                 fmt::format("{} stays out of the copy that is trained from: {}", in_quotes(path.string()),
                             why.at(path)),
                 fmt::format("a line !{} in .dtrainignore takes it in", path.begin()->string() + "/")};
  }
  return ok();
}

}  // namespace dtrain::cli
