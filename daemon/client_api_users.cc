// What the CLI asks about people: whose keys there are, and who may come in by one.
#include <cstdio>

#include "daemon/client_api.h"

namespace dtrain::daemon {

grpc::ServerUnaryReactor* ClientApi::InviteUser(grpc::CallbackServerContext* context, const pb::InviteUserRequest* request,
                                                pb::InviteReply* reply) {
  return answer_admin(context, "users invite", [this, request, reply] { return invite_user(*request, *reply); });
}

grpc::ServerUnaryReactor* ClientApi::RevokeUser(grpc::CallbackServerContext* context, const pb::RevokeUserRequest* request,
                                                pb::RevokeUserReply* reply) {
  return answer_admin(context, "users revoke", [this, request, reply] { return revoke_user(*request, *reply); });
}

grpc::ServerUnaryReactor* ClientApi::Users(grpc::CallbackServerContext* context, const pb::UsersRequest*, pb::UsersReply* reply) {
  return answer(context, [this, reply](const Person& person) { return users(person, *reply); });
}

Status ClientApi::invite_user(const pb::InviteUserRequest& request, pb::InviteReply& reply) {
  TRY(check_listens());
  TRY(const Endpoint daemon, dialled_as(*network_, request.address(), parts_.address, parts_.home, KeyOf::User));
  TRY(const AccessKey key, users_->invite(request.name(), request.admin(), daemon));
  std::fprintf(stderr, "user %s has a key now%s\n", request.name().c_str(), request.admin() ? ", an administrator's" : "");
  reply.set_key(to_text(key));
  reply.set_daemon(key.daemon);
  return ok();
}

Status ClientApi::revoke_user(const pb::RevokeUserRequest& request, pb::RevokeUserReply& reply) {
  if (users_ == nullptr) TRY(check_listens());
  TRY(users_->revoke(request.name()));
  std::fprintf(stderr, "user %s: the key is revoked\n", request.name().c_str());
  user_streams_.cut(request.name());
  const Model& model = parts_.scheduler.model();
  for (const uint32_t number : parts_.scheduler.live_numbers()) {
    const Experiment& first = model.experiments.lower_bound({number, 0})->second;
    if (first.submission->user == request.name()) reply.add_live(number);
  }
  return ok();
}

Status ClientApi::users(const Person& person, pb::UsersReply& reply) {
  reply.set_user(person.user);
  reply.set_admin(person.is_admin);
  if (users_ == nullptr) return ok();
  for (const Person& each : users_->all()) {
    pb::UsersReply::User& user = *reply.add_users();
    user.set_name(each.user);
    user.set_admin(each.is_admin);
  }
  return ok();
}

}  // namespace dtrain::daemon
