#include "schema/shell_words.h"

#include <doctest/doctest.h>

namespace dtrain {

TEST_CASE("quoting gives a shell its words back") {
  CHECK(shell_quoted("train.py") == "train.py");
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("a b") == "'a b'");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
  CHECK(shell_quoted("$HOME;rm") == "'$HOME;rm'");
}

TEST_CASE("what a shell does by itself is no program's name") {
  for (const char* word : {"cd", "exec", "while", "[", ":", ".", "{", "echo"}) CHECK_MESSAGE(is_shell_word(word), word);
  for (const char* word : {"python", "cat", "", "whiles"}) CHECK_FALSE(is_shell_word(word));
}

}  // namespace dtrain
