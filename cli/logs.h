// `dtrain logs`: what of it is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "schema/dtrain.pb.h"
#include "schema/ids.h"
#include "schema/result.h"

namespace dtrain::cli {

// --since: "10m" ago, "14:30" today, "2026-01-31T14:30:00Z"; as wall clock.
Result<uint64_t> parse_since(const std::string& text, uint64_t now_unix_ms);

// NotFound when what is named never had this attempt; 0 means every one.
Status check_attempt(const pb::ShowReply& shown, const std::optional<IdPattern>& pattern,
                     uint64_t attempt);

// What can have no log yet, and why; "" when everything that matches runs or ran.
std::string not_started_text(const pb::ShowReply& shown, const std::optional<IdPattern>& pattern);

}  // namespace dtrain::cli
