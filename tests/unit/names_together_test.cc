// Files of a folder are compiled together, some at a time (unity builds), and which ones shifts with each new file. What two of
// them call the same in unnamed namespaces, or one of them as a header calls a type, is a mistake that shows up years later, in
// somebody else's change. Here it does at once, as far as a look at the text tells.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/project.h"

namespace {

namespace fs = std::filesystem;

struct Declared {
  std::string scope;    // "dtrain::cli"
  std::string name;
  std::string variant;  // what may be there twice: another overload; the same alias
  bool is_unnamed = false, is_alias = false;
};

// Without comments, preprocessor lines, and what is in quotes.
std::string bare(const std::string& text) {
  std::string code = text, out;
  for (size_t at = code.find("R\""); at != code.npos; at = code.find("R\"", at + 1)) {
    const size_t open = code.find('(', at);
    if (open == code.npos) break;
    const std::string closes = ")" + code.substr(at + 2, open - at - 2) + "\"";
    const size_t end = code.find(closes, open);
    if (end != code.npos) code.replace(at, end + closes.size() - at, "0");
  }
  bool at_line_start = true;
  for (size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '/' && i + 1 < code.size() && code[i + 1] == '/') {
      i = std::min(code.find('\n', i), code.size()) - 1;
    } else if (at_line_start && c == '#') {
      size_t end = code.find('\n', i);
      while (end != code.npos && code[end - 1] == '\\') end = code.find('\n', end + 1);
      i = std::min(end, code.size()) - 1;
    } else if (c == '"' || (c == '\'' && (i == 0 || !std::isalnum(static_cast<unsigned char>(code[i - 1]))))) {
      for (++i; i < code.size() && code[i] != c; ++i) i += code[i] == '\\' ? 1 : 0;
      out += "0";
    } else {
      out += c;
      at_line_start = c == '\n' || (at_line_start && c == ' ');
      continue;
    }
    at_line_start = false;
  }
  return out;
}

// Behind "template <...>".
std::string without_template(std::string text) {
  while (text.starts_with("template")) {
    int depth = 0;
    size_t i = text.find('<');
    for (; i < text.size(); ++i) {
      depth += text[i] == '<' ? 1 : text[i] == '>' ? -1 : 0;
      if (depth == 0) break;
    }
    text.erase(0, std::min(text.find_first_not_of(' ', i + 1), text.size()));
  }
  return text;
}

// On one line, and without "template <...>".
std::string plain(const std::string& statement) {
  static const std::regex blanks(R"(\s+)");
  std::string text = std::regex_replace(statement, blanks, " ");
  if (text.starts_with(' ')) text.erase(0, 1);
  return without_template(text);
}

bool is_assigned(const std::string& text) { return text.find('=') < text.find('('); }

// What a statement at the level of a namespace declares; without a name: nothing of interest.
Declared declared_by(const std::string& text) {
  static const std::regex type(R"(^(?:class|struct|union|enum(?:\s+class)?)\s+(?:\[\[.*?\]\]\s*)?(\w+))");
  static const std::regex alias(R"(^using\s+(\w+)\s*=)");
  static const std::regex last_word(R"((\w+)\s*(?:\[[^\]]*\]\s*)*$)");
  static const std::regex parameter_name(R"(\s*\b\w+\s*(?=[,)]))");
  std::smatch found;
  Declared declared;
  if (std::regex_search(text, found, alias)) {
    declared.name = found[1];
    declared.variant = text;
    declared.is_alias = true;
    return declared;
  }
  if (text.starts_with("using ") || text.starts_with("namespace ") || text.starts_with("extern ")) return declared;
  const size_t open = text.find('('), equals = text.find('=');
  if (open != text.npos && (equals == text.npos || open < equals) && !text.starts_with("TEST_CASE")) {
    const std::string head = text.substr(0, open);
    if (head.find("operator") != head.npos || !std::regex_search(head, found, last_word)) return declared;
    if (found.position() > 0 && head[static_cast<size_t>(found.position()) - 1] == ':') return declared;   // of a class
    declared.name = found[1];
    declared.variant = std::regex_replace(text.substr(open, text.find(')', open) + 1 - open), parameter_name, "");
    return declared;
  }
  if (std::regex_search(text, found, type)) {
    declared.name = found[1];
    return declared;
  }
  if (text.starts_with("TEST_CASE")) return declared;
  const std::string head = text.substr(0, equals);
  if (head.find(' ') != head.npos && std::regex_search(head, found, last_word)) declared.name = found[1];
  return declared;
}

std::string text_of(const fs::path& file) {
  std::ostringstream bytes;
  bytes << std::ifstream(file).rdbuf();
  return bytes.str();
}

std::vector<Declared> declarations_of(const fs::path& file) {
  static const std::regex opens_namespace(R"(namespace(\s+[\w:]+)?\s*$)");
  std::vector<Declared> all;
  std::vector<std::string> open;   // namespaces by name, "" unnamed; "{" anything else
  std::string statement;
  bool is_value = false;   // of which a part is in braces
  const auto end_statement = [&] {
    const bool at_namespace = std::ranges::find(open, "{") == open.end();
    if (at_namespace && statement.find_first_not_of(" \n") != statement.npos) {
      Declared declared = declared_by(plain(statement));
      for (const std::string& name : open) {
        declared.is_unnamed = declared.is_unnamed || name.empty();
        if (!name.empty()) declared.scope += (declared.scope.empty() ? "" : "::") + name;
      }
      if (!declared.name.empty()) all.push_back(std::move(declared));
    }
    statement.clear();
  };
  for (const char c : bare(text_of(file))) {
    std::smatch found;
    if (c == '{' && std::regex_search(statement, found, opens_namespace)) {
      std::string name = found[1];
      name.erase(0, name.find_first_not_of(" \n") == name.npos ? name.size() : name.find_first_not_of(" \n"));
      open.push_back(name);
      statement.clear();
    } else if (c == '{') {
      is_value = is_value || (std::ranges::find(open, "{") == open.end() && is_assigned(plain(statement)));
      end_statement();
      open.push_back("{");
    } else if (c == '}') {
      if (!open.empty()) open.pop_back();
      statement.clear();
    } else if (c == ';') {
      if (std::ranges::find(open, "{") == open.end() && std::exchange(is_value, false)) statement.clear();   // what is behind "size_t{1}"
      end_statement();
    } else {
      statement += c;
    }
  }
  return all;
}

struct Place {
  std::string file;
  Declared what;
};

bool clash(const Declared& a, const Declared& b) {
  if (a.is_alias && b.is_alias) return a.variant != b.variant;
  const bool are_functions = a.variant.starts_with('(') && b.variant.starts_with('(');
  return !are_functions || a.variant == b.variant;
}

// Of the files that one of the two lists compiles together.
void check_folder(const fs::path& folder) {
  std::map<std::string, std::vector<Place>> unnamed, types;   // by scope and name
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cc" && extension != ".h") continue;
    const std::string file = fs::relative(entry.path(), SOURCE_DIR).string();
    for (Declared& declared : declarations_of(entry.path())) {
      const bool is_type = declared.variant.empty() || declared.is_alias;
      const std::string key = declared.scope + "::" + declared.name;
      if (declared.is_unnamed && extension == ".cc") unnamed[key].push_back({file, declared});
      if (!declared.is_unnamed && extension == ".h" && is_type) types[key].push_back({file, declared});
    }
  }
  for (const auto& [name, places] : unnamed) {
    std::set<std::string> files;
    for (size_t i = 0; i < places.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (places[i].file != places[k].file && clash(places[i].what, places[k].what)) files.insert({places[i].file, places[k].file});
      }
    }
    std::string text;
    for (const std::string& file : files) text += " " + file;
    INFO(name << " is in" << text);
    CHECK(files.empty());
    if (const auto type = types.find(name); type != types.end() && type->second.front().file != fs::path(places.front().file).replace_extension(".h")) {
      INFO(name << " is in " << places.front().file << " and " << type->second.front().file);
      CHECK(false);
    }
  }
}

// "test::read_file": that a file says plainly read_file for it, in a namespace where another one means its own by that.
struct Shortened {
  std::string scope, whole, name;
};

std::vector<Shortened> shortened_in(const std::string& code) {
  static const std::regex declaration(R"(\busing ((?:\w+::)+([a-z]\w*));)"), opens(R"(\nnamespace ([\w:]+) \{)");
  std::smatch scope;
  if (!std::regex_search(code, scope, opens)) return {};
  std::vector<Shortened> all;
  for (std::sregex_iterator found(code.begin(), code.end(), declaration), end; found != end; ++found) all.push_back({scope[1], (*found)[1], (*found)[2]});
  return all;
}

// Whether a file of that namespace calls a function by that name alone, and doesn't say whose it means.
bool means_another(const std::string& code, const Shortened& shortened) {
  return code.find(shortened.name + "(") != code.npos && code.find("\nnamespace " + shortened.scope + " {") != code.npos &&
         code.find("using " + shortened.whole + ";") == code.npos &&
         std::regex_search(code, std::regex(R"((^|[^\w:.>]))" + shortened.name + R"(\()"));
}

void check_shortened(const fs::path& folder) {
  std::map<fs::path, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".cc") files[entry.path()] = "\n" + bare(text_of(entry.path()));
  }
  for (const auto& [file, code] : files) {
    for (const Shortened& shortened : shortened_in(code)) {
      for (const auto& [other, others_code] : files) {
        INFO(file << " uses " << shortened.whole << ", " << other << " calls another");
        CHECK_FALSE(means_another(others_code, shortened));
      }
    }
  }
}

// What a file calls in an unnamed namespace as headers of `outer` call a function hides that from the files behind it.
void check_hidden(const fs::path& folder, const fs::path& outer) {
  std::set<std::string> functions;   // "dtrain::write_all"
  for (const auto& entry : fs::directory_iterator(outer)) {
    if (entry.path().extension() != ".h") continue;
    for (const Declared& declared : declarations_of(entry.path())) {
      if (!declared.is_unnamed && declared.variant.starts_with('(')) functions.insert(declared.scope + "::" + declared.name);
    }
  }
  std::map<fs::path, std::string> files;
  std::map<fs::path, std::vector<Shortened>> hidden;
  std::map<fs::path, std::set<std::string>> own;   // names in unnamed namespaces
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".cc") continue;
    files[entry.path()] = "\n" + bare(text_of(entry.path()));
    for (const Declared& declared : declarations_of(entry.path())) {
      if (!declared.is_unnamed) continue;
      own[entry.path()].insert(declared.name);
      const auto colons = declared.scope.rfind("::");
      const std::string whole = (colons == std::string::npos ? "" : declared.scope.substr(0, colons)) + "::" + declared.name;
      if (functions.contains(whole)) hidden[entry.path()].push_back({declared.scope, whole, declared.name});
    }
  }
  for (const auto& [file, all] : hidden) {
    for (const Shortened& name : all) {
      for (const auto& [other, others_code] : files) {
        if (own[other].contains(name.name)) continue;
        INFO(file << " hides " << name.whole << ", which " << other << " calls");
        CHECK_FALSE(means_another(others_code, name));
      }
    }
  }
}

TEST_CASE("what files of a folder call the same is the same") {
  for (const std::string folder : {"schema", "cli", "daemon", "runner", "engine"}) {
    check_folder(fs::path(SOURCE_DIR) / folder);
    check_shortened(fs::path(SOURCE_DIR) / folder);
    check_hidden(fs::path(SOURCE_DIR) / folder, fs::path(SOURCE_DIR) / "schema");
  }
}

TEST_CASE("so it is in tests of one level") {
  for (const std::string level : {"unit", "integration", "e2e", "sim"}) {
    check_folder(fs::path(SOURCE_DIR) / "tests" / level);
    check_shortened(fs::path(SOURCE_DIR) / "tests" / level);
  }
}

TEST_CASE("the look at a text sees what it declares in unnamed namespaces") {
  const dtrain::test::TemporaryFolder folder;
  const fs::path file = folder / "names.cc";
  std::ofstream(file) << R"code(#include <a>
namespace dtrain::cli {
namespace {
constexpr size_t kMost = 10;   // not kThis = 1;
const char* const kText = "int not_this() {";
struct Row { int inner = 0; void method() { int local = 1; } };
enum class Kind : int { A, B };
using Json = other::Json;
template <typename T, typename U = std::vector<T>>
int twice(const T& value, int) { return 2; }
int twice(int value);
}
void shown();
class Shown {};
}
)code";
  std::vector<std::string> names;
  for (const Declared& each : declarations_of(file)) names.push_back((each.is_unnamed ? "~" : "") + each.scope + " " + each.name);
  CHECK(names == std::vector<std::string>{"~dtrain::cli kMost", "~dtrain::cli kText", "~dtrain::cli Row", "~dtrain::cli Kind",
                                          "~dtrain::cli Json", "~dtrain::cli twice", "~dtrain::cli twice", "dtrain::cli shown",
                                          "dtrain::cli Shown"});
}

}  // namespace
