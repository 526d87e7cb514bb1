#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <thread>

#include "engine/server/grpc/parameter_service.grpc.pb.h"
#include "engine/server/grpc/pump.h"
#include "engine/server/grpc/tunnel.h"

namespace dtrain::engine {
namespace {

class Service : public ParameterService::Service {
 public:
  explicit Service(std::string server) : server_(std::move(server)) {}

  grpc::Status Exchange(grpc::ServerContext*,
                        grpc::ServerReaderWriter<Chunk, Chunk>* stream) override {
    auto connected = Socket::connect(server_, Deadline::after(1));
    if (!connected.ok()) return {grpc::StatusCode::UNAVAILABLE, connected.error().message};
    Socket socket = std::move(connected).value();
    std::thread answers([&] { pump_out(socket, *stream); });
    pump_in(*stream, socket);
    ::shutdown(socket.fd(), SHUT_RDWR);
    answers.join();
    return grpc::Status::OK;
  }

  grpc::Status Health(grpc::ServerContext*, const HealthRequest*, HealthReply* reply) override {
    reply->set_serving(Socket::connect(server_, Deadline::after(0)).ok());
    return grpc::Status::OK;
  }

 private:
  const std::string server_;
};

}  // namespace

struct TunnelExit::Parts {
  explicit Parts(std::string address) : service(std::move(address)) {}
  Service service;
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

Result<std::unique_ptr<TunnelExit>> TunnelExit::open(const std::string& listen,
                                                     std::string server) {
  auto parts = std::make_unique<Parts>(std::move(server));
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &parts->port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&parts->service);
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr || parts->port == 0) {
    return Error{Code::Unavailable, "listen for gRPC at " + listen, ""};
  }
  return std::unique_ptr<TunnelExit>(new TunnelExit(std::move(parts)));
}

TunnelExit::TunnelExit(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TunnelExit::~TunnelExit() {
  parts_->server->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
}
int TunnelExit::port() const {
  return parts_->port;
}

}  // namespace dtrain::engine
