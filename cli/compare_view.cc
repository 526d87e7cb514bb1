#include "cli/compare_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/measure.h"
#include "cli/table.h"
#include "cli/words.h"

namespace dtrain::cli {

namespace {

using Kind = EntryColumn::Kind;

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

// On a narrow screen; what tells nothing or follows from other columns goes before what an entry reached, and that
// before what it was given. Of what it reached one metric goes last.
constexpr int kDropAlike = 1, kDropNames = 2, kDropDuration = 3, kDropEfficiency = 4, kDropSpeedup = 5,
              kDropReached = 6;

// The names of parameters and metrics are people's own, and stay as they are. `own_order` is when one of them goes.
Column column_of(const Comparison& comparison, const EntryColumn& column, int own_order) {
  switch (column.kind) {
    case Kind::Parameter:
      return {column.name, 6, own_order, true};
    case Kind::Metric:
      if (column.name != comparison.objective.metric) return {column.name, 6, own_order, false};
      return {fmt::format("{} ({})", column.name, comparison.objective.highest_is_best ? "max" : "min"), 6, own_order, false};
    case Kind::Project:
    case Kind::Name:
      return {upper(column.name), 6, kDropNames, true};
    case Kind::Duration:
      return {upper(column.name), 0, kDropDuration, false};
    case Kind::State:
      return {upper(column.name), 10, 0, false};
    case Kind::Speedup:
      return {upper(column.name), 0, kDropSpeedup, false};
    case Kind::Efficiency:
      return {upper(column.name), 0, kDropEfficiency, false};
    case Kind::Id:
    case Kind::Workers:
      break;
  }
  return {upper(column.name), 0, 0, false};
}

Cell cell_of(const EntryColumn& column, const EntryValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (column.kind == Kind::State) return {state_cell(*text), ink_of_state(*text)};
    return {*text};
  }
  const auto* number = std::get_if<double>(&value);
  if (number == nullptr) return {"-"};
  if (column.kind == Kind::Duration) {
    return {human_duration(static_cast<uint64_t>(*number * 1000))};
  }
  // Ratios of measurements: their third digit is noise.
  const bool ratio = column.kind == Kind::Speedup || column.kind == Kind::Efficiency;
  return {ratio ? fmt::format("{:.3g}", *number) : number_text(*number)};
}

bool is_alike(const Comparison& comparison, const EntryColumn& column) {
  const auto value = [&](const Entry& entry) { return value_of(comparison, entry, column); };
  return comparison.entries.size() > 1 &&
         std::ranges::all_of(comparison.entries, [&](const Entry& entry) {
           return value(entry) == value(comparison.entries.front());
         });
}

// Where a parameter is the number of workers, as with `worker: [1, 2]`, once is enough.
bool is_said_by_parameter(const Comparison& comparison, const EntryColumn& workers) {
  const auto tells = [&](const EntryColumn& column) {
    return column.kind == Kind::Parameter &&
           std::all_of(comparison.entries.begin(), comparison.entries.end(), [&](const Entry& entry) {
             const EntryValue value = value_of(comparison, entry, column);
             const auto* text = std::get_if<std::string>(&value);
             return text != nullptr && *text == std::to_string(entry.workers);
           });
  };
  return workers.kind == Kind::Workers &&
         std::any_of(comparison.columns.begin(), comparison.columns.end(), tells);
}

// The metric that entries are compared by.
std::string main_metric(const Comparison& comparison, const std::vector<EntryColumn>& columns, const std::string& sorted_by) {
  std::string first;
  for (const EntryColumn& column : columns) {
    if (column.kind != Kind::Metric) continue;
    if (column.name == sorted_by) return sorted_by;
    if (first.empty()) first = column.name;
  }
  if (has_column(comparison, comparison.objective.metric)) return comparison.objective.metric;
  return comparison.scales ? comparison.rate : first;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of("\",\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string csv_text(const EntryValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const auto* number = std::get_if<double>(&value);
  return number == nullptr ? "" : fmt::format("{}", *number);
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) line += (i == 0 ? "" : ",") + csv_field(fields[i]);
  return line + "\r\n";
}

}  // namespace

std::string render_comparison(const Comparison& comparison, const std::string& sorted_by,
                              const View& view) {
  std::string out;
  for (const auto& [name, value] : comparison.same) {
    out += fmt::format("{}{}={}", out.empty() ? "" : ", ", name, value);
  }
  if (!out.empty()) out = "All: " + out + "\n";

  std::vector<EntryColumn> columns = comparison.columns;
  std::erase_if(columns, [&](const EntryColumn& column) { return is_said_by_parameter(comparison, column); });
  // The last one goes first.
  const auto count = [&](Kind kind) {
    return static_cast<int>(std::ranges::count(columns, kind, &EntryColumn::kind));
  };
  const std::string main = main_metric(comparison, columns, sorted_by);
  int metric_order = kDropReached + count(Kind::Metric);
  int given_order = metric_order + count(Kind::Parameter);
  const int main_order = given_order + 1;
  Table table;
  for (const EntryColumn& column : columns) {
    // The rate is what speedup and efficiency are about.
    const bool stays = column.kind == Kind::Id || column.name == sorted_by ||
                       (comparison.scales && column.name == comparison.rate);
    table.columns.push_back(column_of(comparison, column, column.kind != Kind::Metric ? given_order
                                                                   : column.name == main     ? main_order
                                                                                             : metric_order));
    if (is_alike(comparison, column)) table.columns.back().drop_order = kDropAlike;
    if (stays) table.columns.back().drop_order = 0;
    if (column.kind == Kind::Parameter) --given_order;
    if (column.kind == Kind::Metric) --metric_order;
  }
  for (const Entry& entry : comparison.entries) {
    std::vector<Cell> row;
    for (const EntryColumn& column : columns) {
      row.push_back(cell_of(column, value_of(comparison, entry, column)));
      if (column.kind == Kind::State && entry.info.ended_early()) row.back().text += " early";
    }
    table.rows.push_back(std::move(row));
  }
  out += render(table, view.screen);
  const std::vector<std::string> left_out = columns_left_out(table, view.screen);
  if (left_out.empty()) return out;
  return out + folded(fmt::format("No room for {}: --csv has all\n", fmt::join(left_out, ", ")), view.screen.width);
}

std::string comparison_csv(const Comparison& comparison) {
  std::vector<EntryColumn> columns;
  for (const EntryColumn& column : comparison.columns) {
    columns.push_back(column);
    if (column.kind != Kind::Duration) continue;
    for (const auto& [name, value] : comparison.same) columns.push_back({Kind::Parameter, name});
  }
  std::vector<std::string> fields;
  for (const EntryColumn& column : columns) {
    fields.push_back(column.kind == Kind::Duration ? "duration_seconds" : column.name);
  }
  std::string out = csv_line(fields);
  for (const Entry& entry : comparison.entries) {
    fields.clear();
    for (const EntryColumn& column : columns) {
      fields.push_back(csv_text(value_of(comparison, entry, column)));
    }
    out += csv_line(fields);
  }
  return out;
}

}  // namespace dtrain::cli
