// The scalars in TensorBoard's event files (events.out.tfevents.*): TFRecord frames of Event
// messages, as TensorFlow, Keras, PyTorch and JAX programs write them.
//
// Read when somebody asks, by whoever asks; nothing watches them. The few fields of Event that hold
// scalars are read from the wire by hand: a message class would copy graphs, images and audio only
// to throw them away, and need the definitions of another project. Promises: memory is bounded,
// whatever the files hold; what is torn, damaged or garbage is left out.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace dtrain::cli {

// What was written under one tag.
struct Scalar {
  double last = 0;  // of the highest step; of equal ones the one written later
  int64_t last_step = 0;
  double minimum = 0;
  double maximum = 0;
  uint64_t count = 0;
};

using Scalars = std::map<std::string, Scalar>;

// A larger record holds no scalar that anybody wants; it is passed over.
inline constexpr uint64_t kEventMaxBytes = 1 << 20;
inline constexpr size_t kScalarTagsMax = 1'000;

// Of all event files below the directory. The name of a scalar is the sub-directory and its tag:
// "validation/epoch_loss", or "loss" at the top.
Scalars read_event_files(const std::filesystem::path& output_dir);

// One file, to its end or to where its framing is lost. `folder` goes before each tag.
void read_event_file(std::FILE* file, std::string_view folder, Scalars& scalars);

}  // namespace dtrain::cli
