#include "daemon/rights.h"

#include <fmt/format.h>

namespace dtrain::daemon {

Status may_change(const Person& person, const Submission& submission, std::string_view verb, std::string_view id) {
  if (person.is_admin || person.user == submission.user) return ok();
  return Error{Code::PermissionDenied, fmt::format("{} {}: it is {}'s, and this key is {}'s", verb, id, submission.user, person.user),
               "what is another's, only they and an admin end or change"};
}

Status may_administer(const Person& person, std::string_view what) {
  if (person.is_admin) return ok();
  return Error{Code::PermissionDenied, fmt::format("{} is for admins, and {}'s key is no admin's", what, person.user),
               "`dtrain users` shows whose keys are"};
}

}  // namespace dtrain::daemon
