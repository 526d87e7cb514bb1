// What can show the items of a Watch: LogPrinter for people, JsonPrinter for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal.h"
#include "schema/dtrain.pb.h"

namespace dtrain::cli {

// Pure: items and the time go in, bytes to be written come out.
class Printer {
 public:
  virtual ~Printer() = default;
  // All IDs that may come; an unknown one is printed all the same.
  virtual void set_ids(const std::vector<std::string>& ids) = 0;
  // `now_ms` is any clock that only goes forward.
  virtual void add(const pb::LogChunk& chunk, int64_t now_ms) = 0;
  virtual void add(const pb::StateEvent& event) = 0;
  // A line of our own under an ID: "+3 ended because of it".
  virtual void note(const std::string& id, std::string_view text, uint64_t time_unix_ms) = 0;
  // Nothing follows: unfinished lines are printed as they are.
  virtual void finish() = 0;
  // Call after the items of a batch, and when next_settle_ms() has come, before output().
  virtual void settle(int64_t now_ms) = 0;
  virtual std::optional<int64_t> next_settle_ms() const = 0;
  virtual void resize(const Screen& screen) = 0;
  // The bytes to be written; clear() after writing them.
  virtual const std::string& output() const = 0;
  virtual void clear() = 0;
  // What a reader must know and output() has no room for; to stderr. Each is given once.
  virtual std::string take_remarks() { return ""; }
};

}  // namespace dtrain::cli
