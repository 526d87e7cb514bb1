// The texts with a form of their own that occur in dtrain.yml: names, sizes, durations, paths.
//
// Each form has one predicate, which the parser asks, and one regular expression, which the JSON
// Schema shows to editors; a test holds the two together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

struct TextFormat {
  std::string_view expected;  // completes "expected ..."
  std::string_view pattern;   // ECMA regular expression, anchored
  bool (*accepts)(std::string_view text);
};

extern const TextFormat kProjectName;
extern const TextFormat kParameterName;
extern const TextFormat kMetricName;  // loss, samples/s, val/top-1
extern const TextFormat kDataName;
extern const TextFormat kEnvName;
extern const TextFormat kEnvEntry;  // NAME or NAME=value
extern const TextFormat kMemoryText;
extern const TextFormat kDurationText;
extern const TextFormat kDurationOrNever;
extern const TextFormat kTensorflowVersion;
extern const TextFormat kAbsolutePath;
extern const TextFormat kInnerPath;  // relative, and stays inside
extern const TextFormat kImage;  // a name for podman or docker, or /path
extern const TextFormat kMount;  // SOURCE[:PATH][:ro]
extern const TextFormat kPythonChoice;
extern const TextFormat kHostLabel;
extern const TextFormat kExperimentText;  // 4, or 4.2 of a set
extern const TextFormat kHostTerm;  // a name, ID, pool, label or GPU of hosts, or a pattern of them; with ! before it, not those
inline constexpr size_t kHostLabelsMax = 64;
extern const TextFormat kSomeText;  // anything but nothing
extern const TextFormat kCommandText;  // and but blanks
extern const TextFormat kAnyText;

// "16GiB", "500MB", "1.5G": bytes. A number without unit is refused here.
std::optional<uint64_t> parse_memory(std::string_view text);
std::optional<uint64_t> parse_mib(std::string_view number);  // which a YAML's numbers without unit count
std::string format_memory(uint64_t bytes);  // "16GiB"; exact, so that parse_memory gives it back

// "12h", "1h30m", "1.5s", "500ms": milliseconds.
std::optional<int64_t> parse_duration_ms(std::string_view text);
std::string format_duration_ms(int64_t duration_ms);  // "1h30m"; exact

}  // namespace dtrain
