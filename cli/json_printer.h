// Log lines and state changes as one JSON object a line:
//   {"type":"log","id":"4.worker.1","attempt":1,"time":"2017-08-31T07:23:46Z","text":"..."}
//   {"type":"state","id":"4","attempt":1,"time":"...","state":"FAILED","reason":"...","exit_code":3}
// Bytes that are not UTF-8 become U+FFFD; a line longer than kLineMaxBytes comes in parts, all but
// the last with "continues":true.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "cli/line_splitter.h"
#include "cli/printer.h"

namespace dtrain::cli {

class JsonPrinter final : public Printer {
 public:
  explicit JsonPrinter(std::function<bool(std::string_view line)> matches = {});

  void set_ids(const std::vector<std::string>&) override {}
  void add(const pb::LogChunk& chunk, int64_t now_ms) override;
  void add(const pb::StateEvent& event) override;
  void note(const std::string&, std::string_view, uint64_t) override {}
  void finish() override;
  void settle(int64_t) override {}
  std::optional<int64_t> next_settle_ms() const override { return std::nullopt; }
  void resize(const Screen&) override {}
  const std::string& output() const override { return out_; }
  void clear() override { out_.clear(); }

 private:
  struct Source {
    LineSplitter lines;
    uint32_t attempt = 0;
    uint64_t time_unix_ms = 0;
  };

  void print(const std::string& id, const Source& source, const Line& line);
  void finish_line(const std::string& id, Source& source);

  std::function<bool(std::string_view)> matches_;
  std::map<std::string, Source> sources_;
  std::string out_;
};

}  // namespace dtrain::cli
