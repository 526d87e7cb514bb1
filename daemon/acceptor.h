// Takes connections for ever: also when for a while no descriptor is free, at which gRPC's own
// listener stops for good. Where there is no room for another one it waits until there is.
//
// Owner: a listener. Thread: loop.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
#include <utility>

namespace dtrain::daemon {

template <typename Protocol>
class Acceptor {
 public:
  using Socket = typename Protocol::socket;

  Acceptor(
      boost::asio::io_context& loop, std::function<void(Socket)> take,
      std::function<bool()> has_room = [] { return true; })
      : take_(std::move(take)), has_room_(std::move(has_room)), acceptor_(loop), retry_(loop) {}
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  typename Protocol::acceptor& socket() { return acceptor_; }   // to be opened, bound and made to listen
  bool is_open() const { return acceptor_.is_open(); }

  void accept() {
    if (!has_room_()) return accept_later();
    acceptor_.async_accept([this](boost::system::error_code error, Socket socket) {
      if (error == boost::asio::error::operation_aborted) return;   // closed, and perhaps gone
      if (!acceptor_.is_open()) return;
      if (error == boost::asio::error::connection_aborted) return accept();
      if (error) {
        std::fprintf(stderr, "accept: %s\n", error.message().c_str());
        return accept_later();
      }
      socket.non_blocking(true, error);
      if (!error) take_(std::move(socket));
      accept();
    });
  }

  void close() {
    retry_.cancel();
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  }

 private:
  static constexpr auto kRetry = std::chrono::milliseconds(100);

  void accept_later() {
    retry_.expires_after(kRetry);
    retry_.async_wait([this](boost::system::error_code stopped) {
      if (!stopped) accept();
    });
  }

  const std::function<void(Socket)> take_;
  const std::function<bool()> has_room_;
  typename Protocol::acceptor acceptor_;
  boost::asio::steady_timer retry_;
};

}  // namespace dtrain::daemon
