// Who sits before a command beside a replica, wherever that is.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "schema/dtrain.pb.h"

namespace dtrain::runner {

// Thread: loop. Promises: on_input in order, then on_closed once, unless end() came before; no callback after either.
class ExecPeer {
 public:
  virtual ~ExecPeer() = default;
  std::function<void(const pb::ExecInput&)> on_input;
  std::function<void()> on_closed;

  virtual void send(pb::ExecOutput message) = 0;
  // After what was sent.
  virtual void end() = 0;
};

// By the session that the daemon gave it.
using DialExec = std::function<std::shared_ptr<ExecPeer>(const std::string& session)>;

}  // namespace dtrain::runner
