#include "cli/comparison.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "cli/best_member.h"
#include "cli/measure.h"
#include "schema/expand.h"
#include "schema/ids.h"
#include "schema/quote.h"
#include "schema/suggest.h"

namespace dtrain::cli {

namespace {

using Kind = EntryColumn::Kind;

// What programs call it.
constexpr std::string_view kRateNames[] = {"samples/s", "samples_per_second", "samples_per_sec",
                                           "images/s",  "examples/s",         "tokens/s",
                                           "steps/s"};

double number_of(const pb::Metric& metric, MetricValue value) {
  switch (value) {
    case MetricValue::Last:
      return metric.last();
    case MetricValue::Minimum:
      return metric.minimum();
    case MetricValue::Maximum:
      return metric.maximum();
  }
  return metric.last();
}

std::optional<double> duration_seconds(const pb::ExperimentInfo& info, uint64_t now_unix_ms) {
  if (info.started_unix_ms() == 0) return std::nullopt;
  const uint64_t end = info.finished_unix_ms() != 0 ? info.finished_unix_ms() : now_unix_ms;
  return end > info.started_unix_ms() ? static_cast<double>(end - info.started_unix_ms()) / 1000
                                      : 0;
}

// A number that orders IDs: members within their set.
double order_of(const std::string& text) {
  const auto id = parse_experiment_id(text);
  return id.ok() ? id->number * 0x1p21 + id->member : 0;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool any_differs(const std::vector<Entry>& entries, auto&& part) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const Entry& entry) { return part(entry) != part(entries.front()); });
}

// Parameters that all have alike into `same`; returns the others.
std::vector<std::string> sort_out_parameters(Comparison& comparison) {
  std::set<std::string> names;
  for (const Entry& entry : comparison.entries) {
    for (const auto& [name, value] : entry.info.parameters()) names.insert(name);
  }
  std::vector<std::string> differing;
  for (const std::string& name : names) {
    const auto value = [&](const Entry& entry) -> const std::string* {
      const auto found = entry.info.parameters().find(name);
      return found == entry.info.parameters().end() ? nullptr : &found->second;
    };
    const std::string* first = value(comparison.entries.front());
    const bool alike =
        std::all_of(comparison.entries.begin(), comparison.entries.end(), [&](const Entry& entry) {
          return first != nullptr && value(entry) != nullptr && *value(entry) == *first;
        });
    if (alike && comparison.entries.size() > 1) {
      comparison.same[name] = *first;
    } else {
      differing.push_back(name);
    }
  }
  return differing;
}

// What an entry has as a parameter is told by that, and a setting has the values of its parameters in it.
std::vector<std::string> sort_out_settings(std::vector<Entry>& entries, const std::vector<std::string>& metrics) {
  std::vector<std::shared_ptr<const Settings>> made_of;
  std::set<std::string> taken = {"id", "project", "name", "state", "duration", "workers", "speedup", "efficiency"};
  taken.insert(metrics.begin(), metrics.end());
  for (const Entry& entry : entries) {
    made_of.push_back(entry.made_of);
    for (const auto& [name, value] : entry.info.parameters()) taken.insert(name);
  }
  std::vector<std::string> names;
  for (const DifferingSetting& setting : differing_settings(made_of, std::move(taken))) {
    names.push_back(setting.name);
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto& parameters = entries[i].info.parameters();
      if (!setting.values[i] || parameters.contains(setting.name)) continue;
      entries[i].settings[setting.name] = substitute(*setting.values[i], {parameters.begin(), parameters.end()});
    }
  }
  return names;
}

Status choose_rate(Comparison& comparison, const std::string& wanted,
                   const std::vector<std::string>& metrics) {
  const auto has = [&](std::string_view name) {
    return std::find(metrics.begin(), metrics.end(), name) != metrics.end();
  };
  if (!wanted.empty() && !has(wanted)) {
    std::string known;
    for (const std::string& name : metrics) known += (known.empty() ? "" : ", ") + name;
    return Error{Code::NotFound, fmt::format("none of them has the metric {}", in_quotes(wanted)),
                 known.empty() ? "they have no metrics at all" : "there are " + known};
  }
  comparison.rate = wanted;
  const auto is_said = [&](const std::string& name) {
    return std::ranges::any_of(comparison.entries, [&](const Entry& entry) {
      return find_metric(entry.info, name) != nullptr;
    });
  };
  for (const std::string_view name : kRateNames) {
    if (comparison.rate.empty() && is_said(std::string(name))) comparison.rate = name;
  }
  return ok();
}

bool names_workers(const Entry& entry, const std::string& name) {
  if (name == "worker" || name == "workers") return true;
  if (entry.made_of == nullptr) return false;
  return std::ranges::any_of(entry.made_of->varied, [&](const auto& varied) {
    return varied.second == name && (varied.first.ends_with(".worker") || varied.first.ends_with(".worker.count"));
  });
}

// What it has differently from others, but for the number of its workers.
std::string apart_from_workers(const Entry& entry) {
  std::map<std::string, std::string> all(entry.info.parameters().begin(), entry.info.parameters().end());
  all.insert(entry.settings.begin(), entry.settings.end());
  std::string text;
  for (const auto& [name, value] : all) {
    if (!names_workers(entry, name)) text += fmt::format("{}\n{}\n", name, value);
  }
  return text;
}

bool has_rate(const Entry& entry) { return entry.rate && entry.workers > 0; }

// Entries that are beside each other for their workers: of each the one with the fewest is the base of the others.
bool measure_against_fewest(const std::vector<Entry*>& group) {
  const Entry* base = nullptr;
  for (const Entry* entry : group) {
    if (has_rate(*entry) && *entry->rate > 0 && (base == nullptr || entry->workers < base->workers)) base = entry;
  }
  const bool differ = base != nullptr && std::ranges::any_of(group, [&](const Entry* entry) {
    return has_rate(*entry) && *entry->rate > 0 && entry->workers != base->workers;
  });
  if (!differ) return false;
  for (Entry* entry : group) {
    if (!has_rate(*entry)) continue;
    entry->speedup = *entry->rate / *base->rate;
    entry->efficiency = *entry->speedup * base->workers / entry->workers;
  }
  return true;
}

void measure_scaling(Comparison& comparison) {
  std::map<std::string, std::vector<Entry*>> alike;
  std::vector<Entry*> all;
  for (Entry& entry : comparison.entries) {
    const pb::Metric* metric = find_metric(entry.info, comparison.rate);
    if (metric != nullptr) entry.rate = number_of(*metric, comparison.value);
    alike[apart_from_workers(entry)].push_back(&entry);
    all.push_back(&entry);
  }
  for (const auto& [settings, group] : alike) comparison.scales |= measure_against_fewest(group);
  if (!comparison.scales) comparison.scales = measure_against_fewest(all);
}

// Whatever the direction, what is no number comes after all values, and who has none last.
int rank_of(const EntryValue& value) {
  const double* number = std::get_if<double>(&value);
  if (number != nullptr && std::isnan(*number)) return 1;
  return value.index() == 0 ? 2 : 0;
}

}  // namespace

Result<Comparison> compare(std::vector<Entry> entries, const CompareWishes& wishes,
                           uint64_t now_unix_ms) {
  Comparison comparison;
  comparison.entries = std::move(entries);
  comparison.value = wishes.value;
  comparison.objective = wishes.objective;
  comparison.now_unix_ms = now_unix_ms;
  const std::vector<Entry>& all = comparison.entries;
  if (all.empty()) return comparison;
  std::vector<const pb::ExperimentInfo*> infos;
  for (const Entry& entry : all) infos.push_back(&entry.info);
  const std::vector<std::string> metrics = metric_names(infos);
  const std::vector<std::string> settings = sort_out_settings(comparison.entries, metrics);
  TRY(choose_rate(comparison, wishes.rate, metrics));
  measure_scaling(comparison);

  std::vector<EntryColumn>& columns = comparison.columns;
  columns.push_back({Kind::Id, "id"});
  const auto project = [](const Entry& entry) { return entry.info.project(); };
  const auto name = [](const Entry& entry) { return entry.info.name(); };
  if (any_differs(all, project)) columns.push_back({Kind::Project, "project"});
  if (any_differs(all, name)) columns.push_back({Kind::Name, "name"});
  columns.push_back({Kind::State, "state"});
  columns.push_back({Kind::Duration, "duration"});
  const std::vector<std::string> parameters = sort_out_parameters(comparison);
  for (const std::string& parameter : parameters) columns.push_back({Kind::Parameter, parameter});
  for (const std::string& setting : settings) {
    const bool shown = std::ranges::find(parameters, setting) != parameters.end();
    if (!shown && !comparison.same.contains(setting)) columns.push_back({Kind::Parameter, setting});
  }
  if (any_differs(all, [](const Entry& entry) { return entry.workers; })) {
    columns.push_back({Kind::Workers, "workers"});
  }
  for (const std::string& metric : metrics) columns.push_back({Kind::Metric, metric});
  if (comparison.scales) {
    columns.push_back({Kind::Speedup, "speedup"});
    columns.push_back({Kind::Efficiency, "efficiency"});
  }
  return comparison;
}

EntryValue value_of(const Comparison& comparison, const Entry& entry, const EntryColumn& column) {
  const auto maybe = [](const std::optional<double>& number) {
    return number ? EntryValue(*number) : EntryValue();
  };
  switch (column.kind) {
    case Kind::Id:
      return entry.info.id();
    case Kind::Project:
      return entry.info.project();
    case Kind::Name:
      return entry.info.name().empty() ? EntryValue() : EntryValue(entry.info.name());
    case Kind::State:
      return entry.info.state();
    case Kind::Duration:
      return maybe(duration_seconds(entry.info, comparison.now_unix_ms));
    case Kind::Parameter: {
      const auto found = entry.info.parameters().find(column.name);
      if (found != entry.info.parameters().end()) return found->second;
      const auto setting = entry.settings.find(column.name);
      return setting == entry.settings.end() ? EntryValue() : EntryValue(setting->second);
    }
    case Kind::Metric: {
      const pb::Metric* metric = find_metric(entry.info, column.name);
      if (metric == nullptr) return {};
      if (column.name == comparison.objective.metric) return maybe(best_value(*metric, comparison.objective.highest_is_best));
      return number_of(*metric, comparison.value);
    }
    case Kind::Workers:
      return entry.workers == 0 ? EntryValue() : EntryValue(double{1} * entry.workers);
    case Kind::Speedup:
      return maybe(entry.speedup);
    case Kind::Efficiency:
      return maybe(entry.efficiency);
  }
  return {};
}

bool has_column(const Comparison& comparison, const std::string& metric) {
  return std::ranges::any_of(comparison.columns, [&](const EntryColumn& column) {
    return column.kind == Kind::Metric && column.name == metric;
  });
}

Result<std::string> sort_entries(Comparison& comparison, std::string wanted, bool reverse) {
  if (wanted.starts_with('-')) {
    reverse = !reverse;
    wanted.erase(0, 1);
  }
  if (comparison.same.contains(wanted)) return wanted;  // any order is sorted by it
  std::string known;
  std::vector<std::string_view> names;
  const EntryColumn* column = nullptr;
  for (const EntryColumn& candidate : comparison.columns) {
    known += (known.empty() ? "" : ", ") + candidate.name;
    names.push_back(candidate.name);
    // A name written exactly counts before one in other letters.
    const bool alike = lower(candidate.name) == lower(wanted);
    if (alike && (column == nullptr || candidate.name == wanted)) column = &candidate;
  }
  if (column == nullptr) {
    const std::string_view meant = nearest(wanted, names);
    return Error{Code::InvalidArgument,
                 fmt::format("there is no column {}", in_quotes(wanted)) +
                     (meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant)),
                 "--sort takes " + known};
  }
  std::vector<std::pair<EntryValue, Entry>> keyed;
  for (Entry& entry : comparison.entries) {
    EntryValue key = column->kind == Kind::Id ? EntryValue(order_of(entry.info.id()))
                                              : value_of(comparison, entry, *column);
    // Parameters are text, but most of them are numbers.
    if (const auto* text = std::get_if<std::string>(&key)) {
      double number = 0;
      const char* const end = text->data() + text->size();
      const auto [stop, error] = std::from_chars(text->data(), end, number);
      if (error == std::errc() && stop == end) key = number;
    }
    keyed.emplace_back(std::move(key), std::move(entry));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const int rank = rank_of(a.first);
    if (const int other = rank_of(b.first); rank != 0 || other != 0) return rank < other;
    return reverse ? b.first < a.first : a.first < b.first;
  });
  comparison.entries.clear();
  for (auto& [key, entry] : keyed) comparison.entries.push_back(std::move(entry));
  return column->name;
}

// 0: of an elastic one nobody knows how many there were, from beginning to end.
int worker_count(const Spec& spec, uint32_t member) {
  int count = 0;
  if (spec.elastic) return 0;
  for (const RoleSpec& role : member_spec(spec, member).roles) {
    const bool trains = role.role == Role::Train || role.role == Role::Master ||
                        role.role == Role::Chief || role.role == Role::Worker;
    if (trains) count += role.count;
  }
  return count;
}

}  // namespace dtrain::cli
