#include "cli/json_printer.h"

#include <nlohmann/json.hpp>

#include "cli/words.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

void append_line(std::string& out, const nlohmann::ordered_json& object) {
  out += object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  out += '\n';
}

}  // namespace

JsonPrinter::JsonPrinter(std::function<bool(std::string_view)> matches)
    : matches_(std::move(matches)) {}

void JsonPrinter::print(const std::string& id, const Source& source, const Line& line) {
  if (matches_ && !matches_(line.text)) return;
  nlohmann::ordered_json object = {{"type", "log"},
                                   {"id", id},
                                   {"attempt", source.attempt},
                                   {"time", iso_time_ms(source.time_unix_ms)},
                                   {"text", last_version(line.text)}};
  if (!line.whole) object["continues"] = true;
  append_line(out_, object);
}

void JsonPrinter::add(const pb::LogChunk& chunk, int64_t) {
  Source& source = sources_[chunk.replica()];
  // A line carries the time of its first byte.
  auto sink = [&](const Line& line) {
    print(chunk.replica(), source, line);
    source.time_unix_ms = chunk.time_unix_ms();
  };
  if (source.attempt != chunk.attempt()) source.lines.finish(sink);
  source.attempt = chunk.attempt();
  if (chunk.dropped_bytes() > 0) {
    source.lines.finish(sink);
    append_line(out_, {{"type", "lost"},
                       {"id", chunk.replica()},
                       {"attempt", source.attempt},
                       {"time", iso_time_ms(chunk.time_unix_ms())},
                       {"bytes", chunk.dropped_bytes()}});
  }
  if (source.lines.pending().empty()) source.time_unix_ms = chunk.time_unix_ms();
  source.lines.feed(chunk.data(), sink);
}

void JsonPrinter::add(const pb::StateEvent& event) {
  if (matches_) return;
  const auto state = parse_state(event.state());
  const bool gone = state && (is_terminal(*state) || *state == State::Restarting || *state == State::Suspended);
  if (const auto ended = sources_.find(event.id()); gone && ended != sources_.end()) finish_line(ended->first, ended->second);
  nlohmann::ordered_json object = {{"type", "state"},
                                   {"id", event.id()},
                                   {"attempt", event.attempt()},
                                   {"time", iso_time_ms(event.time_unix_ms())},
                                   {"state", event.state()},
                                   {"reason", event.reason()}};
  object["exit_code"] =
      event.has_exit_code() ? nlohmann::ordered_json(event.exit_code()) : nlohmann::ordered_json();
  append_line(out_, object);
}

void JsonPrinter::finish_line(const std::string& id, Source& source) {
  source.lines.finish([&](const Line& line) { print(id, source, line); });
}

void JsonPrinter::finish() {
  for (auto& [id, source] : sources_) finish_line(id, source);
}

}  // namespace dtrain::cli
