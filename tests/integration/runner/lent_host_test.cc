#include "runner/lent_host.h"

#include <doctest/doctest.h>

namespace dtrain::runner {
namespace {

struct Lent {
  boost::asio::io_context loop;
  size_t held = 0;
  bool ended = false;
  std::function<void()> gone;
  LentHost host;

  explicit Lent(std::chrono::milliseconds patience)
      : host(loop, patience, {[this] { return held; }, [this](std::function<void()> then) { gone = std::move(then); },
                              [this] { ended = true; }}) {}
};

TEST_CASE("a lent host that no daemon wants ends, however often it dials") {
  Lent lent(std::chrono::milliseconds(20));
  // It dials in vain all the time, and that is no sign of a daemon.
  boost::asio::steady_timer dial(lent.loop);
  std::function<void()> again = [&] {
    lent.host.lost();
    dial.expires_after(std::chrono::milliseconds(1));
    dial.async_wait([&](boost::system::error_code) { again(); });
  };
  again();
  while (!lent.ended) REQUIRE(lent.loop.run_one_for(std::chrono::seconds(10)) == 1);
}

TEST_CASE("a lent host stays while there is a daemon, or something of one") {
  Lent lent(std::chrono::milliseconds(5));
  lent.host.found();
  lent.loop.run();   // nothing is waited for
  CHECK_FALSE(lent.ended);
  lent.loop.restart();
  lent.held = 1;
  lent.host.lost();
  for (int i = 0; i < 3; ++i) REQUIRE(lent.loop.run_one_for(std::chrono::seconds(10)) == 1);
  CHECK_FALSE(lent.ended);
  lent.held = 0;
  REQUIRE(lent.loop.run_one_for(std::chrono::seconds(10)) == 1);
  CHECK(lent.ended);
}

TEST_CASE("told to end, it waits for what is there") {
  Lent lent(std::chrono::minutes(1));
  lent.held = 1;
  lent.host.leave();
  CHECK_FALSE(lent.ended);
  lent.gone();
  CHECK(lent.ended);
}

}  // namespace
}  // namespace dtrain::runner
