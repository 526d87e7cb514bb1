#include "cli/lost_output.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace dtrain::cli {
namespace {

pb::LogChunk chunk(const char* replica, uint64_t dropped_bytes, const char* data) {
  pb::LogChunk made;
  made.set_replica(replica);
  made.set_attempt(1);
  made.set_dropped_bytes(dropped_bytes);
  made.set_data(data);
  return made;
}

TEST_CASE("losses that follow each other are one with the sum") {
  LostOutput lost;
  std::vector<std::string> printed;
  const auto print = [&](const pb::LogChunk& made) {
    printed.push_back(made.replica() + " " + std::to_string(made.dropped_bytes()) + " " + made.data());
  };
  lost.add(chunk("4.train", 0, "a"), print);
  for (int i = 0; i < 33; ++i) lost.add(chunk("4.train", 100, ""), print);
  CHECK(printed.size() == 1);
  lost.add(chunk("4.train", 50, "b"), print);   // a last piece, and what came after it
  lost.add(chunk("4.train", 7, ""), print);
  lost.add(chunk("4.train", 0, "c"), print);
  lost.add(chunk("4.train", 8, ""), print);
  lost.add(chunk("4.ps.1", 9, ""), print);
  lost.flush(print);
  lost.flush(print);
  CHECK(printed == std::vector<std::string>{"4.train 0 a", "4.train 3350 b", "4.train 7 ",
                                            "4.train 0 c", "4.train 8 ", "4.ps.1 9 "});
}

}  // namespace
}  // namespace dtrain::cli
