#include "runner/keeper_ctl.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "schema/random_id.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

namespace asio = boost::asio;

TEST_CASE("without descriptors a keeper waits for some instead of spinning, and answers then") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  asio::io_context loop;
  std::vector<CtlRequest::Verb> heard;
  KeeperCtl ctl(loop, [&](const CtlRequest& request) { heard.push_back(request.verb); });
  const std::string name = *random_id();
  REQUIRE(ctl.listen(name).ok());
  asio::local::stream_protocol::socket runner(loop);
  runner.connect(std::string(1, '\0') + "dtrain-keeper-" + name);
  asio::write(runner, asio::buffer("start 1\n", 8));

  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = dup(0);
  close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  int turns = 0;
  while (turns < 1'000 && loop.poll_one() > 0) ++turns;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(turns < 1'000);
  CHECK(heard.empty());
  while (heard.empty()) loop.run_one();
  CHECK(heard.front() == CtlRequest::Verb::Start);
}

}  // namespace
}  // namespace dtrain::runner
