// The bytes of event files: checksums of TFRecord frames, and the scalars of one Event message.
// Pure; no input makes them read out of bounds, or slow.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace dtrain::cli {

// CRC-32C, masked as TFRecord stores it.
uint32_t masked_crc32c(std::string_view bytes);

struct EventScalar {
  std::string_view tag;  // into the message
  int64_t step = 0;
  double value = 0;
};

// Calls `found` for each summary value of a serialized Event that is one number: a simple_value, or
// a tensor of rank 0 and a numeric type. A message that makes no sense ends where it does so.
// Returns the step at which a session starts, of an Event that says so (SessionLog START).
std::optional<int64_t> read_event(std::string_view message, const std::function<void(const EventScalar&)>& found);

}  // namespace dtrain::cli
