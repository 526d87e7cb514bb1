#include "cli/table.h"

#include <algorithm>
#include <utility>

#include "cli/escapes.h"

namespace dtrain::cli {

namespace {

// Below this a cut cell says nothing any more.
constexpr size_t kCutWidthMin = 8;

class Layout {
 public:
  Layout(const Table& table, const Screen& screen) : table_(table) {
    for (const Column& column : table.columns) {
      size_t title = table.header ? display_width(column.title) : 0;
      widths_.push_back(std::max(column.width_min, title));
      shown_.push_back(true);
    }
    for (const auto& row : table.rows) {
      for (size_t i = 0; i < row.size() && i < widths_.size(); ++i) {
        widths_[i] = std::max(widths_[i], display_width(on_one_line(row[i].text)));
      }
    }
    if (screen.width > 0) fit(screen.width);
  }

  bool shown(size_t i) const { return shown_[i]; }
  size_t width(size_t i) const { return widths_[i]; }

 private:
  size_t total() const {
    size_t sum = table_.indent;
    bool first = true;
    for (size_t i = 0; i < widths_.size(); ++i) {
      if (!shown_[i]) continue;
      sum += widths_[i] + (first ? 0 : table_.gap);
      first = false;
    }
    return sum;
  }

  void fit(size_t width) {
    if (total() > width) drop_empty();
    int last_order = 0;
    for (const Column& column : table_.columns)
      last_order = std::max(last_order, column.drop_order);
    // Cutting a little comes before dropping, dropping before cutting to nothing.
    for (int order = 1; order <= last_order && total() > width; ++order) {
      if (cut(width, Cuts::Few)) return;
      for (size_t i = 0; i < shown_.size(); ++i) {
        if (table_.columns[i].drop_order == order) shown_[i] = false;
      }
    }
    if (cut(width, Cuts::All)) return;
    for (size_t i = shown_.size(); i-- > 1 && !cut(width, Cuts::Titles);) shown_[i] = false;
  }

  void drop_empty() {
    for (size_t i = 0; i < shown_.size() && !table_.rows.empty(); ++i) {
      shown_[i] = std::any_of(table_.rows.begin(), table_.rows.end(), [&](const auto& row) {
        return i < row.size() && !row[i].text.empty();
      });
    }
  }

  enum class Cuts {
    Few,     // not what is to be cut last
    All,     // but no titles
    Titles,  // these too
  };

  // Takes what is too much from the widest cells that may be cut; false (and nothing changed) when
  // that is not enough.
  bool cut(size_t width, Cuts cuts) {
    std::vector<size_t> before = widths_;
    while (total() > width) {
      size_t widest = widths_.size();
      for (size_t i = 0; i < widths_.size(); ++i) {
        const Column& column = table_.columns[i];
        size_t floor = kCutWidthMin;
        if (cuts != Cuts::Titles) floor = std::max(floor, display_width(column.title));
        const bool may_cut = column.may_cut && !(cuts == Cuts::Few && column.cut_last);
        if (!shown_[i] || !may_cut || widths_[i] <= floor) continue;
        if (widest == widths_.size() || widths_[i] > widths_[widest]) widest = i;
      }
      if (widest == widths_.size()) {
        widths_ = before;
        return false;
      }
      --widths_[widest];
    }
    return true;
  }

  const Table& table_;
  std::vector<size_t> widths_;
  std::vector<bool> shown_;
};

void append_row(std::string& out, const Table& table, const Layout& layout,
                const std::vector<Cell>& row, bool colours) {
  static const Cell kEmpty;
  out.append(table.indent, ' ');
  size_t pending_blanks = 0;  // written only when text follows, so that no line ends in blanks
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (!layout.shown(i)) continue;
    const Cell& cell = i < row.size() ? row[i] : kEmpty;
    std::string text = cut_to_width(on_one_line(cell.text), layout.width(i));
    size_t width = display_width(text);
    if (!text.empty()) {
      out.append(pending_blanks, ' ');
      out += paint(text, cell.ink, colours);
      pending_blanks = 0;
    }
    pending_blanks += layout.width(i) - width + table.gap;
  }
  out += '\n';
}

}  // namespace

std::vector<std::string> columns_left_out(const Table& table, const Screen& screen) {
  const Layout layout(table, screen);
  std::vector<std::string> titles;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (!layout.shown(i)) titles.push_back(table.columns[i].title);
  }
  return titles;
}

std::string render(const Table& table, const Screen& screen) {
  Layout layout(table, screen);
  std::string out;
  if (table.header) {
    std::vector<Cell> titles;
    for (const Column& column : table.columns) titles.push_back({column.title, Ink::Bold});
    append_row(out, table, layout, titles, screen.colours);
  }
  for (const auto& row : table.rows) append_row(out, table, layout, row, screen.colours);
  return as_drawn(std::move(out), screen);
}

}  // namespace dtrain::cli
