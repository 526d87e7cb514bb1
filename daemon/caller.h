// Who calls, as gRPC knows it from the listener that took the connection.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

namespace dtrain::daemon {

class Caller {
 public:
  template <class Call>
  static Caller of(const Call& call) {
    const auto context = call.auth_context();
    const auto property = [&context](const char* name) {
      const auto found = context->FindPropertyValues(name);
      return found.empty() ? std::string() : std::string(found.front().data(), found.front().size());
    };
    return {property(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME) != kNetwork, property(GRPC_X509_PEM_CERT_PROPERTY_NAME)};
  }

  // Of this daemon's account: by the socket, which nobody else can open.
  bool is_own() const { return is_own_; }
  // Of whoever comes by the network, in PEM; the authority has signed it.
  const std::string& certificate() const { return certificate_; }

 private:
  static constexpr const char* kNetwork = "ssl";   // gRPC's word for TLS, without which nobody comes by the network

  Caller(bool is_own, std::string certificate) : is_own_(is_own), certificate_(std::move(certificate)) {}

  bool is_own_;
  std::string certificate_;
};

}  // namespace dtrain::daemon
