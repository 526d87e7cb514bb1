// Streams that people with a key have open: they end with the key.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

namespace dtrain::daemon {

// Thread: loop.
class UserStreams {
 public:
  template <class Stream>
  void add(std::string user, std::weak_ptr<Stream> stream) {
    open_.remove_if([](const Open& each) { return each.stream.expired(); });
    open_.push_back({std::move(user), stream, [stream] {
                       if (const auto live = stream.lock()) live->cut();
                     }});
  }
  void cut(const std::string& user) {
    for (const Open& each : open_) {
      if (each.user == user) each.cut();
    }
  }

 private:
  struct Open {
    std::string user;
    std::weak_ptr<void> stream;
    std::function<void()> cut;
  };
  std::list<Open> open_;
};

}  // namespace dtrain::daemon
