// How fast log lines become bytes for a pipe: 100-byte lines of eight replicas in 64 KiB chunks,
// against a plain copy of the same bytes. Prints one line a measurement; asserts nothing.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "cli/log_printer.h"

namespace {

using dtrain::cli::LogFormat;
using dtrain::cli::LogPrinter;

constexpr size_t kRounds = 5;
constexpr size_t kInputBytes = 256u << 20;
constexpr size_t kChunkBytes = 64u << 10;
constexpr size_t kLineBytes = 100;

double seconds_of(const auto& work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<dtrain::pb::LogChunk> make_chunks() {
  std::string line(kLineBytes - 1, 'x');
  line += '\n';
  std::string data;
  while (data.size() + line.size() <= kChunkBytes) data += line;
  data += line.substr(0, kChunkBytes - data.size());  // the last line is torn, as in life
  std::vector<dtrain::pb::LogChunk> chunks(8);
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].set_replica(fmt::format("4.worker.{}", i + 1));
    chunks[i].set_attempt(1);
    chunks[i].set_time_unix_ms(1504164226000);
    chunks[i].set_data(data);
  }
  return chunks;
}

void measure(const char* name, const LogFormat& format) {
  std::vector<dtrain::pb::LogChunk> chunks = make_chunks();
  std::vector<double> printing;
  std::vector<double> copying;
  std::string copy;
  for (size_t round = 0; round < kRounds; ++round) {
    LogPrinter printer(format);
    std::vector<std::string> ids;
    for (const auto& chunk : chunks) ids.push_back(chunk.replica());
    printer.set_ids(ids);
    size_t written_bytes = 0;
    printing.push_back(seconds_of([&] {
      for (size_t done = 0, i = 0; done < kInputBytes; done += kChunkBytes, ++i) {
        printer.add(chunks[i % chunks.size()], 0);
        written_bytes += printer.output().size();
        printer.clear();
      }
    }));
    copying.push_back(seconds_of([&] {
      for (size_t done = 0, i = 0; done < kInputBytes; done += kChunkBytes, ++i) {
        copy.assign(chunks[i % chunks.size()].data());
      }
    }));
  }
  std::sort(printing.begin(), printing.end());
  std::sort(copying.begin(), copying.end());
  double mb = static_cast<double>(kInputBytes) / 1e6;
  fmt::print("{:<10} {:6.0f} MB/s   copy {:6.0f} MB/s   ratio {:.2f}\n", name,
             mb / printing[kRounds / 2], mb / copying[kRounds / 2],
             copying[kRounds / 2] / printing[kRounds / 2]);
}

}  // namespace

int main() {
  measure("pipe", {});
  LogFormat raw;
  raw.raw = true;
  measure("raw", raw);
  LogFormat terminal;
  terminal.screen = {true, true, 120, 40};
  measure("terminal", terminal);
}
