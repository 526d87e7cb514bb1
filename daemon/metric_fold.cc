#include "daemon/metric_fold.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace dtrain::daemon {

namespace {

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == '/';
}

bool is_separator(char c) {
  return c == ' ' || c == '\t' || c == ',' || c == ';';
}

bool is_quote(char c) { return c == '"' || c == '\''; }

// What may stand right before a name: "[loss=0.5", "{'loss=0.5'".
bool may_precede(char c) {
  return is_separator(c) || std::strchr("([{\"'|", c) != nullptr;
}

// What may stand right behind a value.
bool may_follow(char c) {
  return std::strchr("%.,:;!)]}\"'|", c) != nullptr;
}

// How much of `text` is a number in groups of three digits, "12,345.6": up to the last group; 0 if it is none.
size_t grouped(std::string_view text) {
  const auto digits = [&](size_t at) {
    size_t count = 0;
    while (at + count < text.size() && text[at + count] >= '0' && text[at + count] <= '9') ++count;
    return count;
  };
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const size_t first = digits(sign);
  if (first == 0 || first > 3) return 0;
  size_t end = sign + first;
  while (end < text.size() && text[end] == ',' && digits(end + 1) == 3) end += 4;
  return end == sign + first ? 0 : end;
}

// The line without the sequences that colour it: they may stand right before a name.
std::string without_colours(std::string_view line) {
  std::string plain;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] != '\x1b' || at + 1 >= line.size() || line[at + 1] != '[') {
      plain += line[at];
      continue;
    }
    at += 2;
    while (at < line.size() && (line[at] < '@' || line[at] > '~')) ++at;
  }
  return plain;
}

const char* find_byte(std::string_view text, char byte) {
  return static_cast<const char*>(std::memchr(text.data(), byte, text.size()));
}

}  // namespace

std::optional<double> parse_metric_value(std::string_view text) {
  if (!text.empty() && is_quote(text[0])) text.remove_prefix(1);
  std::string plain;
  if (const size_t groups = grouped(text); groups > 0) {
    plain = text;
    plain.erase(std::remove(plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(groups), ','),
                plain.begin() + static_cast<std::ptrdiff_t>(groups));
    text = plain;
  }
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  const char* const last = text.data() + text.size();
  if (!std::all_of(end, last, may_follow)) return std::nullopt;
  return value;
}

MetricReader::MetricReader(const std::vector<Metric>& metrics, const Search& search) {
  for (size_t i = 0; i < metrics.size(); ++i) {
    names_.push_back(metrics[i].name);
    if (metrics[i].pattern.empty()) {
      keys_.push_back(i);
      continue;
    }
    auto pattern = LinePattern::compile(metrics[i].pattern);
    INVARIANT(pattern.ok(), "parse_spec accepts only patterns that compile");
    patterns_.emplace_back(i, std::move(*pattern));
  }
  if (search.metric.empty()) return;
  const auto place = [&](const std::string& name) { return static_cast<size_t>(std::ranges::find(names_, name) - names_.begin()); };
  watched_ = Watched{place(search.metric), search.highest_is_best, std::nullopt, search.stop_early};
  if (search.stop_early && !search.stop_early->by.empty()) watched_->by = place(search.stop_early->by);
}

void MetricReader::read(std::string_view line, std::vector<Found>& found) const {
  found.clear();
  std::string plain;
  if (find_byte(line, '\x1b') != nullptr) {
    plain = without_colours(line);
    line = plain;
  }
  if (!keys_.empty()) read_keys(line, found);
  for (const auto& [metric, pattern] : patterns_) {
    size_t at = 0;
    while (const auto text = pattern.find(line, at)) {
      if (const auto value = parse_metric_value(*text)) found.push_back({metric, *value});
    }
  }
}

void MetricReader::read_keys(std::string_view line, std::vector<Found>& found) const {
  size_t from = 0;  // names begin here or later: behind the last value
  while (const char* const sign = find_byte(line.substr(from), '=')) {
    const auto equals = static_cast<size_t>(sign - line.data());
    size_t begin = equals;
    while (begin > from && is_name_byte(line[begin - 1])) --begin;
    from = equals + 1;
    if (begin == equals || (begin > 0 && !may_precede(line[begin - 1]))) continue;
    const std::string_view name = line.substr(begin, equals - begin);
    const auto key = std::find_if(keys_.begin(), keys_.end(),
                                  [&](size_t metric) { return names_[metric] == name; });
    if (key == keys_.end()) continue;
    size_t end = from;
    if (end < line.size() && is_quote(line[end])) ++end;
    end += grouped(line.substr(end));
    while (end < line.size() && !is_separator(line[end])) ++end;
    const auto value = parse_metric_value(line.substr(from, end - from));
    if (value) found.push_back({*key, *value});
  }
}

void MetricFold::take(const MetricReader& reader, const ReplicaId& replica, uint32_t attempt,
                      uint64_t offset, std::string_view data) {
  Tail& tail = tails_[replica];
  if (attempt < tail.attempt) return;
  if (attempt > tail.attempt) {
    end_line(reader, replica, tail);
    tail = {};
    tail.attempt = attempt;
  }
  const uint64_t end = offset + data.size();
  if (end <= tail.offset) return;
  if (offset > tail.offset) {
    tail.line.clear();
    tail.skipping = true;
  } else {
    data.remove_prefix(tail.offset - offset);
  }
  tail.offset = end;
  take_lines(reader, replica, tail, data);
}

void MetricFold::take_lines(const MetricReader& reader, const ReplicaId& replica, Tail& tail,
                            std::string_view data) {
  while (!data.empty()) {
    const char* stop = find_byte(data, '\n');
    // A line that is drawn over and over, a progress bar's, is a line each time.
    const size_t length = stop == nullptr ? data.size() : static_cast<size_t>(stop - data.data());
    if (const char* again = find_byte(data.substr(0, length), '\r')) stop = again;
    const std::string_view part =
        stop == nullptr ? data : data.substr(0, static_cast<size_t>(stop - data.data()));
    if (tail.line.size() + part.size() > kMetricLineMaxBytes) tail.skipping = true;
    if (stop != nullptr && tail.line.empty() && !tail.skipping) {
      take_line(reader, replica, tail, part);
    } else if (stop != nullptr) {
      if (!tail.skipping) tail.line += part;
      end_line(reader, replica, tail);
    } else if (!tail.skipping) {
      tail.line += part;
    }
    if (stop == nullptr) return;
    data.remove_prefix(part.size() + 1);
  }
}

void MetricFold::end_line(const MetricReader& reader, const ReplicaId& replica, Tail& tail) {
  if (!tail.skipping && !tail.line.empty()) take_line(reader, replica, tail, tail.line);
  tail.line.clear();
  tail.skipping = false;
}

void MetricFold::take_line(const MetricReader& reader, const ReplicaId& replica, Tail& tail, std::string_view line) {
  const uint32_t attempt = tail.attempt;
  reader.read(line, found_);
  if (found_.empty()) return;
  values_.resize(reader.size());
  const auto& watched = reader.watched();
  for (const MetricReader::Found& found : found_) {
    Value& value = values_[found.metric];
    if (value.count > 0 && value.replica < replica) continue;
    if (watched && found.metric == watched->metric && value.count > 0 && value.replica != replica) climb_.begin_anew();
    const bool goes_on = value.count > 0 && value.replica == replica && value.attempt == attempt;
    if (!goes_on) value = {found.value, found.value, found.value, 0, replica, attempt};
    value.last = found.value;
    // Not a number is neither less nor more than anything.
    if (found.value < value.minimum || std::isnan(value.minimum)) value.minimum = found.value;
    if (found.value > value.maximum || std::isnan(value.maximum)) value.maximum = found.value;
    ++value.count;
  }
  if (watched) climb(*watched, replica, tail);
}

// After a line, which may say the metric and what is counted in any order; that may have been said before, too.
void MetricFold::climb(const MetricReader::Watched& watched, const ReplicaId& replica, Tail& tail) {
  const Value& value = values_[watched.metric];
  bool is_said = false;
  for (const MetricReader::Found& found : found_) {
    if (found.metric == watched.by) tail.counted = found.value;
    if (found.metric != watched.metric || value.replica != replica) continue;
    climb_.take(found.value, watched.highest_is_best);
    is_said = true;
  }
  const bool is_looked_at = replica.role != Role::Worker && replica.role != Role::Ps;   // each may have values of its own
  if (!is_said || !is_looked_at || !watched.stop) return;
  climb_.come_to(*watched.stop, watched.by ? tail.counted : static_cast<double>(value.count));
}

void MetricFold::finish(const MetricReader& reader, const ReplicaId& replica) {
  if (const auto found = tails_.find(replica); found != tails_.end()) end_line(reader, replica, found->second);
}

void MetricFold::finish(const MetricReader& reader) {
  for (auto& [replica, tail] : tails_) end_line(reader, replica, tail);
  tails_.clear();
}

std::vector<pb::Metric> MetricFold::values(const MetricReader& reader) const {
  std::vector<pb::Metric> values;
  for (size_t i = 0; i < values_.size(); ++i) {
    const Value& value = values_[i];
    if (value.count == 0) continue;
    pb::Metric metric;
    metric.set_name(reader.name(i));
    metric.set_last(value.last);
    metric.set_minimum(value.minimum);
    metric.set_maximum(value.maximum);
    metric.set_count(value.count);
    metric.set_replica(to_string(value.replica));
    metric.set_attempt(value.attempt);
    if (reader.watched() && reader.watched()->metric == i) metric.set_best(climb_.best());
    values.push_back(std::move(metric));
  }
  return values;
}

pb::MetricsRecord MetricFold::record(const MetricReader& reader) const {
  pb::MetricsRecord record;
  for (pb::Metric& metric : values(reader)) *record.add_metrics() = std::move(metric);
  record.mutable_rungs()->Add(climb_.rungs().begin(), climb_.rungs().end());
  for (const auto& [replica, tail] : tails_) {
    pb::OutputTail& stored = *record.add_tails();
    stored.set_replica(to_string(replica));
    stored.set_attempt(tail.attempt);
    stored.set_offset(tail.offset);
    stored.set_line(tail.line);
    stored.set_skipping(tail.skipping);
    if (!std::isnan(tail.counted)) stored.set_counted(tail.counted);
  }
  return record;
}

MetricFold MetricFold::from(const pb::MetricsRecord& record, const MetricReader& reader) {
  MetricFold fold;
  double best = std::nan("");
  for (const pb::Metric& metric : record.metrics()) {
    const auto replica = parse_replica_id(metric.replica());
    for (size_t i = 0; i < reader.size() && replica.ok(); ++i) {
      if (reader.name(i) != metric.name()) continue;
      fold.values_.resize(reader.size());
      fold.values_[i] = {metric.last(),  metric.minimum(), metric.maximum(),
                         metric.count(), *replica,         metric.attempt()};
      if (metric.has_best()) best = metric.best();
    }
  }
  fold.climb_ = Climb(best, {record.rungs().begin(), record.rungs().end()});
  for (const pb::OutputTail& tail : record.tails()) {
    const auto replica = parse_replica_id(tail.replica());
    if (replica.ok()) {
      fold.tails_[*replica] = {tail.attempt(), tail.offset(), tail.line(), tail.skipping(), tail.has_counted() ? tail.counted() : std::nan("")};
    }
  }
  return fold;
}

}  // namespace dtrain::daemon
