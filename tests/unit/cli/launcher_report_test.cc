#include "cli/launcher_report.h"

#include <doctest/doctest.h>

#include "cli/ending.h"

namespace dtrain::cli {

namespace {

using Lines = std::vector<std::string>;

// As torchrun of PyTorch 2 prints it.
Lines report() {
  return {"E1130 14:30:01.123000 77 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 1 (pid: 80) of binary: python",
          "Traceback (most recent call last):",
          "  File \"bin/torchrun\", line 8, in <module>",
          "    sys.exit(main())",
          "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
          std::string(60, '='),
          "t.py FAILED",
          std::string(60, '-'),
          "Failures:",
          "  <NO_OTHER_FAILURES>",
          std::string(60, '-'),
          "Root Cause (first observed failure):",
          "[0]:",
          "  rank      : 1 (local_rank: 1)",
          "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
          std::string(60, '=')};
}

Lines joined(Lines first, const Lines& second, const Lines& third = {}) {
  first.insert(first.end(), second.begin(), second.end());
  first.insert(first.end(), third.begin(), third.end());
  return first;
}

}  // namespace

TEST_CASE("what torchrun says of a process that failed is left out, for that has said it before") {
  const Lines cause = {"epoch 1", "[rank1]: Traceback (most recent call last):", "[rank1]: ValueError: boom"};
  CHECK(without_launcher_report(joined(cause, report())) == cause);
  CHECK(without_launcher_report(joined(cause, report(), {"cleaned up"})) == joined(cause, {"cleaned up"}));
  CHECK(without_launcher_report(report()) == report());   // nothing else is known
  CHECK(without_launcher_report(cause) == cause);
  // Cut off in the middle.
  const Lines whole = report();
  CHECK(without_launcher_report(joined(cause, {whole.begin(), whole.begin() + 7})) == cause);
}

TEST_CASE("the last lines of what torchrun started are those of the process that failed") {
  Ending ending;
  std::string text = "[rank1]: ValueError: boom\n";
  for (const std::string& line : report()) text += line + '\n';
  pb::LogChunk chunk;
  chunk.set_replica("4.master");
  chunk.set_attempt(1);
  chunk.set_data(text);
  ending.add(chunk);
  CHECK(ending.last_lines("4.master") == Lines{"[rank1]: ValueError: boom"});
}

}  // namespace dtrain::cli
