#include "daemon/fair_share.h"

#include <doctest/doctest.h>

#include "tests/unit/daemon/core_scene.h"

namespace dtrain::daemon {
namespace {

struct ShareScene : CoreScene {
  explicit ShareScene(std::vector<Weight> weights = {{"", 1}}) { model.fair_share = std::move(weights); }
  void join(const std::string& name, double cpus, int gpus) {
    Host host;
    host.id.hex = host.name = host.address = name;
    host.cpus = cpus;
    host.memory_bytes = uint64_t{64} << 30;
    host.same_machine = true;
    for (int gpu = 0; gpu < gpus; ++gpu) host.gpus.push_back({gpu, "gpu", ""});
    happen(HostConnected{host, {}});
  }
  double share(const std::string& user, bool preemptible = false) const { return FairShare(model).of(user, preemptible); }
};

TEST_CASE("a share is of what one has the largest part of, of the hosts that are here, by weight") {
  ShareScene scene({{"anna", 2}, {"", 0.5}});
  CHECK(scene.share("anna") == 0);
  scene.join("a", 8, 4);
  scene.join("b", 8, 0);
  scene.submit({.cpus = 4, .gpus = 3, .host = "a", .user = "anna"});
  scene.submit({.cpus = 4, .host = "b", .user = "bert"});
  scene.submit({.cpus = 2, .host = "b", .preemptible = true, .user = "bert"});
  scene.pass();
  CHECK(scene.share("anna") == doctest::Approx(0.75 / 2));
  CHECK(scene.share("bert") == doctest::Approx(0.25 / 0.5));
  CHECK(scene.share("bert", true) == doctest::Approx(0.375 / 0.5));
  CHECK(FairShare(scene.model).part_of("bert") == doctest::Approx(0.25));
  CHECK(scene.share("carl") == 0);
  scene.happen(HostDisconnected{{"b"}});
  CHECK(scene.share("bert") == doctest::Approx(0.5 / 0.5));
  scene.model.fair_share.clear();
  CHECK(scene.share("anna") == 0);
}

TEST_CASE("turns: a higher priority, then a smaller share, then the number") {
  ShareScene scene;
  scene.join("a", 4, 0);
  const auto large = scene.submit({.cpus = 2, .user = "anna"});
  scene.submit({.cpus = 1, .user = "bert"});
  scene.submit({.cpus = 1, .user = "bert"});
  scene.pass();
  // All of the same shape, each begins once there is room for one.
  const auto of_anna = scene.submit({.cpus = 2, .user = "anna"});
  const auto of_bert = scene.submit({.cpus = 2, .priority = 60, .user = "bert"});
  const auto of_carl = scene.submit({.cpus = 2, .user = "carl"});
  const auto of_dora = scene.submit({.cpus = 2, .user = "dora"});
  scene.pass();
  const FairShare share(scene.model);
  const auto& experiments = scene.model.experiments;
  CHECK(share.goes_before(experiments.at(of_bert), experiments.at(of_carl)));
  CHECK(share.goes_before(experiments.at(of_carl), experiments.at(of_anna)));
  CHECK_FALSE(share.goes_before(experiments.at(of_anna), experiments.at(of_carl)));
  CHECK(share.goes_before(experiments.at(of_carl), experiments.at(of_dora)));
  CHECK(scene.reason(of_anna).ends_with("3 experiments ahead of it; anna has 50 % of what there is, and who has less goes first"));
  CHECK(scene.reason(of_carl).ends_with("1 experiment ahead of it"));
  std::vector<ExperimentId> order{large};
  for (int i = 0; i < 4; ++i) {
    scene.start(order.back());
    scene.finish(order.back());
    scene.pass();
    for (const ExperimentId& id : {of_anna, of_bert, of_carl, of_dora}) {
      if (scene.is_placed(id) && scene.state(id) == State::Starting) order.push_back(id);
    }
    REQUIRE(order.size() == static_cast<size_t>(i) + 2);
  }
  CHECK(order == std::vector<ExperimentId>{large, of_bert, of_anna, of_carl, of_dora});
}

}  // namespace
}  // namespace dtrain::daemon
