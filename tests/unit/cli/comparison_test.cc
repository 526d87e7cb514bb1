#include "cli/comparison.h"

#include <doctest/doctest.h>

#include <cmath>

#include "cli/compare_view.h"
#include "cli/json_output.h"
#include "cli/measure.h"
#include "schema/expand.h"
#include "tests/unit/cli/now.h"

namespace dtrain::cli {
namespace {

void set_metric(pb::ExperimentInfo& info, const std::string& name, double last, double minimum,
                double maximum) {
  pb::Metric* metric = info.add_metrics();
  metric->set_name(name);
  metric->set_last(last);
  metric->set_minimum(minimum);
  metric->set_maximum(maximum);
  metric->set_count(3);
  metric->set_replica(info.id() + ".train");
}

Entry entry(const std::string& id, const std::string& rate, int workers = 1) {
  Entry made;
  made.info.set_id(id);
  made.info.set_project("toaster");
  made.info.set_state("FINISHED");
  made.info.set_started_unix_ms(kNow - 200'000);
  made.info.set_finished_unix_ms(kNow - 100'000);
  (*made.info.mutable_parameters())["rate"] = rate;
  (*made.info.mutable_parameters())["epochs"] = "10";
  made.workers = workers;
  return made;
}

// Four members of a set: one has not begun, one says what is no number.
Comparison grid(const CompareWishes& wishes = {}) {
  std::vector<Entry> entries = {entry("4.1", "0.1"), entry("4.2", "0.01"), entry("4.3", "1"),
                                entry("4.10", "10")};
  set_metric(entries[0].info, "loss", 0.123456789, 0.1, 2.5);
  set_metric(entries[0].info, "accuracy", 0.9, 0, 0.95);
  set_metric(entries[1].info, "loss", 1234567, 0.2, 1e9);
  set_metric(entries[3].info, "loss", NAN, 0.05, 3);
  entries[2].info.set_state("PENDING");
  entries[2].info.set_started_unix_ms(0);
  entries[2].info.set_finished_unix_ms(0);
  auto made = compare(std::move(entries), wishes, kNow);
  REQUIRE(made.ok());
  return std::move(*made);
}

std::string ids(const Comparison& comparison) {
  std::string text;
  for (const Entry& one : comparison.entries) text += (text.empty() ? "" : " ") + one.info.id();
  return text;
}

std::string sorted(const std::string& column, bool reverse = false) {
  Comparison comparison = grid();
  const auto done = sort_entries(comparison, column, reverse);
  return done.ok() ? ids(comparison) : done.error().message + " | " + done.error().hint;
}

View view(size_t width = 0) {
  View made;
  made.screen.width = width;
  made.now_unix_ms = kNow;
  return made;
}

TEST_CASE("a set: what all share above, what differs in columns") {
  CHECK(render_comparison(grid(), "", view()) ==
        "All: epochs=10\n"
        "ID   STATE      DURATION rate   loss    accuracy\n"
        "4.1  ✓ FINISHED 1m 40s   0.1    0.12346 0.9\n"
        "4.2  ✓ FINISHED 1m 40s   0.01   1234567 -\n"
        "4.3  ● PENDING  -        1      -       -\n"
        "4.10 ✓ FINISHED 1m 40s   10     nan     -\n");
}

TEST_CASE("a narrow terminal does without metrics but one before parameters, but not without what it is sorted by") {
  CHECK(render_comparison(grid(), "", view(42)) ==
        "All: epochs=10\n"
        "ID   STATE      rate   loss    accuracy\n"
        "4.1  ✓ FINISHED 0.1    0.12346 0.9\n"
        "4.2  ✓ FINISHED 0.01   1234567 -\n"
        "4.3  ● PENDING  1      -       -\n"
        "4.10 ✓ FINISHED 10     nan     -\n"
        "No room for DURATION: --csv has all\n");
  const auto header = [](const std::string& sorted_by, size_t width) {
    const std::string text = render_comparison(grid(), sorted_by, view(width));
    const size_t start = text.find("ID ");
    return text.substr(start, text.find('\n', start) - start);
  };
  CHECK(header("", 34) == "ID   STATE      rate   loss");
  CHECK(header("accuracy", 34) == "ID   STATE      rate   accuracy");
  CHECK(header("", 29) == "ID   STATE      loss");
  CHECK(header("rate", 22) == "ID   STATE      rate");
  CHECK(header("accuracy", 30) == "ID   STATE      accuracy");
  CHECK(render_comparison(grid(), "", view(34)).ends_with("\nNo room for DURATION, accuracy:\n--csv has all\n"));
  const std::string maximum = render_comparison(grid({"", MetricValue::Last, {"accuracy", true}}), "", view(37));
  CHECK(maximum.find("ID   STATE      rate   accuracy (max)\n") != std::string::npos);
}

TEST_CASE("CSV is whole: every parameter, every digit") {
  Comparison comparison = grid();
  (*comparison.entries[0].info.mutable_parameters())["rate"] = "a \"b\", c";
  CHECK(comparison_csv(comparison) ==
        "id,state,duration_seconds,epochs,rate,loss,accuracy\r\n"
        "4.1,FINISHED,100,10,\"a \"\"b\"\", c\",0.123456789,0.9\r\n"
        "4.2,FINISHED,100,10,0.01,1234567,\r\n"
        "4.3,PENDING,,10,1,,\r\n"
        "4.10,FINISHED,100,10,10,nan,\r\n");
}

TEST_CASE("another of the values can be compared") {
  CHECK(comparison_csv(grid({"", MetricValue::Minimum})).find("0.05,\r\n") != std::string::npos);
  CHECK(comparison_csv(grid({"", MetricValue::Maximum})).find("2.5,0.95\r\n") != std::string::npos);
}

TEST_CASE("sorting: numbers as numbers, who has none last") {
  CHECK(sorted("rate") == "4.2 4.1 4.3 4.10");
  CHECK(sorted("-rate") == "4.10 4.3 4.1 4.2");
  CHECK(sorted("rate", true) == "4.10 4.3 4.1 4.2");
  CHECK(sorted("-rate", true) == "4.2 4.1 4.3 4.10");
  CHECK(sorted("loss") == "4.1 4.2 4.10 4.3");  // nan comes after all numbers
  CHECK(sorted("-loss") == "4.2 4.1 4.10 4.3");
  CHECK(sorted("id") == "4.1 4.2 4.3 4.10");
  CHECK(sorted("-ID") == "4.10 4.3 4.2 4.1");
  CHECK(sorted("state") == "4.1 4.2 4.10 4.3");
  CHECK(sorted("duration") == "4.1 4.2 4.10 4.3");
  CHECK(sorted("epochs") == "4.1 4.2 4.3 4.10");  // all alike
  CHECK(sorted("los") ==
        "there is no column 'los'; did you mean 'loss'? | "
        "--sort takes id, state, duration, rate, loss, accuracy");
  CHECK(sorted("") ==
        "there is no column '' | --sort takes id, state, duration, rate, loss, accuracy");
}

std::vector<Entry> scaling() {
  std::vector<Entry> entries = {entry("5", "1", 4), entry("3", "1", 1), entry("4", "1", 2),
                                entry("6", "1", 8)};
  set_metric(entries[0].info, "samples/s", 300, 1, 320);
  set_metric(entries[1].info, "samples/s", 100, 1, 110);
  set_metric(entries[2].info, "samples/s", 190, 1, 200);
  set_metric(entries[2].info, "tokens/s", 7, 7, 7);
  return entries;
}

TEST_CASE("a rate and different numbers of workers give speedup and efficiency") {
  const auto made = compare(scaling(), {}, kNow);
  REQUIRE(made.ok());
  CHECK(render_comparison(*made, "", view()) ==
        "All: epochs=10, rate=1\n"
        "ID STATE      DURATION WORKERS samples/s tokens/s SPEEDUP EFFICIENCY\n"
        "5  ✓ FINISHED 1m 40s   4       300       -        3       0.75\n"
        "3  ✓ FINISHED 1m 40s   1       100       -        1       1\n"
        "4  ✓ FINISHED 1m 40s   2       190       7        1.9     0.95\n"
        "6  ✓ FINISHED 1m 40s   8       -         -        -       -\n");
  CHECK(compare_json(*made).find(R"("workers":2,"rate":190.0,"speedup":1.9,"efficiency":0.95})") !=
        std::string::npos);
  CHECK(compare_json(*made).find(
            R"("same_parameters":{"epochs":"10","rate":"1"},"rate":"samples/s")") !=
        std::string::npos);
}

TEST_CASE("a narrow terminal does without what all have alike first, and breaks no line") {
  auto entries = scaling();
  for (Entry& one : entries) (*one.info.mutable_parameters())["learning-rate"] = one.info.id();
  const auto made = compare(entries, {}, kNow);
  REQUIRE(made.ok());
  const auto header = [&](size_t width) {
    const std::string text = render_comparison(*made, "", view(width));
    const size_t start = text.find("ID ");
    return text.substr(start, text.find('\n', start) - start);
  };
  CHECK(header(79) == "ID learning-rate WORKERS samples/s tokens/s SPEEDUP EFFICIENCY");
  CHECK(header(60) == "ID learning-rate WORKERS samples/s tokens/s SPEEDUP");
  CHECK(header(50) == "ID learning-rate WORKERS samples/s tokens/s");
  CHECK(header(40) == "ID learning-rate WORKERS samples/s");
  CHECK(header(28) == "ID WORKERS samples/s");
  CHECK(header(20) == "ID WORKERS samples/s");
}

TEST_CASE("a parameter that is the number of workers is shown once, ratios with three digits") {
  auto entries = scaling();
  for (Entry& one : entries) (*one.info.mutable_parameters())["worker"] = std::to_string(one.workers);
  entries[0].info.mutable_metrics(0)->set_last(333.3);
  entries.pop_back();
  const auto made = compare(entries, {}, kNow);
  REQUIRE(made.ok());
  CHECK(render_comparison(*made, "", view()) ==
        "All: epochs=10, rate=1\n"
        "ID STATE      DURATION worker samples/s tokens/s SPEEDUP EFFICIENCY\n"
        "5  ✓ FINISHED 1m 40s   4      333.3     -        3.33    0.833\n"
        "3  ✓ FINISHED 1m 40s   1      100       -        1       1\n"
        "4  ✓ FINISHED 1m 40s   2      190       7        1.9     0.95\n");
  CHECK(comparison_csv(*made).find(",worker,workers,") != std::string::npos);
  (*entries[0].info.mutable_parameters())["worker"] = "3";  // one that says something else
  CHECK(render_comparison(*compare(entries, {}, kNow), "", view()).find("WORKERS") != std::string::npos);
}

TEST_CASE("speedup is against fewer workers of the same, where there are such") {
  auto entries = scaling();
  (*entries[1].info.mutable_parameters())["batch"] = "32";  // 3, of one worker
  for (const size_t i : {0, 2}) (*entries[i].info.mutable_parameters())["batch"] = "64";  // 5 of four, 4 of two
  const auto made = compare(entries, {}, kNow);
  REQUIRE(made.ok());
  CHECK(made->scales);
  CHECK(!made->entries[1].speedup);
  CHECK(made->entries[2].speedup == 1);
  CHECK(made->entries[0].speedup == 300.0 / 190);
}

TEST_CASE("another rate is chosen by name; one that nobody has is refused") {
  auto entries = scaling();
  set_metric(entries[0].info, "tokens/s", 7, 7, 7);
  const auto made = compare(entries, {"tokens/s", MetricValue::Last}, kNow);
  REQUIRE(made.ok());
  CHECK(made->entries[0].efficiency == 0.5);
  const auto none = compare(entries, {"frames/s", MetricValue::Last}, kNow);
  REQUIRE(!none.ok());
  CHECK(none.error().message == "none of them has the metric 'frames/s'");
  CHECK(none.error().hint == "there are samples/s, tokens/s");
}

TEST_CASE("the same number of workers, or no rate above nothing, has no efficiency") {
  auto entries = scaling();
  for (Entry& one : entries) one.workers = 2;
  CHECK(!compare(entries, {}, kNow)->scales);
  entries = scaling();
  entries[1].info.mutable_metrics(0)->set_last(0);
  CHECK(compare(entries, {}, kNow)->entries[0].efficiency == 300.0 / 4 / (190.0 / 2));
}

TEST_CASE("projects and names are columns where they differ; parameters may lack") {
  std::vector<Entry> entries = {entry("3", "1"), entry("4", "1")};
  entries[1].info.set_project("other");
  entries[1].info.set_name("second");
  entries[1].info.mutable_parameters()->erase("epochs");
  const auto made = compare(std::move(entries), {}, kNow);
  CHECK(render_comparison(*made, "", view()) ==
        "All: rate=1\n"
        "ID PROJECT NAME   STATE      DURATION epochs\n"
        "3  toaster -      ✓ FINISHED 1m 40s   10\n"
        "4  other   second ✓ FINISHED 1m 40s   -\n");
}

// Of a YAML with these lines below `train`, as an experiment or as a member.
Entry made_of(const std::string& id, const std::string& lines, uint32_t member = 0) {
  const auto spec = parse_spec("project: a\ntrain:\n" + lines, {});
  REQUIRE_MESSAGE(spec.ok(), spec.error().message);
  Entry made;
  made.info.set_id(id);
  made.info.set_state("FINISHED");
  for (const auto& [name, value] : member_parameters(*spec, member)) {
    (*made.info.mutable_parameters())[name] = value;
  }
  made.made_of = settings_of(*spec, member);
  return made;
}

TEST_CASE("keys of the YAML that differ are columns, as parameters are") {
  const auto text = [](std::vector<Entry> entries) {
    return render_comparison(*compare(std::move(entries), {}, kNow), "", view());
  };
  CHECK(text({made_of("3", "  run: x\n  resources: {cpus: 1, gpus: 1}\n"),
              made_of("4", "  run: y\n  resources: {cpus: 2, gpus: 1}\n  max-duration: 2h\n")}) ==
        "ID STATE      DURATION cpus   max-duration\n"
        "3  ✓ FINISHED -        1      -\n"
        "4  ✓ FINISHED -        2      2h\n");
  const std::string engine = "  framework: engine\n  parameters: {rate: 0.1}\n  engine:\n    data: {train: d}\n";
  const auto made = compare(
      {made_of("3", engine + "    model: mlp\n    epochs: 3\n    optimizer: {sgd: {learning-rate: \"{{ rate }}\"}}\n"),
       made_of("4", engine + "    model: {mlp: {hidden: [8, 8]}}\n    epochs: 5\n    clip: \"{{ rate }}\"\n")},
      {}, kNow);
  REQUIRE(made.ok());
  CHECK(render_comparison(*made, "", view()) ==
        "All: rate=0.1\n"
        "ID STATE      DURATION model                   epochs learning-rate clip\n"
        "3  ✓ FINISHED -        mlp                     3      0.1           -\n"
        "4  ✓ FINISHED -        {mlp: {hidden: [8, 8]}} 5      -             0.1\n");
  CHECK(compare_json(*made).find(R"("settings":{"clip":"0.1","epochs":"5","model":"{mlp: {hidden: [8, 8]}}"})") !=
        std::string::npos);
}

TEST_CASE("a choice without options differs from another") {
  const std::string engine = "  framework: engine\n  engine:\n    data: {train: d}\n";
  const auto made = compare({made_of("3", engine + "    model: {lenet: {}}\n"),
                             made_of("4", engine + "    model: {mlp: {hidden: 8}}\n    optimizer: {adam: {}}\n")},
                            {}, kNow);
  REQUIRE(made.ok());
  CHECK(render_comparison(*made, "", view()) ==
        "ID STATE      DURATION model  hidden optimizer\n"
        "3  ✓ FINISHED -        lenet  -      -\n"
        "4  ✓ FINISHED -        mlp    8      adam\n");
}

TEST_CASE("a key that is a parameter of a set is one column; another of that name is called after what it belongs to") {
  const std::string roles = "  run: x\n  framework: tensorflow\n  tensorflow: {distributed: {worker: ";
  std::vector<Entry> entries = {made_of("3.1", roles + "[1, 2]}}\n", 1), made_of("3.2", roles + "[1, 2]}}\n", 2),
                                made_of("4", roles + "4}}\n"), made_of("5", roles + "4, ps: 2}}\n")};
  const auto made = compare(entries, {}, kNow);
  CHECK(render_comparison(*made, "", view()) ==
        "ID  STATE      DURATION worker ps\n"
        "3.1 ✓ FINISHED -        1      -\n"
        "3.2 ✓ FINISHED -        2      -\n"
        "4   ✓ FINISHED -        4      -\n"
        "5   ✓ FINISHED -        4      2\n");
  entries = {made_of("3", "  run: x\n  resources: {cpus: 1}\n  parameters: {cpus: 7}\n"),
             made_of("4", "  run: x\n  resources: {cpus: 2}\n  parameters: {cpus: 7}\n")};
  CHECK(render_comparison(*compare(entries, {}, kNow), "", view()) ==
        "All: cpus=7\n"
        "ID STATE      DURATION resources-cpus\n"
        "3  ✓ FINISHED -        1\n"
        "4  ✓ FINISHED -        2\n");
  entries = {made_of("3", "  run: x\n  data: {state: /a}\n"), made_of("4", "  run: x\n  data: {state: /b}\n")};
  CHECK(render_comparison(*compare(entries, {}, kNow), "", view()) ==
        "ID STATE      DURATION data-state\n"
        "3  ✓ FINISHED -        /a\n"
        "4  ✓ FINISHED -        /b\n");
}

TEST_CASE("one experiment alone, and none") {
  const auto one = compare({entry("3", "1")}, {}, kNow);
  CHECK(render_comparison(*one, "", view()) ==
        "ID STATE      DURATION epochs rate\n"
        "3  ✓ FINISHED 1m 40s   10     1\n");
  CHECK(compare({}, {}, kNow).ok());
}

TEST_CASE("workers are those that train") {
  const auto spec = parse_spec(
      "project: a\ntrain:\n  framework: tensorflow\n"
      "  tensorflow: {distributed: {worker: 3, ps: 2, evaluator: 1}}\n  run: x\n",
      {});
  REQUIRE(spec.ok());
  CHECK(worker_count(*spec, 0) == 3);
  CHECK(worker_count(*parse_spec("project: a\ntrain: {run: x}\n", {}), 0) == 1);
}

Spec with_metrics(const std::string& metrics) {
  return *parse_spec("project: a\ntrain: {run: x" + metrics + "}\n", {});
}

std::string names(const pb::ExperimentInfo& info) {
  std::string text;
  for (const pb::Metric& metric : info.metrics()) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", metric.name(), metric.last());
  }
  return text;
}

TEST_CASE("event files complete what the output said, by the whole name or an only last part") {
  const Scalars scalars = {{"train/epoch_loss", {1, 4, 1, 9, 5}},
                           {"validation/epoch_loss", {2, 4, 1, 9, 5}},
                           {"train/accuracy", {3, 4, 1, 9, 5}},
                           {"loss", {4, 4, 1, 9, 5}},
                           {"x/loss", {5, 4, 1, 9, 5}}};
  pb::ExperimentInfo said;
  set_metric(said, "rate", 7, 7, 7);
  const auto completed = [&](const std::string& metrics) {
    pb::ExperimentInfo info = said;
    add_scalars(scalars, with_metrics(metrics), info);
    return names(info);
  };
  CHECK(completed(", metrics: [loss, accuracy, rate, epoch_loss, none]") ==
        "loss=4 accuracy=3 rate=7");
  CHECK(completed(", metrics: [validation/epoch_loss]") == "validation/epoch_loss=2");
  // Once it has begun, what is nowhere said shows that it is not.
  said.set_started_unix_ms(1);
  CHECK(completed(", metrics: [los, rate]") == "los=0 rate=7");
  add_scalars({}, with_metrics(", metrics: [los, rate]"), said);
  CHECK(find_metric(said, "los") == nullptr);
  CHECK(metric_names({&said}) == std::vector<std::string>{"los", "rate"});
  pb::ExperimentInfo all;
  add_scalars(scalars, with_metrics(""), all);
  CHECK(names(all) ==
        "loss=4 train/accuracy=3 train/epoch_loss=1 validation/epoch_loss=2 x/loss=5");
  CHECK(all.metrics(0).step() == 4);
  pb::ExperimentInfo both;
  set_metric(both, "loss", 8, 8, 8);
  add_scalars(scalars, with_metrics(", metrics: [loss]"), both);
  CHECK(names(both) == "loss=8");
}

TEST_CASE("columns are in the order in which metrics are declared, whoever lacks which") {
  const auto names_of = [](const std::vector<std::vector<std::string>>& lists) {
    std::vector<pb::ExperimentInfo> infos(lists.size());
    std::vector<const pb::ExperimentInfo*> pointers;
    for (size_t i = 0; i < lists.size(); ++i) {
      for (const std::string& name : lists[i]) set_metric(infos[i], name, 1, 1, 1);
      pointers.push_back(&infos[i]);
    }
    return metric_names(pointers);
  };
  using Names = std::vector<std::string>;
  CHECK(names_of({{"a", "c"}, {"a", "b", "c", "d"}}) == Names{"a", "b", "c", "d"});
  CHECK(names_of({{}, {"c"}, {"a", "b", "c"}}) == Names{"a", "b", "c"});
  CHECK(names_of({{"a", "b"}, {"c", "d"}, {"b", "e"}}) == Names{"a", "b", "c", "d", "e"});
}

TEST_CASE("five significant digits, and all before the point up to ten million") {
  CHECK(number_text(0.1234567) == "0.12346");
  CHECK(number_text(100) == "100");
  CHECK(number_text(12345.67) == "12346");
  CHECK(number_text(99999.7) == "100000");
  CHECK(number_text(123456.7) == "123457");
  CHECK(number_text(-9999999) == "-9999999");
  CHECK(number_text(12345678) == "1.2346e+07");
  CHECK(number_text(-INFINITY) == "-inf");
}

TEST_CASE("of the metric that a search goes by the best value counts") {
  Comparison comparison = grid({"", MetricValue::Last, {"accuracy", true}});
  CHECK(has_column(comparison, "accuracy"));
  CHECK_FALSE(has_column(comparison, "rate"));
  CHECK_FALSE(has_column(comparison, ""));
  const EntryColumn accuracy{EntryColumn::Kind::Metric, "accuracy"}, loss{EntryColumn::Kind::Metric, "loss"};
  CHECK(value_of(comparison, comparison.entries[0], accuracy) == EntryValue(0.95));
  CHECK(value_of(comparison, comparison.entries[0], loss) == EntryValue(0.123456789));
  Comparison smallest = grid({"", MetricValue::Last, {"loss", false}});
  CHECK(value_of(smallest, smallest.entries[0], loss) == EntryValue(0.1));
  REQUIRE(sort_entries(smallest, "loss", false).ok());
  CHECK(ids(smallest) == "4.10 4.1 4.2 4.3");
  CHECK(render_comparison(smallest, "loss", {}).find("loss (min)") != std::string::npos);
  // What is no number is last in both directions.
  Comparison last = grid();
  REQUIRE(sort_entries(last, "-loss", false).ok());
  CHECK(ids(last).starts_with("4.2 4.1"));
}

}  // namespace
}  // namespace dtrain::cli
