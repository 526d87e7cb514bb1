#include "schema/manifest.h"

#include <algorithm>
#include <vector>

#include "schema/quote.h"

namespace dtrain {

namespace {

// The wire format of pb::Manifest and pb::Entry: field number << 3 | type, type 0 varint, 2 bytes.
constexpr size_t kLengthBytesMax = 5;   // of a length; protobuf takes no longer ones either
constexpr char kEntryTag = 1 << 3 | 2;
constexpr char kPathTag = 1 << 3 | 2;
constexpr char kKindTag = 2 << 3;
constexpr char kModeTag = 3 << 3;
constexpr char kSizeTag = 4 << 3;
constexpr char kShaTag = 5 << 3 | 2;
constexpr char kTargetTag = 6 << 3 | 2;

size_t varint_bytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

bool read_varint(std::string_view& bytes, uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool read_bytes(std::string_view& bytes, std::string_view& value) {
  uint64_t size = 0;
  const size_t before = bytes.size();
  if (!read_varint(bytes, size) || size > bytes.size()) return false;
  if (before - bytes.size() > kLengthBytesMax) return false;
  value = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return true;
}

size_t bytes_field_size(std::string_view value) {
  return value.empty() ? 0 : 1 + varint_bytes(value.size()) + value.size();
}

void append_bytes_field(std::string& out, char tag, std::string_view value) {
  if (value.empty()) return;
  out += tag;
  append_varint(out, value.size());
  out.append(value);
}

size_t number_field_size(uint64_t value) {
  return value == 0 ? 0 : 1 + varint_bytes(value);
}

void append_number_field(std::string& out, char tag, uint64_t value) {
  if (value == 0) return;
  out += tag;
  append_varint(out, value);
}

bool read_field(std::string_view& bytes, ManifestEntry& entry) {
  const char tag = bytes.front();
  bytes.remove_prefix(1);
  uint64_t number = 0;
  switch (tag) {
    case kPathTag:
      return read_bytes(bytes, entry.path);
    case kShaTag:
      return read_bytes(bytes, entry.sha256);
    case kTargetTag:
      return read_bytes(bytes, entry.target);
    case kSizeTag:
      return read_varint(bytes, entry.size);
    case kModeTag:
      if (!read_varint(bytes, number) || number > UINT32_MAX) return false;
      entry.mode = static_cast<uint32_t>(number);
      return true;
    case kKindTag:
      if (!read_varint(bytes, number) || number > pb::Entry::SYMLINK) return false;
      entry.kind = static_cast<pb::Entry::Kind>(number);
      return true;
    default:
      return false;
  }
}

Error bad(std::string_view path, std::string_view why) {
  return {Code::InvalidArgument, fmt::format("bad manifest: {} {}", in_quotes(path), why), ""};
}

// Why a path may not be in a manifest; empty when it may.
std::string_view path_fault(std::string_view path) {
  if (path.empty()) return "is an empty path";
  if (path.size() > kPathBytesMax) return "is too long a path";
  if (path.find('\0') != std::string_view::npos) return "holds a NUL";
  size_t depth = 0;
  for (size_t start = 0; start <= path.size(); ++depth) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view name = path.substr(start, end - start);
    if (name.empty()) return "is absolute, or has an empty part";
    if (name == "." || name == "..") return "has a part '.' or '..'";
    if (name.size() > 255) return "has too long a part";
    start = end + 1;
  }
  return depth > kDepthMax ? "lies too deep" : "";
}

std::string_view content_fault(const pb::Entry& entry) {
  if (entry.mode() > 0777) return "has mode bits beyond rwxrwxrwx";
  if (entry.kind() == pb::Entry::FILE) {
    if (entry.sha256().size() != 32) return "has no SHA-256";
    if (!entry.target().empty()) return "is a file with a link's target";
    return entry.size() > uint64_t{1} << 60 ? "is impossibly large" : "";
  }
  if (entry.size() != 0 || !entry.sha256().empty()) return "has content but is no file";
  if (entry.kind() == pb::Entry::DIRECTORY) {
    return entry.target().empty() ? "" : "is a directory with a link's target";
  }
  if (entry.kind() != pb::Entry::SYMLINK) return "is of an unknown kind";
  if (entry.target().empty() || entry.target().size() > kPathBytesMax ||
      entry.target().find('\0') != std::string::npos) {
    return "has an impossible target";
  }
  return leaves_tree(entry.path(), entry.target()) ? "is a link out of the tree" : "";
}

}  // namespace

void append_entry(std::string& manifest, const ManifestEntry& entry) {
  const size_t size = bytes_field_size(entry.path) + number_field_size(static_cast<uint64_t>(entry.kind)) +
                      number_field_size(entry.mode) + number_field_size(entry.size) +
                      bytes_field_size(entry.sha256) + bytes_field_size(entry.target);
  manifest += kEntryTag;
  append_varint(manifest, size);
  append_bytes_field(manifest, kPathTag, entry.path);
  append_number_field(manifest, kKindTag, static_cast<uint64_t>(entry.kind));
  append_number_field(manifest, kModeTag, entry.mode);
  append_number_field(manifest, kSizeTag, entry.size);
  append_bytes_field(manifest, kShaTag, entry.sha256);
  append_bytes_field(manifest, kTargetTag, entry.target);
}

bool read_entry(std::string_view& manifest, ManifestEntry& entry) {
  if (manifest.empty() || manifest.front() != kEntryTag) return false;
  const char* const start = manifest.data();
  std::string_view rest = manifest.substr(1);
  std::string_view fields;
  if (!read_bytes(rest, fields)) return false;
  entry = {};
  while (!fields.empty()) {
    if (!read_field(fields, entry)) return false;
  }
  entry.encoded = std::string_view(start, static_cast<size_t>(rest.data() - start));
  manifest = rest;
  return true;
}

std::strong_ordering compare_paths(std::string_view a, std::string_view b) {
  const auto [at_a, at_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto rank = [](const char* at, std::string_view path) {
    if (at == path.end()) return 0;
    return *at == '/' ? 1 : 2 + static_cast<unsigned char>(*at);
  };
  return rank(at_a, a) <=> rank(at_b, b);
}

bool leaves_tree(std::string_view path, std::string_view target) {
  if (target.starts_with('/')) return false;
  auto depth = std::count(path.begin(), path.end(), '/');
  for (size_t start = 0; start <= target.size();) {
    const size_t end = std::min(target.find('/', start), target.size());
    const std::string_view part = target.substr(start, end - start);
    if (part == "..") {
      if (--depth < 0) return true;
    } else if (!part.empty() && part != ".") {
      ++depth;
    }
    start = end + 1;
  }
  return false;
}

Status check_manifest(const pb::Manifest& manifest) {
  if (static_cast<size_t>(manifest.entry_size()) > kManifestEntriesMax) {
    return Error{Code::InvalidArgument,
                 fmt::format("bad manifest: {} entries, at most {} are allowed",
                             manifest.entry_size(), kManifestEntriesMax),
                 ""};
  }
  // The directories the walk is in: every entry's parent must be the innermost that is left.
  std::vector<std::string_view> open;
  std::string_view previous;
  for (const pb::Entry& entry : manifest.entry()) {
    const std::string_view path = entry.path();
    if (const auto fault = path_fault(path); !fault.empty()) return bad(path, fault);
    if (const auto fault = content_fault(entry); !fault.empty()) return bad(path, fault);
    if (!previous.empty() && compare_paths(previous, path) >= 0)
      return bad(path, "is out of order");
    const size_t slash = path.rfind('/');
    const std::string_view parent =
        slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
    while (!open.empty() && open.back() != parent) open.pop_back();
    if (!parent.empty() && open.empty()) return bad(path, "has no directory above it");
    if (entry.kind() == pb::Entry::DIRECTORY) open.push_back(path);
    previous = path;
  }
  return ok();
}

Result<pb::Manifest> parse_manifest(std::string_view bytes) {
  pb::Manifest manifest;
  if (bytes.size() > INT32_MAX ||
      !manifest.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Error{Code::InvalidArgument, "bad manifest: not one", ""};
  }
  TRY(check_manifest(manifest));
  return manifest;
}

}  // namespace dtrain
