// Result<T>: an expected failure is a value that travels to the person who can act on it.
//
// Error carries what happened (message), what to do about it (hint) and a Code that maps one to one
// to gRPC status codes and CLI exit codes. Exceptions never cross a file: code that calls a throwing
// library catches in the same file and returns an Error.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace dtrain {

// Values equal gRPC's status codes, so that converting is a cast (see daemon/client_api.cc).
enum class Code {
  Cancelled = 1,
  InvalidArgument = 3,
  DeadlineExceeded = 4,
  NotFound = 5,
  AlreadyExists = 6,
  PermissionDenied = 7,
  ResourceExhausted = 8,
  FailedPrecondition = 9,
  Aborted = 10,
  Unimplemented = 12,
  Internal = 13,
  Unavailable = 14,
  DataLoss = 15,
};

struct Error {
  Code code = Code::Internal;
  std::string message;  // what happened, and to what
  std::string hint;     // what to do; may be empty

  // The same error, seen from one layer up: "reading dtrain.yml: permission denied".
  Error with_context(std::string_view context) && {
    return {code, fmt::format("{}: {}", context, message), std::move(hint)};
  }
};

// The error of a failed system call, with errno's text: "open /x: Permission denied".
Error errno_error(std::string_view what, int errno_value);

template <typename T = std::monostate>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Only when ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Only when not ok().
  Error& error() & { return std::get<1>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

using Status = Result<std::monostate>;
inline Status ok() { return std::monostate{}; }

[[noreturn]] void invariant_failed(const char* condition, const char* why, const char* file,
                                   int line);

}  // namespace dtrain

// TRY(expr) returns the error of `expr` to the caller, or yields nothing:
//   TRY(write_all(fd, bytes));
// TRY(auto x, expr) also binds the value:
//   TRY(auto text, read_file(path));
#define DTRAIN_CONCAT_(a, b) a##b
#define DTRAIN_CONCAT(a, b) DTRAIN_CONCAT_(a, b)
#define DTRAIN_TRY1(expr)                                               \
  do {                                                                  \
    if (auto try_result_ = (expr); !try_result_.ok()) {                 \
      return std::move(try_result_).error();                            \
    }                                                                   \
  } while (false)
#define DTRAIN_TRY2_(tmp, decl, expr)               \
  auto tmp = (expr);                                \
  if (!tmp.ok()) return std::move(tmp).error();     \
  decl = std::move(tmp).value()
#define DTRAIN_TRY2(decl, expr) DTRAIN_TRY2_(DTRAIN_CONCAT(try_result_, __COUNTER__), decl, expr)
#define DTRAIN_TRY_PICK(a, b, name, ...) name
#define TRY(...) DTRAIN_TRY_PICK(__VA_ARGS__, DTRAIN_TRY2, DTRAIN_TRY1)(__VA_ARGS__)

// A broken invariant is a bug of ours: say which and abort. Always on. Safe by design: the daemon
// restarts from SQLite, the next runner adopts the keepers.
#define INVARIANT(cond, why) \
  ((cond) ? void(0) : ::dtrain::invariant_failed(#cond, why, __FILE__, __LINE__))
