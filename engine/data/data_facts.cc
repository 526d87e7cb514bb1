#include "engine/data/data_facts.h"

#include <fmt/format.h>

#include "engine/comm/hash.h"

namespace dtrain::engine {

DataFacts facts_of(const Dataset& train, const std::optional<Dataset>& test) {
  std::string text;
  const auto add = [&](const Dataset& data) {
    text += fmt::format("{} {} {} {} {} {} {:08x} ", data.size(), data.mean(), data.deviation(), data.classes(),
                        data.token_count(), data.vocabulary(), data.checksum());
  };
  add(train);
  if (test) add(*test);
  DataFacts facts{.shape = {}, .samples = train.size(), .hash = hash_of(text)};
  if (train.kind() == Dataset::Kind::Images) {
    const auto& [channels, height, width] = train.shape();
    facts.shape = {.channels = channels, .height = height, .width = width, .classes = train.classes()};
  } else {
    facts.shape = {.context = train.context(), .vocabulary = train.vocabulary()};
  }
  return facts;
}

}  // namespace dtrain::engine
