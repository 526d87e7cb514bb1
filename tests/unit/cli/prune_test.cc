#include "cli/prune.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

pb::PruneReply reply_of(const std::vector<uint32_t>& numbers) {
  pb::PruneReply reply;
  for (const uint32_t number : numbers) reply.add_numbers(number);
  reply.set_log_bytes(3 << 20);
  reply.set_blob_bytes(5 << 10);
  reply.set_outputs("/home/u/.local/state/dtrain/outputs");
  return reply;
}

TEST_CASE("numbers in a row are told as a range") {
  CHECK(number_ranges(reply_of({})).empty());
  CHECK(number_ranges(reply_of({7})) == "7");
  CHECK(number_ranges(reply_of({1, 2, 4, 5, 6, 9})) == "1, 2, 4-6, 9");
}

TEST_CASE("what goes is told before, and what is gone after") {
  pb::PruneRequest outputs;
  outputs.set_outputs(true);
  CHECK(render_pruned(reply_of({3, 4, 5}), {}, false) ==
        "3 ended experiments to forget: 3-5\n"
        "  output lines   3.0 MB\n"
        "  sent files     5.0 KB that nothing else needs\n"
        "  results        stay in /home/u/.local/state/dtrain/outputs\n");
  CHECK(render_pruned(reply_of({3}), outputs, true) ==
        "1 ended experiment is forgotten: 3\n"
        "  output lines   3.0 MB\n"
        "  sent files     5.0 KB that nothing else needs\n"
        "  results        deleted from /home/u/.local/state/dtrain/outputs\n");
  CHECK(render_pruned(reply_of({}), {}, true) ==
        "sent files     5.0 KB that nothing else needs\n");
  pb::PruneRequest environments;
  environments.set_environments(true);
  pb::PruneReply made;
  made.set_environments(4);
  made.set_environment_bytes(uint64_t{3} << 30);
  made.set_environment_hosts(2);
  CHECK(render_pruned(made, environments, false) ==
        "environments   4 that nothing uses, 3.0 GB on 2 hosts\n");
  CHECK(render_pruned(made, environments, true) ==
        "environments   4 that nothing uses, 3.0 GB on 2 hosts, being deleted\n");
  pb::PruneRequest cache;
  cache.set_trees(true);
  pb::PruneReply kept;
  kept.set_tree_bytes(uint64_t{2} << 30);
  kept.set_tree_hosts(1);
  CHECK(render_pruned(kept, cache, false) == "kept files     2.0 GB of sent files that nothing uses, on 1 host\n");
  CHECK(render_pruned(kept, cache, true) == "kept files     2.0 GB of sent files that nothing uses, on 1 host, being deleted\n");
}

TEST_CASE("prune says why there is nothing, and how to say what only where nothing was said") {
  const pb::PruneReply nothing;
  CHECK(render_pruned(nothing, {}, false) ==
        "Nothing to forget: dtrain prune ID, --older-than 30d, --environments or --cache says what\n");
  pb::PruneRequest older;
  older.set_older_than_ms(3'600'000);
  CHECK(render_pruned(nothing, older, false) == "Nothing to forget: nothing ended so long ago\n");
  pb::PruneRequest environments;
  environments.set_environments(true);
  CHECK(render_pruned(nothing, environments, false) == "There is no environment that nothing uses\n");
  pb::PruneRequest cache;
  cache.set_trees(true);
  CHECK(render_pruned(nothing, cache, false) == "There is no kept file that nothing uses\n");
  environments.set_trees(true);
  CHECK(render_pruned(nothing, environments, false) == "There is no environment and no kept file that nothing uses\n");
  older.set_environments(true);
  CHECK(render_pruned(nothing, older, false) ==
        "Nothing to forget: nothing ended so long ago, and there is no environment that nothing uses\n");
}

}  // namespace
}  // namespace dtrain::cli
