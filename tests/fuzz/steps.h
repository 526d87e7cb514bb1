// An input as a row of steps that make a file of frames (schema/framing.h). A fuzzer finds no
// checksum, so frames get theirs here; whatever a disk may do to them is a step as well.
//
//   f <kind> payload   a whole frame; kind is one digit
//   b bytes            these bytes, as they are: what a real writer left, or anything else
//   t <n>              the last n bytes are gone
//
// A step ends where kStepEnd or the input does, and its first byte says what it is. A target may
// know more of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/framing.h"

namespace dtrain::fuzz {

inline constexpr std::string_view kStepEnd = "\n%%";

struct Step {
  char what = 0;
  std::string_view rest;
  // The byte after `what`, 0 when there is none; and what follows it.
  uint8_t number() const { return rest.empty() ? uint8_t{0} : static_cast<uint8_t>(rest[0]); }
  std::string_view text() const { return rest.substr(std::min<size_t>(1, rest.size())); }
};

inline std::vector<Step> steps_of(const uint8_t* data, size_t size) {
  std::string_view left(reinterpret_cast<const char*>(data), size);
  std::vector<Step> steps;
  while (!left.empty()) {
    const std::string_view step = left.substr(0, left.find(kStepEnd));
    if (!step.empty()) steps.push_back({step[0], step.substr(1)});
    left.remove_prefix(std::min(left.size(), step.size() + kStepEnd.size()));
  }
  return steps;
}

// Does one of the three steps to the end of `file`; cuts nothing before `keep`.
inline void apply(const Step& step, std::string& file, size_t keep = 0) {
  if (step.what == 'f') append_frame(file, step.number() & 0x0f, step.text(), {});
  if (step.what == 'b') file += step.rest;
  if (step.what == 't')
    file.resize(file.size() - std::min<size_t>(step.number(), file.size() - keep));
}

// The good frames from the start of `file` on: what may be believed of it.
inline std::vector<Frame> good_frames(std::string_view file) {
  std::vector<Frame> frames;
  for (Frame frame; read_frame(file, frame) == FrameStatus::Good;) {
    frames.push_back(frame);
    file.remove_prefix(frame.size_bytes);
  }
  return frames;
}

}  // namespace dtrain::fuzz
