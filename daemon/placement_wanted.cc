// Which hosts are meant: by name, ID, pool, label or GPU, or by a pattern of these.
#include <fnmatch.h>

#include <algorithm>

#include "daemon/placement.h"

namespace dtrain::daemon {

namespace {

bool is_id_of(const Host& host, std::string_view text) {
  return host.id.hex == text || (text.size() >= kShownIdDigits && std::string_view(host.id.hex).starts_with(text));
}

bool fits_term(const Host& host, std::string_view term) {
  const bool is_pattern = term.find_first_of("*?[\\") != std::string_view::npos;
  const std::string pattern(is_pattern ? term : std::string_view());
  const auto like = [&](const std::string& text) { return text == term || (is_pattern && ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0); };
  return like(host.name) || is_id_of(host, term) || (!host.pool.empty() && like(host.pool)) ||
         std::any_of(host.labels.begin(), host.labels.end(), like) ||
         std::any_of(host.gpus.begin(), host.gpus.end(), [&](const Gpu& gpu) { return like(gpu.name); });
}

}  // namespace

bool is_called(const Host& host, const std::string& text) {
  return host.name == text || (!host.pool.empty() && host.pool == text) || is_id_of(host, text);
}

bool is_wanted(const Host& host, std::string_view wanted) {
  bool any = false, fits = false;
  while (!wanted.empty()) {
    const size_t end = std::min(wanted.find(','), wanted.size());
    std::string_view term = wanted.substr(0, end);
    wanted.remove_prefix(std::min(end + 1, wanted.size()));
    if (term.starts_with('!')) {
      if (fits_term(host, term.substr(1))) return false;
    } else if (!term.empty()) {
      any = true;
      fits = fits || fits_term(host, term);
    }
  }
  return fits || !any;
}

}  // namespace dtrain::daemon
