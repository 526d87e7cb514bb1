#include <grpcpp/grpcpp.h>
#include "schema/dtrain.grpc.pb.h"
int main() { auto s = dtrain::pb::Client::NewStub(grpc::CreateChannel("unix:/tmp/x", grpc::InsecureChannelCredentials())); dtrain::pb::InfoReply r; grpc::ClientContext c; return s->Info(&c, {}, &r).error_code(); }
