#include "daemon/metric_fold.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace dtrain::daemon {
namespace {

const ReplicaId kMaster{{1, 0}, Role::Master, 0};
const ReplicaId kWorker1{{1, 0}, Role::Worker, 1};
const ReplicaId kWorker2{{1, 0}, Role::Worker, 2};

// "loss=0.5" of each thing found in the line, in the order of the Spec.
std::string read(const MetricReader& reader, std::string_view line) {
  std::vector<MetricReader::Found> found;
  reader.read(line, found);
  std::string text;
  for (const auto& one : found) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", reader.name(one.metric), one.value);
  }
  return text;
}

// "loss last min max count replica/attempt", a line each.
std::string values_in(const MetricFold& fold, const MetricReader& reader) {
  std::string text;
  for (const pb::Metric& metric : fold.values(reader)) {
    text += fmt::format("{} {} {} {} {} {}/{}\n", metric.name(), metric.last(), metric.minimum(),
                        metric.maximum(), metric.count(), metric.replica(), metric.attempt());
  }
  return text;
}

TEST_CASE("key=value, as programs print it") {
  const MetricReader reader(
      std::vector<Metric>{{"loss", ""}, {"samples/s", ""}, {"val.top-1", ""}});
  CHECK(read(reader, "loss=0.5") == "loss=0.5");
  CHECK(read(reader, "epoch 3: loss=0.5, samples/s=1e3;val.top-1=97%\tloss=2") ==
        "loss=0.5 samples/s=1000 val.top-1=97 loss=2");
  CHECK(read(reader, "10/10 [00:01<00:00, 7.8it/s, loss=0.5]") == "loss=0.5");
  CHECK(read(reader, "(loss=-3.) {'loss=+4'} \"loss=5\" loss='6'") ==
        "loss=-3 loss=4 loss=5 loss=6");
  CHECK(read(reader, "loss=-1,234.5, samples/s='596,992',val.top-1=1,234,567%") == "loss=-1234.5 samples/s=596992 val.top-1=1234567");
  CHECK(read(reader, "loss=1,2 loss=1,23,456 loss=0.5,600 loss=1234,567") == "loss=1 loss=1 loss=0.5 loss=1234");
  CHECK(read(reader, "loss=nan loss=-inf") == "loss=nan loss=-inf");
  CHECK(read(reader, "\x1b[32mloss=0.5\x1b[0m \x1b[1;31mloss=\x1b[0m7") == "loss=0.5 loss=7");
  for (const char* line :
       {"loss 0.5", "loss: 0.5", "loss =0.5", "loss= 0.5", "train_loss=0.5", "loss=", "=",
        "loss==1", "loss=1x", "loss=5ms", "loss=abc", "Loss=1", "x:loss=1", "a=loss=1", "loss", "",
        "loss=0.5/1", "loss=+-1", "val/loss=1"}) {
    CAPTURE(line);
    CHECK(read(reader, line) == "");
  }
}

TEST_CASE("a pattern finds its value wherever it stands") {
  const MetricReader reader(std::vector<Metric>{
      {"accuracy", "test accuracy: ([0-9.]+)"}, {"loss", ""}, {"rate", "[0-9.]+(?: img/s)?"}});
  CHECK(read(reader, "test accuracy: 0.75. loss=2") == "loss=2 accuracy=0.75 rate=0.75 rate=2");
  CHECK(read(reader, "accuracy=1") == "rate=1");
  CHECK(read(reader, "12 img/s") == "");  // the whole match is no number
}

TEST_CASE("last, minimum, maximum and count") {
  const MetricReader reader(std::vector<Metric>{{"loss", ""}, {"accuracy", ""}});
  MetricFold fold;
  fold.take(reader, kMaster, 1, 0, "loss=2\nloss=0.5\nepoch\nloss=1\n");
  CHECK(values_in(fold, reader) == "loss 1 0.5 2 3 1.master/1\n");
  fold.take(reader, kMaster, 1, 30, "x");
  MetricFold never;
  CHECK(never.values(reader).empty());

  MetricFold odd;
  odd.take(reader, kMaster, 1, 0, "loss=nan\nloss=3\nloss=nan\n");
  const auto metric = odd.values(reader).at(0);
  CHECK(std::isnan(metric.last()));
  CHECK(metric.minimum() == 3);
  CHECK(metric.maximum() == 3);
}

TEST_CASE("lines come in pieces, end with a carriage return, too, and at the end of it all") {
  const MetricReader reader(std::vector<Metric>{{"loss", ""}});
  MetricFold fold;
  fold.take(reader, kMaster, 1, 0, "lo");
  fold.take(reader, kMaster, 1, 2, "ss=1");
  CHECK(values_in(fold, reader) == "");
  fold.take(reader, kMaster, 1, 6, "0\rloss=5\r\nloss=7");
  CHECK(values_in(fold, reader) == "loss 5 5 10 2 1.master/1\n");
  fold.finish(reader);
  CHECK(values_in(fold, reader) == "loss 7 5 10 3 1.master/1\n");
  CHECK(fold.record(reader).tails().empty());
}

TEST_CASE("what was taken before is passed over") {
  const MetricReader reader(std::vector<Metric>{{"loss", ""}});
  MetricFold fold;
  fold.take(reader, kMaster, 1, 0, "loss=1\nloss=2\n");
  fold.take(reader, kMaster, 1, 0, "loss=1\n");
  fold.take(reader, kMaster, 1, 7, "loss=2\nloss=3\n");
  CHECK(values_in(fold, reader) == "loss 3 1 3 3 1.master/1\n");
}

TEST_CASE("a line that is torn by lost bytes says nothing") {
  const MetricReader reader(std::vector<Metric>{{"loss", ""}});
  MetricFold fold;
  fold.take(reader, kMaster, 1, 0, "loss=1\nlo");
  fold.take(reader, kMaster, 1, 20, "ss=2 loss=3\nloss=4\n");
  CHECK(values_in(fold, reader) == "loss 4 1 4 2 1.master/1\n");
}

TEST_CASE("a line that is too long says nothing, and takes no memory") {
  const MetricReader reader(std::vector<Metric>{{"loss", ""}});
  MetricFold fold;
  const std::string filler(1000, 'x');
  uint64_t offset = 0;
  const auto print = [&](const std::string& text) {
    fold.take(reader, kMaster, 1, offset, text);
    offset += text.size();
  };
  for (int i = 0; i < 50; ++i) {
    print(filler);
    CHECK(fold.record(reader).ByteSizeLong() < 5000);
  }
  print(" loss=1\nloss=2\n");
  print(std::string(kMetricLineMaxBytes - 6, 'x') + " loss=3\nloss=4\n");
  print(std::string(kMetricLineMaxBytes - 7, 'x') + " loss=5\n");
  CHECK(values_in(fold, reader) == "loss 5 2 5 3 1.master/1\n");
}

TEST_CASE("the replica of lowest rank counts, whoever speaks first") {
  const MetricReader reader(std::vector<Metric>{{"loss", ""}, {"only", ""}});
  MetricFold fold;
  fold.take(reader, kWorker2, 1, 0, "loss=9\nonly=1\n");
  CHECK(values_in(fold, reader) == "loss 9 9 9 1 1.worker.2/1\nonly 1 1 1 1 1.worker.2/1\n");
  fold.take(reader, kWorker1, 1, 0, "loss=8\n");
  fold.take(reader, kWorker2, 1, 14, "loss=1\n");
  fold.take(reader, kMaster, 1, 0, "loss=5\nloss=4\n");
  fold.take(reader, kWorker1, 1, 7, "loss=0\n");
  CHECK(values_in(fold, reader) == "loss 4 4 5 2 1.master/1\nonly 1 1 1 1 1.worker.2/1\n");
}

TEST_CASE("a replica's newest attempt that says it counts") {
  const MetricReader reader(std::vector<Metric>{{"loss", ""}, {"once", ""}});
  MetricFold fold;
  fold.take(reader, kMaster, 1, 0, "loss=9\nonce=1\nloss=8");
  fold.take(reader, kMaster, 2, 0, "starting\n");
  CHECK(values_in(fold, reader) == "loss 8 8 9 2 1.master/1\nonce 1 1 1 1 1.master/1\n");
  fold.take(reader, kMaster, 2, 9, "loss=3\n");
  fold.take(reader, kMaster, 1, 20, "5\nloss=7\n");  // of the past
  CHECK(values_in(fold, reader) == "loss 3 3 3 1 1.master/2\nonce 1 1 1 1 1.master/1\n");
  // One worker that was started again says nothing for the master.
  fold.take(reader, kWorker1, 7, 0, "loss=1\n");
  CHECK(values_in(fold, reader) == "loss 3 3 3 1 1.master/2\nonce 1 1 1 1 1.master/1\n");
}

std::string rungs(const MetricFold& fold) { return fmt::format("{}", fmt::join(fold.rungs(), " ")); }

Search search_of(StopEarly stop, bool highest_is_best = false) {
  Search search;
  search.metric = "loss";
  search.highest_is_best = highest_is_best;
  search.stop_early = std::move(stop);
  return search;
}

TEST_CASE("where its set looks at it there is the best value until then") {
  const std::vector<Metric> metrics = {{"epoch", ""}, {"loss", ""}};
  const MetricReader by_values(metrics, search_of({2, 2, ""}));
  MetricFold fold;
  fold.take(by_values, kMaster, 1, 0, "loss=3\n");
  CHECK(rungs(fold) == "");
  fold.take(by_values, kMaster, 1, 7, "loss=5\nepoch=9\nloss=4\nloss=1\nloss=2\n");   // at 2 and 4
  CHECK(rungs(fold) == "3 1");

  const MetricReader highest(metrics, search_of({1, 3, ""}, true));
  MetricFold most;
  most.take(highest, kMaster, 1, 0, "loss=nan\nloss=0.5\nloss=0.25\n");
  CHECK(rungs(most) == "nan 0.5");
  // What is no finite number is never the best.
  MetricFold diverged;
  diverged.take(by_values, kMaster, 1, 0, "loss=-inf\nloss=nan\nloss=7\nloss=inf\n");
  CHECK(rungs(diverged) == "nan 7");

  // By epochs, in whatever order they are said, and by more than one. Where an epoch has a line of its own, the value that
  // comes after it is meant.
  const MetricReader by_epochs(metrics, search_of({2, 3, "epoch"}));
  MetricFold epochs;
  epochs.take(by_epochs, kMaster, 1, 0, "epoch=1 loss=3\nloss=2\nloss=2\n");
  CHECK(rungs(epochs) == "");
  epochs.take(by_epochs, kMaster, 1, 29, "loss=1 epoch=2\nepoch=20 loss=0.5\n");
  CHECK(rungs(epochs) == "1 0.5 0.5");

  MetricFold apart;
  apart.take(by_epochs, kMaster, 1, 0, "epoch=1\nloss=3\nepoch=2\n");
  CHECK(rungs(apart) == "");
  apart.take(by_epochs, kMaster, 1, 23, "loss=2\n");
  CHECK(rungs(apart) == "2");

  MetricFold never;
  never.take(by_epochs, kMaster, 1, 0, "epoch=nan loss=1\nepoch=-5 loss=1\nepoch=inf loss=1\n");
  CHECK(rungs(never) == "");
  MetricFold far;
  far.take(by_epochs, kMaster, 1, 0, "epoch=1e300 loss=1\n");
  CHECK(far.rungs().size() == StopEarly::kRungsMost);
}

TEST_CASE("workers' own values decide nothing, and count no more once the master has said one") {
  const std::vector<Metric> metrics = {{"epoch", ""}, {"loss", ""}};
  const MetricReader reader(metrics, search_of({1, 2, ""}));
  MetricFold fold;
  fold.take(reader, kWorker1, 1, 0, "loss=0.1\nloss=0.1\n");
  CHECK(rungs(fold) == "");
  fold.take(reader, kMaster, 1, 0, "loss=5\n");
  fold.take(reader, kWorker1, 1, 18, "loss=0.1\n");
  CHECK(rungs(fold) == "5");
  CHECK(fold.values(reader).at(0).best() == 5);
  const ReplicaId evaluator{{1, 0}, Role::Evaluator, 1};
  MetricFold beside;
  beside.take(reader, evaluator, 1, 0, "loss=3\n");
  CHECK(rungs(beside) == "3");
}

TEST_CASE("what is counted is what the same replica says, in the same attempt") {
  const MetricReader reader(std::vector<Metric>{{"epoch", ""}, {"loss", ""}}, search_of({2, 2, "epoch"}));
  MetricFold fold;
  fold.take(reader, kWorker1, 1, 0, "epoch=9\n");
  fold.take(reader, kMaster, 1, 0, "loss=5\n");
  CHECK(rungs(fold) == "");
  fold.take(reader, kMaster, 1, 7, "epoch=2\n");
  fold = MetricFold::from(fold.record(reader), reader);
  fold.take(reader, kMaster, 2, 0, "loss=4\n");
  CHECK(rungs(fold) == "");
  fold.take(reader, kMaster, 2, 7, "epoch=3\n");
  fold = MetricFold::from(fold.record(reader), reader);
  fold.take(reader, kMaster, 2, 15, "loss=4.5\n");
  CHECK(rungs(fold) == "4");

  // An evaluator's own, though the master's is what is shown.
  const ReplicaId evaluator{{1, 0}, Role::Evaluator, 1};
  MetricFold beside;
  beside.take(reader, kMaster, 1, 0, "epoch=8\n");
  beside.take(reader, evaluator, 1, 0, "epoch=1 loss=3\nepoch=2 loss=2\n");
  CHECK(rungs(beside) == "2");
}

TEST_CASE("only of a replica that is done the last line is whole") {
  const MetricReader reader(std::vector<Metric>{{"loss", ""}}, search_of({1, 2, ""}));
  MetricFold fold;
  fold.take(reader, kMaster, 1, 0, "loss=1");
  MetricFold other = fold;
  other.finish(reader, kWorker1);
  CHECK(rungs(other) == "");
  fold.finish(reader, kMaster);
  CHECK(rungs(fold) == "1");
}

TEST_CASE("a new attempt goes on where it was, and says nothing twice") {
  const std::vector<Metric> metrics = {{"epoch", ""}, {"loss", ""}};
  const MetricReader reader(metrics, search_of({2, 2, "epoch"}));
  MetricFold fold;
  fold.take(reader, kMaster, 1, 0, "epoch=1 loss=9\nepoch=2 loss=8\nepoch=3 loss=7\n");
  CHECK(rungs(fold) == "8");
  fold = MetricFold::from(fold.record(reader), reader);
  fold.take(reader, kMaster, 2, 0, "epoch=2 loss=8.5\nepoch=3 loss=7.5\n");
  CHECK(rungs(fold) == "8");
  fold.take(reader, kMaster, 2, 34, "epoch=4 loss=7.25\n");
  CHECK(rungs(fold) == "8 7");   // it had 7 before
  const auto loss = fold.values(reader).at(1);
  CHECK(loss.minimum() == 7.25);
  CHECK(loss.best() == 7);

  // Values are counted anew.
  const MetricReader by_values(metrics, search_of({2, 2, ""}));
  MetricFold counted;
  counted.take(by_values, kMaster, 1, 0, "loss=9\nloss=8\nloss=7\n");
  counted = MetricFold::from(counted.record(by_values), by_values);
  counted.take(by_values, kMaster, 2, 0, "loss=7.5\nloss=7.5\nloss=7.5\n");
  CHECK(rungs(counted) == "8");
  counted.take(by_values, kMaster, 2, 27, "loss=7.5\n");
  CHECK(rungs(counted) == "8 7");
}

// However the output is cut, repeated and interrupted by a restart from some earlier record, the
// values are those of reading it once.
TEST_CASE("any pieces, repeats and restarts give the same") {
  const MetricReader reader(std::vector<Metric>{{"loss", ""}, {"n", "step ([0-9]+)"}}, search_of({3, 2, "n"}));
  std::string whole;
  for (int i = 0; i < 200; ++i) {
    whole += fmt::format("step {} loss={}{}", i, (i * 37) % 101, i % 3 == 0 ? "\r" : "\n");
    if (i % 50 == 7) whole += std::string(5000, 'y') + " loss=1000\n";
  }
  MetricFold once;
  once.take(reader, kMaster, 1, 0, whole);
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto number = [&](size_t low, size_t high) {
      return std::uniform_int_distribution<size_t>(low, high)(random);
    };
    MetricFold fold;
    pb::MetricsRecord kept = fold.record(reader);
    size_t kept_at = 0;
    for (size_t at = 0; at < whole.size();) {
      const size_t back = std::min(at, number(0, 3) == 0 ? number(0, 400) : 0);
      const size_t size = number(1, 900);
      const std::string piece = whole.substr(at - back, size);
      fold.take(reader, kMaster, 1, at - back, piece);
      at = std::max(at, at - back + piece.size());
      if (number(0, 9) == 0) {
        kept = fold.record(reader);
        kept_at = at;
      } else if (number(0, 9) == 0) {
        // From the journal at any place before what was kept.
        fold = MetricFold::from(kept, reader);
        at = kept_at - std::min(kept_at, number(0, 500));
      }
    }
    CAPTURE(seed);
    REQUIRE(fold.rungs().size() == 7);
    REQUIRE(fold.record(reader).SerializeAsString() == once.record(reader).SerializeAsString());
  }
}

}  // namespace
}  // namespace dtrain::daemon
