// Who calls: what gRPC knows of the other end.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

namespace dtrain::daemon {

// Of whoever comes by the network, in PEM; empty for this machine's own.
template <class Call>
std::string certificate_of(const Call& call) {
  const auto found = call.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return found.empty() ? std::string() : std::string(found.front().data(), found.front().size());
}

}  // namespace dtrain::daemon
