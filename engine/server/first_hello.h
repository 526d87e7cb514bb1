// A server reads no data: what it must know of it, it hears from the first worker that comes, of whatever rank, also when
// it was killed and starts again.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/server/doors.h"
#include "engine/server/link.h"
#include "engine/server/server_plan.h"

namespace dtrain::engine::server {

using MakePlan = std::function<Result<ServerPlan>(const DataFacts& data)>;

struct FirstHello {
  ServerPlan plan;
  // Who has come by then. Of the first all of the hello is there, of others a part or nothing.
  std::vector<std::unique_ptr<Link>> links;
};

// Until a worker of this job, one of so many, comes, or `ending` is readable: then there is none. Who is of another job,
// or has data that no plan can be made of, is told so.
Result<std::optional<FirstHello>> wait_for_first_hello(Doors& doors, uint64_t job, size_t workers, const MakePlan& make_plan,
                                                       int ending);

}  // namespace dtrain::engine::server
