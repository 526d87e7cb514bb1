// Tables as RiseML draws them: left-justified cells, one blank between columns, a bold header on a
// terminal. A table that is wider than the screen first drops the columns where nothing stands, then
// those it can do without, and shortens the cells that may be cut; what is too wide still loses its
// last columns: no line ever breaks. In a pipe it is always whole.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"

namespace dtrain::cli {

struct Column {
  std::string title;
  size_t width_min = 0;
  // On a narrow screen columns go in the order 1, 2, 3, ...; equal numbers go together; 0 stays.
  int drop_order = 0;
  bool may_cut = false;  // long cells end in "..." when there is no room
  bool cut_last = false;  // of those: only when there is nothing left to drop
};

struct Cell {
  std::string text;  // one line of UTF-8; a line break is drawn as a blank
  Ink ink = Ink::Plain;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // a short row has empty cells at its end
  size_t gap = 1;                       // blanks between columns
  bool header = true;
  size_t indent = 0;
};

// The titles of the columns that the screen is too narrow for.
std::vector<std::string> columns_left_out(const Table& table, const Screen& screen);

// Whole lines, each ending in a newline; no blanks before it.
std::string render(const Table& table, const Screen& screen);

}  // namespace dtrain::cli
