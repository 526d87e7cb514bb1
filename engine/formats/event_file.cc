#include "engine/formats/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <span>
#include <string>

#include "engine/formats/crc32c.h"
#include "engine/formats/file_writer.h"

namespace dtrain::engine {

namespace {

// Protocol buffers' wire format: a key is the field's number and what follows.
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
void put_key(std::string& out, int field, WireType wire) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | wire);
}
void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}
template <class T>
void put_fixed(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof bytes);
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
std::string begin_event(double wall_time) {
  std::string event;
  put_key(event, 1, kFixed64);
  put_fixed(event, wall_time);
  return event;
}
std::string begin_event(double wall_time, int64_t step) {
  std::string event = begin_event(wall_time);
  put_key(event, 2, kVarint);
  put_varint(event, static_cast<uint64_t>(step));
  return event;
}

constexpr std::string_view kNamePrefix = "events.out.tfevents.";

// So that a new name comes after those in the folder, whatever clock they were made by.
int64_t seconds_of_a_new_file(const std::filesystem::path& folder) {
  auto seconds = static_cast<int64_t>(now());
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    int64_t found = 0;
    if (!name.starts_with(kNamePrefix)) continue;
    const char* digits = name.data() + kNamePrefix.size();
    if (std::from_chars(digits, name.data() + name.size(), found).ptr != digits + 10) continue;
    seconds = std::max(seconds, found + 1);
  }
  return seconds;
}

uint32_t masked(std::string_view bytes) { return masked_crc32c(std::as_bytes(std::span(bytes))); }

}  // namespace

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string inner;  // Summary.Value: tag = 1, simple_value = 2
  put_bytes(inner, 1, tag);
  put_key(inner, 2, kFixed32);
  put_fixed(inner, value);
  std::string summary;  // Summary: value = 1
  put_bytes(summary, 1, inner);
  std::string event = begin_event(wall_time, step);
  put_bytes(event, 5, summary);
  return event;
}

std::string start_event(double wall_time, int64_t step) {
  std::string event = begin_event(wall_time, step);
  put_bytes(event, 7, "\x08\x01");  // SessionLog: status = 1, START
  return event;
}

Result<EventFile> EventFile::create(const std::filesystem::path& folder, int64_t first_step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  char host[256] = "host";
  (void)::gethostname(host, sizeof host - 1);
  const int64_t seconds = seconds_of_a_new_file(folder);
  for (int number = 0;; ++number) {
    const std::filesystem::path path =
        folder / fmt::format("{}{:010}.{}.{}.{}", kNamePrefix, seconds, host, ::getpid(), number);
    Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (!fd && errno == EEXIST) continue;
    if (!fd) return file_error("create", path, errno);
    EventFile file(std::move(fd));
    std::string version = begin_event(now());
    put_bytes(version, 3, "brain.Event:2");
    if (!file.write(version) || !file.write(start_event(now(), first_step))) {
      return file_error("write", path, errno);
    }
    return file;
  }
}

void EventFile::scalar(std::string_view tag, int64_t step, double value) {
  (void)write(scalar_event(now(), step, tag, static_cast<float>(value)));
}

bool EventFile::write(std::string_view event) {
  std::string record;
  put_fixed(record, static_cast<uint64_t>(event.size()));
  put_fixed(record, masked(record));
  record += event;
  put_fixed(record, masked(event));
  if (!fd_) return false;
  ssize_t written = 0;
  do {
    written = ::write(fd_.get(), record.data(), record.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(record.size())) {
    bytes_ += record.size();
    return true;
  }
  // Readers would take what comes after a part of a record for the rest of it.
  const int error = written < 0 ? errno : ENOSPC;
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0) fd_.reset();
  errno = error;
  return false;
}

}  // namespace dtrain::engine
