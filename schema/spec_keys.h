// The table of dtrain.yml: every key, what its value may be, and one sentence for people.
//
// The parser's checks (spec_check.h), the JSON Schema for editors (json_schema) and the suggestions
// in messages are all made from this one table, so they can't disagree.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "schema/text_formats.h"

namespace dtrain {

struct Key;

// What a value may be. Only the fields of its kind mean something.
struct Shape {
  enum class Kind {
    Boolean,
    False,    // only `false`
    Nothing,  // null, or no value at all
    Integer,
    Number,
    Text,
    Word,     // one of `words`
    List,     // of parts[0]
    Map,      // of `keys`
    Dict,     // name -> parts[0]
    Either,   // any of parts; told apart by how the value is written
    Refused,  // a key that is known, and why it can't be used: `expected`
  };
  Kind kind = Kind::Text;
  std::string_view expected;  // completes "expected ..."
  double minimum = std::numeric_limits<double>::lowest();
  double maximum = std::numeric_limits<double>::max();
  std::vector<std::string_view> words;
  const TextFormat* format = nullptr;   // of a Text, or of the names in a Dict
  std::vector<Shape> parts;
  std::vector<Key> keys;
  size_t least = 1;    // items
  size_t most = 1000;  // items or entries
};

struct Key {
  std::string_view name;
  Shape shape;
  std::string_view about = {};  // one sentence for the editor
  bool required = false;
  bool optional_section = false;  // its keys are suggested only in a file that has it
  bool unlisted = false;          // among those that may stand there, too many to list all
};

// The whole file. Built on first use, never changed.
const Shape& spec_shape();

// Whether a text or a number can stand there.
bool takes_value(const Shape& shape);

// "a whole number from 0 to 1024", "true or false": completes "expected ...".
std::string expectation(const Shape& shape);

}  // namespace dtrain
