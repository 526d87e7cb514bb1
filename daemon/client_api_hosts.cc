// What the CLI asks about hosts: which there are, who may join, and what takes nothing more.
#include <algorithm>
#include <cstdio>

#include "daemon/client_api.h"
#include "daemon/describe.h"
#include "schema/clock.h"
#include "schema/config.h"

namespace dtrain::daemon {

grpc::ServerUnaryReactor* ClientApi::Hosts(grpc::CallbackServerContext* context,
                                           const pb::HostsRequest*, pb::HostsReply* reply) {
  return answer(context, [this, reply](const Person&) { return hosts(*reply); });
}

grpc::ServerUnaryReactor* ClientApi::Invite(grpc::CallbackServerContext* context,
                                            const pb::InviteRequest* request, pb::InviteReply* reply) {
  return answer_admin(context, "hosts invite", [this, request, reply] { return invite(*request, *reply); });
}

grpc::ServerUnaryReactor* ClientApi::Drain(grpc::CallbackServerContext* context,
                                           const pb::DrainRequest* request, pb::DrainReply* reply) {
  return answer_admin(context, request->undrain() ? "hosts undrain" : "hosts drain",
                      [this, request, reply] { return drain(*request, *reply); });
}

grpc::ServerUnaryReactor* ClientApi::Revoke(grpc::CallbackServerContext* context,
                                            const pb::RevokeRequest* request, pb::RevokeReply* reply) {
  return answer_admin(context, "hosts revoke", [this, request, reply] { return revoke(*request, *reply); });
}

Status ClientApi::hosts(pb::HostsReply& reply) {
  const Model& model = parts_.scheduler.model();
  for (const auto& [id, host] : model.hosts) {
    if (host.potential) continue;
    pb::HostInfo& info = *reply.add_hosts();
    info = describe(host, model, boottime_ms());
    const pb::Hello* hello = parts_.runners.hello(id);
    if (hello == nullptr) continue;
    info.set_version(hello->version());
    info.set_cgroup(hello->inventory().cgroup());
    *info.mutable_uncapped() = hello->inventory().uncapped();
    info.set_gpu_note(hello->inventory().gpu_note());
    *info.mutable_gpus() = hello->inventory().gpus();
  }
  // Their IDs are random.
  std::stable_sort(reply.mutable_hosts()->begin(), reply.mutable_hosts()->end(),
                   [](const pb::HostInfo& a, const pb::HostInfo& b) { return a.name() < b.name(); });
  if (parts_.pools != nullptr) parts_.pools->describe(reply);
  if (parts_.keys == nullptr) return ok();
  for (const std::string& name : parts_.keys->names()) {
    if (!parts_.runners.has_joined_by(name)) reply.add_invited(name);
  }
  return ok();
}

Status ClientApi::check_listens() const {
  if (network_ == nullptr) {
    return Error{Code::FailedPrecondition, "this daemon takes hosts and people of its own machine only",
                 fmt::format("dtrain daemon start --listen ADDRESS:PORT writes that into {}; "
                             "what runs goes on",
                             parts_.home.config().string())};
  }
  return ok();
}

Status ClientApi::invite(const pb::InviteRequest& request, pb::InviteReply& reply) {
  TRY(check_listens());
  TRY(const Endpoint daemon, dialled_as(*network_, request.address(), parts_.address, parts_.home));
  TRY(const AccessKey key, parts_.keys->invite(request.name(), daemon));
  reply.set_key(to_text(key));
  reply.set_daemon(key.daemon);
  std::fprintf(stderr, "host %s has a key now\n", request.name().c_str());
  return ok();
}

Status ClientApi::drain(const pb::DrainRequest& request, pb::DrainReply& reply) {
  const Model& model = parts_.scheduler.model();
  std::vector<const Host*> called;
  std::vector<std::string> names;
  for (const auto& [id, host] : model.hosts) {
    if (host.potential) continue;
    names.push_back(host.name);
    // The name of a pool is no one host's.
    if (host.name == request.host() || (host.pool != request.host() && is_called(host, request.host()))) called.push_back(&host);
  }
  if (called.empty()) {
    return Error{Code::NotFound, fmt::format("no host is named '{}'", request.host()),
                 fmt::format("known hosts: {}", fmt::join(names, ", "))};
  }
  if (called.size() > 1) {
    return Error{Code::InvalidArgument, fmt::format("{} hosts are named '{}'", called.size(), request.host()),
                 "name one by its ID, as `dtrain hosts` shows it"};
  }
  const HostId id = called.front()->id;
  reply.set_name(called.front()->name);
  reply.set_changed(model.drained.contains(id) == request.undrain());
  TRY(parts_.store.set_drained(id, !request.undrain()));
  parts_.scheduler.handle(HostDrained{id, !request.undrain()});
  std::fprintf(stderr, "host %s is %s\n", reply.name().c_str(), request.undrain() ? "drained no more" : "drained");
  if (const auto seated = model.seated.find(id); seated != model.seated.end()) {
    for (const ExperimentId& experiment : seated->second) reply.add_experiments(to_string(experiment));
  }
  return ok();
}

Status ClientApi::revoke(const pb::RevokeRequest& request, pb::RevokeReply& reply) {
  TRY(check_listens());
  TRY(const auto hosts, parts_.keys->revoke(request.name()));
  reply.set_was_connected(parts_.runners.cut(request.name()));
  std::fprintf(stderr, "host %s: its key is revoked\n", request.name().c_str());
  for (const HostId& host : hosts) parts_.scheduler.handle(HostRevoked{host});
  return ok();
}

}  // namespace dtrain::daemon
