// Tells when somebody removes what a process lives by: a file of its home, and with it the home itself.
// Header only: who includes it links dtrain_asio.
#pragma once

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

namespace dtrain {

// Owner: who is watched for. Thread: loop. Past a user's quota of such watches it tells nothing.
// The name alone may be removed by whoever tidies up a directory of temporary files: only when the directory is gone,
// or another one lies there, was it all meant.
class RemovalWatch {
 public:
  struct Calls {
    std::function<void()> on_file = [] {};       // the name was removed, or may have been
    std::function<void()> on_directory = [] {};  // then, once: the directory that it was in is removed, too
  };

  // `file` is there.
  RemovalWatch(boost::asio::io_context& loop, const std::filesystem::path& file, Calls calls)
      : directory_(file.parent_path()),
        name_(file.filename().string()),
        calls_(std::move(calls)),
        events_(loop),
        timer_(loop),
        was_(identity()) {
    const int fd = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0) return;
    events_.assign(fd);
    ::inotify_add_watch(fd, directory_.c_str(), IN_DELETE | IN_ONLYDIR);
    wait();
  }
  RemovalWatch(const RemovalWatch&) = delete;
  RemovalWatch& operator=(const RemovalWatch&) = delete;

 private:
  static constexpr std::chrono::milliseconds kLookAgain{250};   // what removes a home takes its time
  using Identity = std::pair<dev_t, ino_t>;

  // {}: there is none. Of one that can't be looked at it is not known, and it counts as there.
  Identity identity() const {
    struct stat found = {};
    if (::stat(directory_.c_str(), &found) == 0) return {found.st_dev, found.st_ino};
    return errno == ENOENT || errno == ENOTDIR ? Identity{} : was_;
  }

  void wait() {
    events_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
      if (error) return;
      if (name_was_removed()) {
        calls_.on_file();
        look();
      }
      wait();
    });
  }

  bool name_was_removed() {
    bool removed = false;
    alignas(inotify_event) char bytes[4096];
    for (ssize_t size; (size = ::read(events_.native_handle(), bytes, sizeof bytes)) > 0;) {
      for (ssize_t at = 0; at < size;) {
        const auto* const event = reinterpret_cast<const inotify_event*>(bytes + at);
        removed |= (event->mask & IN_Q_OVERFLOW) != 0 || (event->len > 0 && name_ == event->name);
        at += static_cast<ssize_t>(sizeof *event + event->len);
      }
    }
    return removed;
  }

  void look() {
    if (identity() != was_) return calls_.on_directory();
    if (::access((directory_ / name_).c_str(), F_OK) == 0) return;
    timer_.expires_after(kLookAgain);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) look();
    });
  }

  const std::filesystem::path directory_;
  const std::string name_;
  const Calls calls_;
  boost::asio::posix::stream_descriptor events_;
  boost::asio::steady_timer timer_;
  const Identity was_;
};

}  // namespace dtrain
