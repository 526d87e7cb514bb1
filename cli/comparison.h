// Several experiments side by side: what they share, where they differ, what they reached, and how
// the rate of their training grew with their workers. Values; pure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/settings.h"
#include "schema/dtrain.pb.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::cli {

// Of a metric's values, the one that is compared.
enum class MetricValue { Last, Minimum, Maximum };

// A metric by which one is better than another; none where it has no name.
struct Objective {
  std::string metric;
  bool highest_is_best = false;
};

struct Entry {
  pb::ExperimentInfo info;  // an experiment or a member, with its metrics
  int workers = 0;          // master or chief included; 0: not known
  std::shared_ptr<const Settings> made_of = {};      // null: not known
  std::map<std::string, std::string> settings = {};  // compare() makes them: keys that others have differently
  std::optional<double> rate = {};
  // Against the entry with the fewest workers that is else alike, or of all where none are alike; only of a Comparison
  // that has `scales`.
  std::optional<double> speedup = {};     // rate / its rate
  std::optional<double> efficiency = {};  // rate per worker / its rate per worker
};

// One column: how it is called, and what it takes from an entry.
struct EntryColumn {
  enum class Kind {
    Id,
    Project,
    Name,
    State,
    Duration,
    Parameter,  // or a setting
    Metric,
    Workers,
    Speedup,
    Efficiency
  };
  Kind kind = Kind::Id;
  std::string name;  // as --sort takes it
};

struct Comparison {
  std::vector<Entry> entries;
  std::map<std::string, std::string> same;  // parameters that all entries have alike
  std::vector<EntryColumn> columns;         // what differs or may; the ID first
  std::string rate;                         // the metric that is the rate; empty: none
  bool scales = false;                      // there is a rate, and entries differ in their workers
  MetricValue value = MetricValue::Last;
  Objective objective;                      // of which the best value counts
  uint64_t now_unix_ms = 0;
};

struct CompareWishes {
  std::string rate;  // --rate; empty: the first of the usual names that there is
  MetricValue value = MetricValue::Last;
  Objective objective = {};
};

// NotFound when no entry has the rate that is asked for.
Result<Comparison> compare(std::vector<Entry> entries, const CompareWishes& wishes,
                           uint64_t now_unix_ms);

// Nothing, a number, or text: what an entry has in a column.
using EntryValue = std::variant<std::monostate, double, std::string>;
EntryValue value_of(const Comparison& comparison, const Entry& entry, const EntryColumn& column);

// Whether there is a column for that metric.
bool has_column(const Comparison& comparison, const std::string& metric);

// `column` is a column's name, any letters' case, "-" before it for the other direction. Entries
// without a value come last in both. Returns the column's name; InvalidArgument with the columns
// there are.
Result<std::string> sort_entries(Comparison& comparison, std::string column, bool reverse);

// How many workers the experiment or member has: those that train, and no servers.
int worker_count(const Spec& spec, uint32_t member);

}  // namespace dtrain::cli
