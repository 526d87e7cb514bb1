// What a replica left in its work directory, for somebody elsewhere: a list of it, or an archive.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runner/environment.h"
#include "runner/file_worker.h"
#include "runner/process.h"
#include "runner/replica_session.h"

namespace dtrain::runner {

// Promises: nothing is sent of what was there before the replica began. An archive is made by tar as fast as it is taken.
class LeftSession final : public ReplicaSession {
 public:
  LeftSession(boost::asio::io_context& loop, std::shared_ptr<ExecPeer> peer, std::function<void()> over);

  // It is looked for by `files`, in `work`, where the views are.
  void start(FileWorker& files, const std::filesystem::path& work, const Environment& env, const pb::LeftOpen& open);

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  // Reaped whatever becomes of the session.
  struct Program {
    explicit Program(boost::asio::io_context& loop) : died(loop) {}
    Child child;
    Descriptor died;
    std::optional<int> status;
  };

  std::shared_ptr<LeftSession> shared() { return std::static_pointer_cast<LeftSession>(shared_from_this()); }
  // `input`: what it reads.
  Status run(SpawnRequest request, const std::string& input);
  void on_input(const pb::ExecInput& message) override;
  void read_output();
  void end_if_over();
  void close() override;

  boost::asio::io_context& loop_;
  std::shared_ptr<Program> program_;
  Descriptor output_;
  bool reads_ = false;   // is waiting to
  bool output_ended_ = false;
};

}  // namespace dtrain::runner
