// What `dtrain users` shows. Pure.
#pragma once

#include <string>

#include "cli/terminal.h"
#include "schema/dtrain.pb.h"

namespace dtrain::cli {

std::string render_users(const pb::UsersReply& reply, const Screen& screen);

}  // namespace dtrain::cli
