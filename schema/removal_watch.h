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
#include <optional>
#include <string>
#include <utility>

namespace dtrain {

// Owner: who is watched for. Thread: loop. Past a user's quota of such watches it tells nothing.
// The name alone may be removed by whoever tidies up a directory of temporary files: only when the directory is gone, or
// another one lies there, or in it somebody else's file of that name, was it all meant.
class RemovalWatch {
 public:
  struct Calls {
    std::function<void()> on_file = [] {};       // the name was removed, or may have been
    std::function<void()> on_all = [] {};        // then: the directory that it was in is removed, too, or is another's
  };

  // `file` is there.
  RemovalWatch(boost::asio::io_context& loop, const std::filesystem::path& file, Calls calls)
      : directory_(file.parent_path()),
        name_(file.filename().string()),
        calls_(std::move(calls)),
        events_(loop),
        timer_(loop),
        was_(identity(directory_)),
        file_was_(identity(file)) {
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

  // {}: there is none. Of what can't be looked at nothing is known: nullopt.
  static std::optional<Identity> identity(const std::filesystem::path& path) {
    struct stat found = {};
    if (::stat(path.c_str(), &found) == 0) return Identity{found.st_dev, found.st_ino};
    return errno == ENOENT || errno == ENOTDIR ? std::optional(Identity{}) : std::nullopt;
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
    const auto directory = identity(directory_), file = identity(directory_ / name_);
    const bool is_there = file && *file != Identity{};
    if ((directory && directory != was_) || (is_there && file != file_was_)) return calls_.on_all();
    if (is_there) return;
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
  const std::optional<Identity> was_, file_was_;
};

}  // namespace dtrain
