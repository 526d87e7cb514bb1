#include "schema/ignore_pattern.h"

#include <array>
#include <cctype>
#include <cstddef>

namespace dtrain {

namespace {

constexpr size_t kNone = std::string_view::npos;

bool in_class(std::string_view name, unsigned char c) {
  struct Named {
    std::string_view name;
    int (*test)(int);
  };
  static constexpr std::array<Named, 12> kClasses = {{{"alnum", std::isalnum},
                                                      {"alpha", std::isalpha},
                                                      {"blank", std::isblank},
                                                      {"cntrl", std::iscntrl},
                                                      {"digit", std::isdigit},
                                                      {"graph", std::isgraph},
                                                      {"lower", std::islower},
                                                      {"print", std::isprint},
                                                      {"punct", std::ispunct},
                                                      {"space", std::isspace},
                                                      {"upper", std::isupper},
                                                      {"xdigit", std::isxdigit}}};
  for (const Named& named : kClasses) {
    if (named.name == name) return named.test(c) != 0;
  }
  return false;
}

// Matches `c` against the bracket expression whose '[' is at glob[at], and moves `at` past its ']'.
// An expression that never ends matches nothing.
bool match_bracket(std::string_view glob, size_t& at, unsigned char c) {
  size_t i = at + 1;
  const bool inverted = i < glob.size() && (glob[i] == '!' || glob[i] == '^');
  if (inverted) ++i;
  bool found = false;
  for (bool first = true; i < glob.size() && (first || glob[i] != ']'); first = false) {
    if (glob.substr(i).starts_with("[:")) {
      const size_t end = glob.find(":]", i + 2);
      if (end != kNone) {
        found = found || in_class(glob.substr(i + 2, end - i - 2), c);
        i = end + 2;
        continue;
      }
    }
    if (glob[i] == '\\' && i + 1 < glob.size()) ++i;
    const auto low = static_cast<unsigned char>(glob[i++]);
    auto high = low;
    if (i + 1 < glob.size() && glob[i] == '-' && glob[i + 1] != ']') {
      ++i;
      if (glob[i] == '\\' && i + 1 < glob.size()) ++i;
      high = static_cast<unsigned char>(glob[i++]);
    }
    found = found || (low <= c && c <= high);
  }
  if (i >= glob.size()) return false;
  at = i + 1;
  return found != inverted && c != '/';
}

// Matches one byte of `text` against what stands at glob[at] (not a star), and moves `at` past it.
bool match_one(std::string_view glob, size_t& at, char c) {
  switch (glob[at]) {
    case '?':
      ++at;
      return c != '/';
    case '[':
      return match_bracket(glob, at, static_cast<unsigned char>(c));
    case '\\':
      if (at + 1 >= glob.size() || glob[at + 1] != c) return false;
      at += 2;
      return true;
    default:
      return glob[at++] == c;
  }
}

// Whether the stars glob[at..end) are a whole part of the path: "**/", "/**/" or "/**".
bool is_whole_part(std::string_view glob, size_t at, size_t end) {
  return end - at >= 2 && (at == 0 || glob[at - 1] == '/') &&
         (end == glob.size() || glob[end] == '/');
}

}  // namespace

bool glob_matches(std::string_view glob, std::string_view text) {
  size_t g = 0;
  size_t t = 0;
  // Where to go on when the bytes after a star do not fit. Only the last star of each kind needs a
  // second try: a '*' before a '**' always ends at the same '/', wherever its inner parts lie.
  size_t star_glob = kNone, star_text = 0;
  size_t deep_glob = kNone, deep_text = 0;
  for (;;) {
    if (g < glob.size() && glob[g] == '*') {
      size_t end = g;
      while (end < glob.size() && glob[end] == '*') ++end;
      if (is_whole_part(glob, g, end)) {
        if (end == glob.size()) return t < text.size();
        deep_glob = end + 1;
        deep_text = t;
        star_glob = kNone;
        g = deep_glob;
      } else {
        star_glob = end;
        star_text = t;
        g = end;
      }
      continue;
    }
    if (g == glob.size() && t == text.size()) return true;
    if (g < glob.size() && t < text.size() && match_one(glob, g, text[t])) {
      ++t;
      continue;
    }
    if (star_glob != kNone && star_text < text.size() && text[star_text] != '/') {
      t = ++star_text;
      g = star_glob;
      continue;
    }
    if (deep_glob == kNone) return false;
    const size_t slash = text.find('/', deep_text);
    if (slash == kNone) return false;
    t = deep_text = slash + 1;
    g = deep_glob;
    star_glob = kNone;
  }
}

bool IgnorePattern::matches(std::string_view path, std::string_view name, bool is_directory) const {
  if (directory_only && !is_directory) return false;
  const std::string_view text_of = whole_path ? path : name;
  switch (shape) {
    case Shape::Literal:
      return text_of == literal;
    case Shape::Suffix:
      return text_of.ends_with(literal);
    case Shape::Glob:
      return glob_matches(glob, text_of);
  }
  return false;
}

namespace {

// Spaces at the end do not count, unless a backslash is before them.
std::string_view without_trailing_spaces(std::string_view line) {
  size_t keep = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      keep = ++i + 1;
    } else if (line[i] != ' ') {
      keep = i + 1;
    }
  }
  return line.substr(0, keep);
}

// Finds out whether a plain comparison does for this glob.
void set_shape(IgnorePattern& pattern) {
  const bool star_first = !pattern.whole_path && pattern.glob.starts_with('*');
  for (size_t i = star_first ? 1 : 0; i < pattern.glob.size(); ++i) {
    char c = pattern.glob[i];
    if (c == '*' || c == '?' || c == '[') return;
    if (c == '\\') {
      if (++i == pattern.glob.size()) return;
      c = pattern.glob[i];
    }
    pattern.literal += c;
  }
  pattern.shape = star_first ? IgnorePattern::Shape::Suffix : IgnorePattern::Shape::Literal;
}

}  // namespace

std::optional<IgnorePattern> parse_ignore_line(std::string_view line, int number) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.starts_with('#')) return std::nullopt;
  line = without_trailing_spaces(line);
  if (line.empty()) return std::nullopt;

  IgnorePattern pattern;
  pattern.text = line;
  pattern.line = number;
  pattern.negated = line.starts_with('!');
  if (pattern.negated) line.remove_prefix(1);
  pattern.directory_only = line.ends_with('/');
  if (pattern.directory_only) line.remove_suffix(1);
  pattern.whole_path = line.find('/') != kNone;
  if (line.starts_with('/')) line.remove_prefix(1);
  if (line.empty()) return std::nullopt;
  pattern.glob = line;
  set_shape(pattern);
  return pattern;
}

}  // namespace dtrain
