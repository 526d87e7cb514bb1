#include "daemon/output_mark.h"

#include "schema/random_id.h"
#include "schema/small_file.h"

namespace dtrain::daemon {

Result<OutputMark> mark_outputs(const std::filesystem::path& outputs) {
  std::error_code error;
  const auto folder = std::filesystem::canonical(outputs, error);
  if (error) return errno_error(fmt::format("read {}", outputs.string()), error.value());
  OutputMark mark{folder / ".dtrain-mark", {}};
  TRY(const auto kept, read_file(mark.file));
  mark.text = kept.value_or("");
  if (!mark.text.empty()) return mark;
  TRY(mark.text, random_id());
  TRY(replace_file(mark.file, mark.text));
  return mark;
}

}  // namespace dtrain::daemon
