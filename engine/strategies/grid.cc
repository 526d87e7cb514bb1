#include "engine/strategies/grid.h"

#include <algorithm>

namespace dtrain::engine {

Grid::Grid(const Gang& gang, int model) : model_(model), data_(gang.world() / model) {
  INVARIANT(gang.size() % model == 0, "rows of workers");
  places_.resize(static_cast<size_t>(gang.world()));
  grid_.resize(places_.size());
  for (int participant = 0; participant < gang.world(); ++participant) {
    const Participant& who = gang.participant(participant);
    const int threads = gang.peer(who.process).threads;
    const Seat seat{.model = who.process % model, .data = who.process / model * threads + who.thread,
                    .host = who.host};
    places_[static_cast<size_t>(participant)] = seat;
    grid_[static_cast<size_t>(seat.data * model + seat.model)] = participant;
  }
}

std::vector<int> Grid::row(int data) const {
  std::vector<int> row;
  for (int model = 0; model < model_; ++model) row.push_back(at(data, model));
  return row;
}

std::vector<int> Grid::column(int model) const {
  std::vector<int> column;
  for (int data = 0; data < data_; ++data) column.push_back(at(data, model));
  return column;
}

int Grid::first_on(int host) const {
  int participant = 0;
  while (host_of(participant) != host) ++participant;
  return participant;
}

bool Grid::is_on(int host, int model) const {
  for (const int participant : column(model)) {
    if (host_of(participant) == host) return true;
  }
  return false;
}

namespace {

// The part with the lowest number on this host for which `has` is true.
template <class Has>
int lowest_on(const Grid& grid, int host, const Has& has) {
  int model = 0;
  while (!grid.is_on(host, model) || !has(model)) ++model;
  return model;
}

// Share `index` of `count` of all elements of `duties`.
std::vector<Duty> share_of(const std::vector<Duty>& duties, int64_t index, int64_t count) {
  int64_t total = 0;
  for (const Duty& duty : duties) total += duty.range.size();
  const Range wanted{total * index / count, total * (index + 1) / count};
  std::vector<Duty> share;
  int64_t at = 0;
  for (const Duty& duty : duties) {
    const int64_t begin = std::max(wanted.begin, at), end = std::min(wanted.end, at + duty.range.size());
    if (begin < end) {
      share.push_back({{duty.range.begin + begin - at, duty.range.begin + end - at}, duty.counted});
    }
    at += duty.range.size();
  }
  return share;
}

}  // namespace

std::vector<Duty> duties_of(const Grid& grid, int participant, const std::vector<Held>& held) {
  const int model = grid.model_of(participant), host = grid.host_of(participant);
  const Held& mine = held[static_cast<size_t>(model)];
  std::vector<int> here;  // with the same part
  for (const int other : grid.column(model)) {
    if (grid.host_of(other) == host) here.push_back(other);
  }
  // Another host updates its own copy of the same.
  const bool first_host = grid.host_of(grid.at(0, model)) == host;
  std::vector<Duty> duties;
  const auto add = [&](const std::vector<Range>& ranges, bool counted) {
    for (const Range range : ranges) duties.push_back({range, counted});
  };
  add(mine.own, first_host);
  if (!mine.same.empty() && lowest_on(grid, host, [](int) { return true; }) == model) {
    add(mine.same, first_host && model == 0);
  }
  const auto has_partial = [&](int other) { return !held[static_cast<size_t>(other)].partial.empty(); };
  if (!mine.partial.empty() && lowest_on(grid, host, has_partial) == model) {
    add(mine.partial, first_host && model == 0);
  }
  const auto position = std::find(here.begin(), here.end(), participant) - here.begin();
  return share_of(duties, position, static_cast<int64_t>(here.size()));
}

}  // namespace dtrain::engine
