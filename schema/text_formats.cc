#include "schema/text_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "schema/decimal.h"
#include "schema/mounts.h"

namespace dtrain {

namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_alphanumeric(char c) {
  return is_letter(c) || is_digit(c);
}
bool is_name_byte(char c) {
  return is_alphanumeric(c) || c == '_' || c == '-';
}

// All of `text` is made of bytes that `allowed` admits.
bool consists_of(std::string_view text, bool (*allowed)(char)) {
  return std::all_of(text.begin(), text.end(), allowed);
}

bool is_image(std::string_view text) {
  const bool is_path = text.starts_with('/') && text.size() <= 4095 && text.find('\0') == std::string_view::npos;
  const auto is_image_byte = [](char c) { return is_alphanumeric(c) || std::string_view("._:/@+-").find(c) != std::string_view::npos; };
  return is_path || (!text.empty() && text.size() <= 1024 && is_alphanumeric(text.front()) && consists_of(text, is_image_byte));
}
bool is_project_name(std::string_view text) {
  return text.size() <= 100 && !text.empty() && is_alphanumeric(text.front()) &&
         is_alphanumeric(text.back()) && consists_of(text, is_name_byte);
}

bool is_parameter_name(std::string_view text) {
  return text.size() <= 100 && !text.empty() && (is_letter(text[0]) || text[0] == '_') &&
         consists_of(text, is_name_byte);
}

bool is_data_name(std::string_view text) {
  return text.size() <= 100 && !text.empty() && is_letter(text[0]) &&
         consists_of(text, is_name_byte);
}

bool is_metric_name(std::string_view text) {
  return text.size() <= 100 && !text.empty() && (is_alphanumeric(text[0]) || text[0] == '_') &&
         consists_of(text, [](char c) { return is_name_byte(c) || c == '.' || c == '/'; });
}

bool is_env_name(std::string_view text) {
  return text.size() <= 200 && !text.empty() && (is_letter(text[0]) || text[0] == '_') &&
         consists_of(text, [](char c) { return is_alphanumeric(c) || c == '_'; });
}

bool is_env_entry(std::string_view text) {
  return is_env_name(text.substr(0, text.find('=')));
}

bool is_tensorflow_version(std::string_view text) {
  if (text == "latest") return true;
  size_t numbers = 0;
  while (numbers < 3) {
    size_t digits = 0;
    while (digits < text.size() && is_digit(text[digits])) ++digits;
    if (digits == 0 || digits > 6) return false;
    ++numbers;
    text.remove_prefix(digits);
    if (text.size() < 2 || text[0] != '.' || !is_digit(text[1])) break;
    text.remove_prefix(1);
  }
  if (numbers < 2) return false;
  if (text.empty()) return true;
  // A release candidate, or the suffix of one of RiseML's image tags.
  return text.size() <= 40 && (text[0] == '-' || is_letter(text[0])) &&
         is_alphanumeric(text.back()) &&
         consists_of(text, [](char c) { return is_alphanumeric(c) || c == '-' || c == '.'; });
}

bool has_parent_part(std::string_view path) {
  while (true) {
    const size_t slash = path.find('/');
    if (path.substr(0, slash) == "..") return true;
    if (slash == std::string_view::npos) return false;
    path.remove_prefix(slash + 1);
  }
}

bool is_absolute_path(std::string_view text) {
  return !text.empty() && text[0] == '/' && text.size() < 4096;
}

bool is_inner_path(std::string_view text) {
  return !text.empty() && text[0] != '/' && text.size() < 4096 && !has_parent_part(text);
}

bool is_python_choice(std::string_view text) {
  if (is_absolute_path(text)) return true;
  if (text.starts_with("conda:")) text.remove_prefix(6);
  return !text.empty() && text.size() <= 200 && is_alphanumeric(text[0]) &&
         consists_of(text, [](char c) { return is_name_byte(c) || c == '.'; });
}

struct Unit {
  std::string_view word;
  uint64_t bytes;
};

// As Kubernetes and dd have them: K is 1000, Ki is 1024, a B may follow either.
constexpr std::array<Unit, 11> kMemoryUnits{{
    {"B", 1},
    {"K", 1'000},
    {"M", 1'000'000},
    {"G", 1'000'000'000},
    {"T", 1'000'000'000'000},
    {"P", 1'000'000'000'000'000},
    {"Ki", uint64_t{1} << 10},
    {"Mi", uint64_t{1} << 20},
    {"Gi", uint64_t{1} << 30},
    {"Ti", uint64_t{1} << 40},
    {"Pi", uint64_t{1} << 50},
}};

struct TimeUnit {
  std::string_view word;
  int64_t ms;
};

constexpr std::array<TimeUnit, 5> kTimeUnits{
    {{"ms", 1}, {"s", 1'000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}}};

// Takes 12 or 1.5 off the front; an exponent is no part of a size or a duration.
std::optional<Decimal> take_number(std::string_view& text) {
  size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  if (end == 0) return std::nullopt;
  if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
    ++end;
    while (end < text.size() && is_digit(text[end])) ++end;
  }
  const auto value = parse_decimal(text.substr(0, end));
  text.remove_prefix(end);
  return value;
}

}  // namespace

const TextFormat kProjectName{
    "a name of at most 100 letters, digits, '-' and '_' that starts and ends with a letter or digit",
    "^[A-Za-z0-9]([A-Za-z0-9_-]{0,98}[A-Za-z0-9])?$", is_project_name};
const TextFormat kParameterName{"a name of letters, digits, '-' and '_' that starts with a letter",
                                "^[A-Za-z_][A-Za-z0-9_-]{0,99}$", is_parameter_name};
const TextFormat kDataName{"a name of letters, digits, '-' and '_' that starts with a letter",
                           "^[A-Za-z][A-Za-z0-9_-]{0,99}$", is_data_name};
const TextFormat kMetricName{
    "a name of letters, digits, '_', '-', '.' and '/' that starts with a letter, a digit or '_'",
    "^[A-Za-z0-9_][A-Za-z0-9_./-]{0,99}$", is_metric_name};
const TextFormat kEnvName{"the name of an environment variable", "^[A-Za-z_][A-Za-z0-9_]{0,199}$",
                          is_env_name};
const TextFormat kEnvEntry{"NAME (its value is taken from your shell) or NAME=value",
                           "^[A-Za-z_][A-Za-z0-9_]{0,199}(=[\\s\\S]*)?$", is_env_entry};
const TextFormat kMemoryText{"a size such as 16GiB, 500MB or 4096 (MiB)",
                             "^[0-9]+(\\.[0-9]+)? ?(B|[KMGTP]i?B?)$",
                             [](std::string_view text) { return parse_memory(text).has_value(); }};
const TextFormat kDurationText{
    "a duration such as 30s, 1h30m, 500ms or 10 (seconds)", "^([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+$",
    [](std::string_view text) { return parse_duration_ms(text).has_value(); }};
const TextFormat kDurationOrNever{
    "a duration such as 30s or 1h30m, or never", "^(never|([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+)$",
    [](std::string_view text) { return text == "never" || parse_duration_ms(text).has_value(); }};
const TextFormat kTensorflowVersion{
    "a version such as 2.15.0, or 'latest'",
    "^(latest|[0-9]{1,6}(\\.[0-9]{1,6}){1,2}([A-Za-z]|[A-Za-z-][A-Za-z0-9.-]{0,38}[A-Za-z0-9])?)$",
    is_tensorflow_version};
const TextFormat kAbsolutePath{"an absolute path", "^/[\\s\\S]{0,4094}$", is_absolute_path};
const TextFormat kInnerPath{"a path inside the project, without '..'",
                            "^(?!/)(?!(?:[\\s\\S]*/)?\\.\\.(?:/|$))[\\s\\S]{1,4095}$",
                            is_inner_path};
const TextFormat kImage{"the name of an image (python:3.12, docker-archive:/path), or the /path of a directory of its files",
                        "^(/[\\s\\S]{0,4094}|[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,1023})$", is_image};
const TextFormat kMount{"SOURCE[:PATH][:ro], both absolute, and not /, /proc, /sys or /dev",
                        "^/[^:]{1,4094}(:/[^:]{1,4094})?(:r[ow])?$",
                        [](std::string_view text) { return parse_mount(text).has_value(); }};
const TextFormat kPythonChoice{
    "auto, an absolute path, the name of a program (python3.11) or conda:NAME",
    "^(/[\\s\\S]{0,4094}|(conda:)?[A-Za-z0-9][A-Za-z0-9_.-]{0,199})$", is_python_choice};
const TextFormat kHostLabel{"a label of letters, digits and . _ - = : /", "^[A-Za-z0-9][A-Za-z0-9._=:/-]{0,62}$",
                             [](std::string_view text) {
                               return !text.empty() && text.size() <= 63 && is_alphanumeric(text[0]) &&
                                      consists_of(text, [](char c) { return is_name_byte(c) || std::string_view(".=:/").find(c) != std::string_view::npos; });
                             }};
const TextFormat kHostTerm{"the name of a host, its pool, label or GPU, or a pattern such as gpu-*", "^!?[^,!\\s][^,]{0,199}$",
                            [](std::string_view text) {
                              if (text.starts_with('!')) text.remove_prefix(1);
                              return !text.empty() && text.size() <= 200 && text.find(',') == std::string_view::npos &&
                                     std::string_view("! \t\n\v\f\r").find(text[0]) == std::string_view::npos;
                            }};
const TextFormat kExperimentText{"an experiment such as 4, or 4.2 of a set", "^[1-9][0-9]{0,8}(\\.[1-9][0-9]{0,8})?$", [](std::string_view text) {
                                   const auto is_number = [](std::string_view digits) {
                                     return !digits.empty() && digits.size() <= 9 && digits[0] != '0' && consists_of(digits, is_digit);
                                   };
                                   const size_t dot = std::min(text.find('.'), text.size());
                                   return is_number(text.substr(0, dot)) && (dot == text.size() || is_number(text.substr(dot + 1)));
                                 }};
const TextFormat kSomeText{"some text", "[\\s\\S]", [](std::string_view text) { return !text.empty(); }};
const TextFormat kCommandText{"a command", "[^ \\t\\r\\n]",
                              [](std::string_view text) { return text.find_first_not_of(" \t\r\n") != std::string_view::npos; }};
const TextFormat kAnyText{"text", "", [](std::string_view) { return true; }};

std::optional<uint64_t> parse_memory(std::string_view text) {
  const auto number = take_number(text);
  if (!number) return std::nullopt;
  if (text.starts_with(' ')) text.remove_prefix(1);
  for (const Unit& unit : kMemoryUnits) {
    const bool with_b = text.size() == unit.word.size() + 1 && text.starts_with(unit.word) &&
                        text.back() == 'B' && unit.bytes > 1;
    if (text != unit.word && !with_b) continue;
    const auto bytes = multiply(*number, static_cast<int64_t>(unit.bytes));
    if (!bytes) return std::nullopt;
    return static_cast<uint64_t>(*bytes);
  }
  return std::nullopt;
}

std::optional<uint64_t> parse_mib(std::string_view number) {
  const auto mib = parse_decimal(number);
  const auto bytes = mib ? multiply(*mib, int64_t{1} << 20) : std::nullopt;
  if (!bytes) return std::nullopt;
  return static_cast<uint64_t>(*bytes);
}

std::string format_memory(uint64_t bytes) {
  constexpr std::array<std::string_view, 6> kWords{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t word = 0;
  while (bytes != 0 && bytes % 1024 == 0 && word + 1 < kWords.size()) {
    bytes /= 1024;
    ++word;
  }
  return fmt::format("{}{}", bytes, kWords[word]);
}

std::optional<int64_t> parse_duration_ms(std::string_view text) {
  int64_t total_ms = 0;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    const auto number = take_number(text);
    if (!number) return std::nullopt;
    const TimeUnit* found = nullptr;
    for (const TimeUnit& unit : kTimeUnits) {
      if (text.starts_with(unit.word) &&
          (text.size() == unit.word.size() || is_digit(text[unit.word.size()]))) {
        found = &unit;
        break;
      }
    }
    if (!found) return std::nullopt;
    text.remove_prefix(found->word.size());
    const auto part_ms = multiply(*number, found->ms);
    if (!part_ms || __builtin_add_overflow(total_ms, *part_ms, &total_ms)) return std::nullopt;
  }
  return total_ms;
}

std::string format_duration_ms(int64_t duration_ms) {
  if (duration_ms == 0) return "0s";
  std::string text;
  for (const TimeUnit& unit : {kTimeUnits[3], kTimeUnits[2], kTimeUnits[1], kTimeUnits[0]}) {
    if (duration_ms >= unit.ms) {
      text += fmt::format("{}{}", duration_ms / unit.ms, unit.word);
      duration_ms %= unit.ms;
    }
  }
  return text;
}

}  // namespace dtrain
