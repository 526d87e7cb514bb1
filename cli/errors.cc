#include "cli/errors.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/remote.h"
#include "cli/terminal.h"

namespace dtrain::cli {

namespace {

// Messages repeat what others sent; none of it may move the cursor.
std::string printable(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      safe += fmt::format("\\x{:02x}", byte);
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

int exit_code_of(const Error& error) {
  switch (error.code) {
    case Code::InvalidArgument:
    case Code::NotFound:
    case Code::AlreadyExists:
    case Code::PermissionDenied:
    case Code::ResourceExhausted:
    case Code::FailedPrecondition:
    case Code::Unimplemented:
      return 2;
    case Code::Cancelled:
    case Code::DeadlineExceeded:
    case Code::Aborted:
    case Code::Internal:
    case Code::Unavailable:
    case Code::DataLoss:
      return 1;
  }
  return 1;
}

std::string_view word_of(Code code) {
  switch (code) {
    case Code::Cancelled:
      return "cancelled";
    case Code::InvalidArgument:
      return "invalid argument";
    case Code::DeadlineExceeded:
      return "deadline exceeded";
    case Code::NotFound:
      return "not found";
    case Code::AlreadyExists:
      return "already exists";
    case Code::PermissionDenied:
      return "permission denied";
    case Code::ResourceExhausted:
      return "resource exhausted";
    case Code::FailedPrecondition:
      return "failed precondition";
    case Code::Aborted:
      return "aborted";
    case Code::Unimplemented:
      return "unimplemented";
    case Code::Internal:
      return "internal";
    case Code::Unavailable:
      return "unavailable";
    case Code::DataLoss:
      return "data loss";
  }
  return "internal";
}

std::string error_text(const Error& error, size_t width) {
  std::string text = fmt::format("dtrain: {}\n", printable(error.message));
  if (!error.hint.empty()) text += fmt::format("  hint: {}\n", printable(as_called(error.hint)));
  return folded(text, width);
}

std::string error_json(const Error& error) {
  nlohmann::ordered_json fields = {
      {"code", word_of(error.code)}, {"message", error.message}, {"hint", as_called(error.hint)}};
  const nlohmann::ordered_json whole = {{"error", std::move(fields)}};
  return whole.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void print_error(const Error& error, bool json) {
  // What the command already printed comes first, whatever the buffers.
  std::fflush(stdout);
  const std::string text = json ? error_json(error) : error_text(error, screen_of(STDERR_FILENO).width);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void warn(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    if (!warning.empty()) say("Warning: " + as_called(warning));
  }
}

void tell(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) say("Note: " + printable(as_called(note)));
}

void say(const std::string& text) { fmt::print(stderr, "{}\n", folded(text, screen_of(STDERR_FILENO).width)); }

}  // namespace dtrain::cli
