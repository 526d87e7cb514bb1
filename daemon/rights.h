// Who asks, and what they may do with whose experiments. Pure.
//
// Whoever has this daemon's account, or a key with all rights, may do everything. Others see everything, submit in their
// own name, and end or change what is theirs. What is submitted runs as the account that the host's runner has, whoever
// submitted it: this keeps people from mistakes, and strangers out, and no colleague from what that account may do.
#pragma once

#include <string>
#include <string_view>

#include "daemon/model.h"
#include "schema/result.h"

namespace dtrain::daemon {

struct Person {
  std::string user = {};   // in whose name they submit; empty: in the one that they say, being of this daemon's account
  bool is_admin = true;
};

// PermissionDenied: it is somebody else's. `verb`: "kill"; `id` as it was called.
Status may_change(const Person& person, const Submission& submission, std::string_view verb, std::string_view id);
// What concerns all: hosts, keys, the daemon itself. `what`: "hosts invite".
Status may_administer(const Person& person, std::string_view what);

}  // namespace dtrain::daemon
