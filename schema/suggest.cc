#include "schema/suggest.h"

#include <algorithm>

namespace dtrain {

namespace {

// Nobody misspells a longer word into one of ours, and the table stays small.
constexpr size_t kMaxBytes = 64;

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = last;
    last = row;
  }
  return last[b.size()];
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& known) {
  if (word.empty() || word.size() > kMaxBytes) return {};
  std::string_view best;
  // A third of the letters may be wrong, one in a short word.
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1, best_letters = 0;
  for (const std::string_view candidate : known) {
    // "memory" for "mem", "gpu" for "gpus": one is how the other starts.
    const bool prefix = std::min(word.size(), candidate.size()) >= 3 &&
                        (word.starts_with(candidate) || candidate.starts_with(word));
    const size_t letters = edit_distance(word, candidate), distance = prefix ? 1 : letters;
    if (distance < best_distance || (distance == best_distance && !best.empty() && letters < best_letters)) {
      best = candidate;
      best_distance = distance;
      best_letters = letters;
    }
  }
  return best;
}

}  // namespace dtrain
