#include "schema/image_name.h"

#include <algorithm>
#include <array>

namespace dtrain {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kHexadecimal = "0123456789abcdef";
constexpr std::string_view kLower = "abcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

bool consists_of(std::string_view text, std::string_view letters, std::string_view others = "") {
  return !text.empty() && std::ranges::all_of(text, [&](char c) { return letters.find(c) != letters.npos || others.find(c) != others.npos; });
}

// Letters at both ends, and others between them.
bool is_part(std::string_view text, std::string_view letters, std::string_view others) {
  return consists_of(text, letters, others) && letters.find(text.front()) != letters.npos && letters.find(text.back()) != letters.npos;
}

// Takes what follows the last mark off the text; empty: there is none.
std::string_view take_last(std::string_view& text, char mark) {
  const size_t at = text.rfind(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view last = text.substr(at);
  text = text.substr(0, at);
  return last.substr(1);
}

bool is_digest(std::string_view text) {
  const std::string_view hash = take_last(text, ':');
  if (text == "sha256") return hash.size() == 64 && consists_of(hash, kHexadecimal);
  return text == "sha512" && hash.size() == 128 && consists_of(hash, kHexadecimal);
}

bool is_tag(std::string_view text) { return text.size() <= 128 && consists_of(text, kLetters, "_.-") && text.front() != '.' && text.front() != '-'; }

bool is_registry(std::string_view text) {
  if (text.find(':') != text.npos && !consists_of(take_last(text, ':'), kDigits)) return false;
  return is_part(text, kLetters, ".-");
}

// Where podman finds an image that is in no registry, without a path that says so.
constexpr std::array<std::string_view, 9> kElsewhere = {"containers-storage", "dir", "docker-archive", "docker-daemon", "oci",
                                                        "oci-archive",        "ostree", "sif",         "tarball"};

}  // namespace

bool is_of_registry(std::string_view image) {
  if (std::ranges::find(kElsewhere, image.substr(0, image.find(':'))) != kElsewhere.end() && image.find(':') != image.npos) return false;
  if (image.find('@') != image.npos && !is_digest(take_last(image, '@'))) return false;
  const size_t colon = image.rfind(':'), slash = image.rfind('/');
  if (colon != image.npos && (slash == image.npos || colon > slash) && !is_tag(take_last(image, ':'))) return false;
  const std::string_view first = image.substr(0, image.find('/'));
  if (first.size() < image.size() && (first.find_first_of(".:") != first.npos || first == "localhost")) {
    if (!is_registry(first)) return false;
    image.remove_prefix(first.size() + 1);
  }
  if (image.size() > 255) return false;
  while (true) {
    const size_t end = std::min(image.find('/'), image.size());
    if (!is_part(image.substr(0, end), kLower, "._-")) return false;
    if (end == image.size()) return true;
    image.remove_prefix(end + 1);
  }
}

}  // namespace dtrain
