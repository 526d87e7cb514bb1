#include "cli/best_member.h"

#include <doctest/doctest.h>

#include <cmath>

namespace dtrain::cli {
namespace {

void add(pb::ShowReply& reply, const std::string& id, const std::string& rate, double smallest, double largest) {
  pb::ExperimentInfo& member = *reply.add_members();
  member.set_id(id);
  (*member.mutable_parameters())["rate"] = rate;
  (*member.mutable_parameters())["epochs"] = "10";
  pb::Metric& metric = *member.add_metrics();
  metric.set_name("accuracy");
  metric.set_last(0.1);
  metric.set_minimum(smallest);
  metric.set_maximum(largest);
  metric.set_count(3);
}

std::string best(const pb::ShowReply& reply, bool highest_is_best, const std::string& metric = "accuracy") {
  Search search;
  search.metric = metric;
  search.highest_is_best = highest_is_best;
  const auto found = best_member(reply, search);
  return found ? best_text(*found) : "nobody";
}

TEST_CASE("the best member is the one that was ever the best, with what tells it from the others") {
  pb::ShowReply reply;
  CHECK(best(reply, true) == "nobody");
  add(reply, "4.1", "0.1", 0.25, 0.5);
  CHECK(best(reply, true) == "4.1: accuracy=0.5");
  add(reply, "4.2", "0.01", NAN, NAN);
  add(reply, "4.3", "0.5", 0.2, 0.75);
  add(reply, "4.4", "0.7", 0.3, 0.75);
  reply.add_members()->set_id("4.5");   // has not begun
  CHECK(best(reply, true) == "4.3: accuracy=0.75 (rate=0.5)");
  CHECK(best(reply, false) == "4.3: accuracy=0.2 (rate=0.5)");
  CHECK(best(reply, true, "loss") == "nobody");
  CHECK(best(reply, true, "") == "nobody");
  // What diverged is the best by no goal; over all attempts counts what the daemon says; and an end is told.
  add(reply, "4.6", "9", -INFINITY, INFINITY);
  CHECK(best(reply, false) == "4.3: accuracy=0.2 (rate=0.5)");
  reply.mutable_members(0)->mutable_metrics(0)->set_best(0.95);
  reply.mutable_members(0)->set_state("FAILED");
  CHECK(best(reply, true) == "4.1 (FAILED): accuracy=0.95 (rate=0.1)");
}

}  // namespace
}  // namespace dtrain::cli
