#include "schema/combinations.h"

#include <algorithm>
#include <utility>

namespace dtrain {

uint64_t combination_count(const std::vector<Parameter>& lists, Combine combine) {
  uint64_t count = 1;
  for (const Parameter& each : lists) {
    const uint64_t values = each.values.size();
    if (combine == Combine::Zip) {
      count = std::max(count, values);
    } else if (__builtin_mul_overflow(count, values, &count)) {
      return UINT64_MAX;
    }
  }
  return count;
}

std::vector<size_t> combination(const std::vector<Parameter>& lists, Combine combine, uint64_t kind) {
  std::vector<size_t> places(lists.size());
  for (size_t i = lists.size(); i-- > 0;) {
    const uint64_t values = lists[i].values.size();
    if (combine == Combine::Zip) {
      places[i] = std::min(kind, values - 1);   // a list of one value has it everywhere
    } else {
      places[i] = kind % values;
      kind /= values;
    }
  }
  INVARIANT(combine == Combine::Zip || kind == 0, "there are so many combinations");
  return places;
}

std::vector<Parameter> chosen_values(const std::vector<Parameter>& lists, Combine combine, uint64_t kind) {
  const std::vector<size_t> places = combination(lists, combine, kind);
  std::vector<Parameter> chosen;
  for (size_t i = 0; i < lists.size(); ++i) chosen.push_back({lists[i].name, {lists[i].values[places[i]]}, lists[i].path});
  return chosen;
}

}  // namespace dtrain
