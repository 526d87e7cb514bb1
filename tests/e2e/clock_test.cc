// Somebody sets the wall clock while dtrain runs.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>

#include "schema/fd.h"
#include "tests/support/cluster.h"

using namespace dtrain;
using namespace dtrain::tests;

namespace {

// The file that jumping_clock.so reads.
class WrongClock {
 public:
  explicit WrongClock(const fs::path& path) : path_(path) {
    write_file(path, std::string(sizeof(int64_t), '\0'));
    const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    void* mapped = ::mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    REQUIRE(mapped != MAP_FAILED);
    seconds_ = static_cast<volatile int64_t*>(mapped);
  }
  ~WrongClock() { ::munmap(const_cast<int64_t*>(seconds_), sizeof(int64_t)); }
  WrongClock(const WrongClock&) = delete;
  WrongClock& operator=(const WrongClock&) = delete;

  void set_back(int64_t seconds) { *seconds_ = *seconds_ - seconds; }
  std::map<std::string, std::string> env() const {
    return {{"LD_PRELOAD", JUMPING_CLOCK_LIBRARY}, {"JUMPING_CLOCK", path_.string()}};
  }

 private:
  const fs::path path_;
  volatile int64_t* seconds_;
};

Fd listen_at(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.native().size() < sizeof address.sun_path);
  std::strcpy(address.sun_path, path.c_str());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(fd.get(), 16) == 0);
  return fd;
}

// gRPC waits between its attempts until a time of day, which may then be an hour away.
TEST_CASE("a runner dials on when the clock is set back") {
  Cluster cluster;
  WrongClock clock(cluster.folder() / "clock");
  const fs::path socket = cluster.folder() / "socket";
  const Fd listener = listen_at(socket);
  cluster.env = clock.env();
  const auto runner = cluster.start({"runner", "run", "--join", "unix:" + socket.string(), "--home",
                                     (cluster.folder() / "host").string(), "--name", "host"});
  // Nobody here speaks its language; each time it dials it looks first whether anybody is there, and says nothing.
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  int greetings = 0;
  while (greetings < 12 && std::chrono::steady_clock::now() < give_up) {
    pollfd polled{listener.get(), POLLIN, 0};
    if (::poll(&polled, 1, 3) == 1) {
      const Fd connection(::accept(listener.get(), nullptr, nullptr));
      char first = 0;
      if (::recv(connection.get(), &first, 1, 0) == 1) ++greetings;
    }
    clock.set_back(3600);
  }
  CHECK(greetings == 12);
  runner->signal(SIGTERM);
  CHECK(runner->wait().code == 0);
}

}  // namespace
