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
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

// A session starts where a training was resumed: values of that step or a later one that were written
// before, in the files of that folder, do not count. Those steps came twice.
struct SessionStart {
  uint64_t at = 0;  // which event of the folder it is, from 1
  int64_t step = 0;
};
inline constexpr size_t kSessionStartsMax = 10'000;

// Of all event files below the directory. The name of a scalar is the sub-directory and its tag:
// "validation/epoch_loss", or "loss" at the top.
Scalars read_event_files(const std::filesystem::path& output_dir);

// The same of those among `paths`, which are relative to the directory; `open` gives the file of a path, or null.
using EventFilePointer = std::unique_ptr<std::FILE, std::function<void(std::FILE*)>>;
Scalars read_event_files(const std::vector<std::string>& paths, const std::function<EventFilePointer(const std::string& path)>& open);

// The files of one folder, in the order in which they were begun.
class FolderReader {
 public:
  // The folder goes before each tag. `known`: the sessions that an earlier reading met, ascending.
  explicit FolderReader(std::string_view folder, std::vector<SessionStart> known = {});

  // One file, to its end or to where its framing is lost.
  void read(std::FILE* file, Scalars& scalars);

  // The sessions met so far. Empty: none came after a value, and what was read is right as it is. Else
  // it is to be read once more, by one who knows them.
  std::vector<SessionStart> starts() const { return had_values_ ? starts_ : std::vector<SessionStart>(); }

 private:
  void take(std::string_view record, Scalars& scalars);
  bool counts(int64_t step);

  std::string folder_;
  std::vector<SessionStart> known_;  // each with the lowest step of itself and those after it
  size_t next_ = 0;                  // the first of them that is yet to come
  uint64_t events_ = 0;
  bool has_values_ = false, had_values_ = false;  // so far; before some session
  std::vector<SessionStart> starts_;
};

}  // namespace dtrain::cli
