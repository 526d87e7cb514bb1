#include "daemon/listener.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "tests/integration/daemon/served_daemon.h"
#include "tests/support/skipped.h"

namespace dtrain::daemon {
namespace {

TEST_CASE("a daemon that ran out of descriptors takes connections again once it has some") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  struct stat file {};
  REQUIRE(::stat(daemon.home.socket().c_str(), &file) == 0);
  CHECK((file.st_mode & 0777) == 0700);

  const Fd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(client);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, daemon.home.socket().c_str());
  {
    const FewDescriptors none;
    REQUIRE(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(daemon.loop.run_one_for(std::chrono::seconds(10)) == 1);   // the failed accept
    pollfd greeted{client.get(), POLLIN, 0};
    CHECK(::poll(&greeted, 1, 0) == 0);
  }
  // A server greets whoever it has taken.
  daemon.until([&] {
    pollfd greeted{client.get(), POLLIN, 0};
    return ::poll(&greeted, 1, 0) == 1;
  });
}

}  // namespace
}  // namespace dtrain::daemon
