// What a part of a model holds of its parameters, and where that lies: in arenas with the layout of the
// whole model, of which the part reads and writes its own ranges only, or in arenas of its own.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/layout.h"

namespace dtrain::engine {

// The block of one parameter that a part holds, the parameter being rows of `width` elements.
struct Piece {
  enum Whose {
    Own,      // nobody else's
    Same,     // every slice has it, with the same gradient
    Partial,  // first and last stage have it, each with a part of the gradient
  };
  size_t parameter = 0;  // of the layout
  Whose whose = Own;
  int64_t width = 0;
  Range rows, columns;

  int64_t size() const { return rows.size() * columns.size(); }
};

// How a model's parameters are cut: what a part holds of each. Pieces ascend.
class Pieces {
 public:
  explicit Pieces(const Layout& layout) : layout_(layout) {}

  void whole(size_t parameter, Piece::Whose whose) {
    const int64_t width = of(parameter).shape.back();
    pieces_.push_back({parameter, whose, width, {0, of(parameter).size() / width}, {0, width}});
  }
  // Some columns of a parameter [rows][columns], or of a vector; of one that is several such side by side
  // (`each` columns wide), of each of them.
  void columns(size_t parameter, Range columns) { this->columns(parameter, of(parameter).shape.back(), columns); }
  void columns(size_t parameter, int64_t each, Range columns) {
    pieces_.push_back({parameter, Piece::Own, each, {0, of(parameter).size() / each}, columns});
  }
  void rows(size_t parameter, Range rows) {
    const int64_t width = of(parameter).size() / of(parameter).shape.front();
    pieces_.push_back({parameter, Piece::Own, width, rows, {0, width}});
  }

  std::vector<Piece> take() { return std::move(pieces_); }

 private:
  const Parameter& of(size_t parameter) const { return layout_.parameters()[parameter]; }
  const Layout& layout_;
  std::vector<Piece> pieces_;
};

// Where the first element of a piece lies in an arena, and how far apart its rows are.
struct View {
  int64_t offset = 0, stride = 0;
};

// In arenas with the layout of the whole model: by parameter.
inline std::vector<View> views_in_whole(const Layout& layout, const std::vector<Piece>& pieces) {
  std::vector<View> views(layout.parameters().size());
  for (const Piece& piece : pieces) {
    const int64_t begin = layout.parameters()[piece.parameter].offset;
    views[piece.parameter] = {begin + piece.rows.begin * piece.width + piece.columns.begin, piece.width};
  }
  return views;
}

// In arenas that hold nothing else: their layout, and where in them.
struct PartLayout {
  Layout layout;
  std::vector<View> views;  // by parameter of the whole
};
inline PartLayout part_layout(const Layout& whole, const std::vector<Piece>& pieces) {
  PartLayout part{.layout = {}, .views = std::vector<View>(whole.parameters().size())};
  for (const Piece& piece : pieces) {
    Parameter held = whole.parameters()[piece.parameter];
    held.shape = {piece.rows.size(), piece.columns.size()};
    part.views[piece.parameter] = {part.layout.add(std::move(held)), piece.columns.size()};
  }
  return part;
}

// visit(from, to, count) for each row of each piece: where it lies in the arenas of the whole, and in those of
// the part.
template <class Visit>
void for_rows(const Layout& whole, const std::vector<Piece>& pieces, const Layout& part, Visit visit) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const int64_t from = whole.parameters()[piece.parameter].offset, to = part.parameters()[i].offset;
    for (int64_t row = 0; row < piece.rows.size(); ++row) {
      visit(from + (piece.rows.begin + row) * piece.width + piece.columns.begin, to + row * piece.columns.size(),
            piece.columns.size());
    }
  }
}

// What of an arena with the layout of the whole model a part holds; ranges ascend.
struct Held {
  std::vector<Range> own, same, partial;  // as Piece::Whose

  static void add(std::vector<Range>& ranges, Range range) {
    if (range.size() == 0) return;
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
};
inline Held held_of(const Layout& layout, const std::vector<Piece>& pieces) {
  Held held;
  for (const Piece& piece : pieces) {
    std::vector<Range>& ranges =
        piece.whose == Piece::Own ? held.own : piece.whose == Piece::Same ? held.same : held.partial;
    const int64_t offset = layout.parameters()[piece.parameter].offset;
    for (int64_t row = piece.rows.begin; row < piece.rows.end; ++row) {
      const int64_t at = offset + row * piece.width;
      Held::add(ranges, {at + piece.columns.begin, at + piece.columns.end});
    }
  }
  return held;
}

}  // namespace dtrain::engine
