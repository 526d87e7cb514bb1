// A frame of a launch's record as the message that it holds (schema/launch_record.proto).
#pragma once

#include <string>
#include <string_view>

#include "schema/result.h"

namespace dtrain::runner {

inline Error damaged_record(const std::string& what, std::string_view why) {
  return {Code::DataLoss, fmt::format("{} is damaged: {}", what, why), ""};
}

// DataLoss, naming `what`, for anything else.
template <typename Message>
Result<Message> parse_record_frame(std::string_view payload, const std::string& what) {
  Message message;
  if (message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) return message;
  return damaged_record(what, "a frame is not what it should be");
}

}  // namespace dtrain::runner
