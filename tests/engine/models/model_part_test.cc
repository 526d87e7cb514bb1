// The parts of a model together are the model: stages one after the other, and slices side by side.
#include <doctest/doctest.h>

#include <barrier>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/buffer.h"
#include "engine/models/model.h"

namespace dtrain::engine {
namespace {

struct PartedSetting {
  const char* name;
  ModelSpec spec;
  SampleShape shape;
  int stages;
};

const std::vector<PartedSetting> kPartedSettings = {
    {"mlp", MlpSpec{{24, 16, 12}}, {.channels = 1, .height = 9, .width = 7, .classes = 10}, 4},
    {"small mlp", MlpSpec{{8}}, {.channels = 1, .height = 3, .width = 3, .classes = 5}, 2},
    {"lenet", LenetSpec{5, {4, 6}, {20, 12}}, {.channels = 1, .height = 28, .width = 28, .classes = 10}, 5},
    {"lenet without pooling", LenetSpec{3, {4, 6}, {20, 12}, false, {1, 2}},
     {.channels = 1, .height = 12, .width = 11, .classes = 10}, 5},
    {"gpt", GptSpec{4, 4, 16, 12, 23}, {.context = 12, .vocabulary = 23}, 4},
    {"gpt of fewer tokens than slices", GptSpec{2, 4, 16, 12, 2}, {.context = 12, .vocabulary = 2}, 2},
};
constexpr int64_t kEnds[] = {3, 5, 9, 11};
constexpr Leaves kPartedLeaves{kEnds, 4};
constexpr int64_t kPartedSamples = 11;

template <class T>
struct PartedData {
  explicit PartedData(const PartedSetting& setting)
      : layout(layout_of(setting.spec, setting.shape)), parameters(layout.size()) {
    std::mt19937 random(11);
    const auto normal = [&] { return static_cast<T>(std::normal_distribution<float>()(random)); };
    const SampleShape& shape = setting.shape;
    for (const Parameter& p : layout.parameters()) {
      for (int64_t i = 0; i < p.size(); ++i) {
        parameters[p.offset + i] = T(0.2) * normal() + T(p.initial == Initial::One ? 1 : 0);
      }
    }
    for (int64_t i = 0; i < kPartedSamples * shape.pixels(); ++i) pixels.push_back(normal());
    const int64_t rows = kPartedSamples * (shape.context > 0 ? shape.context : 1);
    const int64_t classes = shape.context > 0 ? shape.vocabulary : shape.classes;
    for (int64_t i = 0; i < rows; ++i) {
      ids.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(classes)));
      labels.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(classes)));
    }
    Buffer<T> all(layout.size());
    outcome = make_model<T>(setting.spec, setting.shape, kPartedSamples)
                  ->train(parameters.data(), samples(), kPartedLeaves, all.data(), false);
    expected = {all.data(), all.data() + all.size()};
  }
  Samples<T> samples() const { return {pixels.data(), ids.data(), labels.data()}; }

  Layout layout;
  Buffer<T> parameters;
  std::vector<T> pixels;
  std::vector<int32_t> ids, labels;
  Outcome outcome;          // of the whole model
  std::vector<T> expected;  // its gradients
};

// Slices as threads.
template <class T>
class Meeting {
 public:
  explicit Meeting(int slices) : barrier_(slices), parts_(static_cast<size_t>(slices)) {}

  class Partner : public Partners<T> {
   public:
    Partner(Meeting& meeting, int slice) : meeting_(meeting), slice_(slice) {}
    void add_up(T* values, int64_t count) override {
      std::vector<T> sum(static_cast<size_t>(count));
      meeting_.tell(slice_, values);
      for (const T* part : meeting_.parts_) {
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      meeting_.barrier_.arrive_and_wait();
      std::copy(sum.begin(), sum.end(), values);
    }
    void gather(const T* mine, T* all, int64_t count) override {
      meeting_.tell(slice_, mine);
      for (const T* part : meeting_.parts_) all = std::copy_n(part, count, all);
      meeting_.barrier_.arrive_and_wait();
    }

   private:
    Meeting& meeting_;
    int slice_;
  };

 private:
  void tell(int slice, const T* values) {
    parts_[static_cast<size_t>(slice)] = values;
    barrier_.arrive_and_wait();
  }
  std::barrier<> barrier_;
  std::vector<const T*> parts_;
};

// What the held ranges have of `from`, into `to`, where nothing has been.
void take(const std::vector<Range>& ranges, const Buffer<double>& from, std::vector<double>& to,
          std::vector<int>& times) {
  for (const Range range : ranges) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      to[static_cast<size_t>(i)] += from[i];
      ++times[static_cast<size_t>(i)];
    }
  }
}

void check_near(const Layout& layout, const std::vector<double>& values, const std::vector<double>& expected) {
  for (const Parameter& p : layout.parameters()) {
    CAPTURE(p.name);
    double error = 0, norm = 0;
    for (auto i = static_cast<size_t>(p.offset); i < static_cast<size_t>(p.range().end); ++i) {
      error += std::pow(values[i] - expected[i], 2);
      norm += std::pow(expected[i], 2);
    }
    CHECK(norm > 0);
    CHECK(std::sqrt(error) <= 1e-12 * std::sqrt(norm));
  }
}

TEST_CASE("stages one after the other give what the whole model gives") {
  for (const PartedSetting& setting : kPartedSettings) {
    const PartedData<double> data(setting);
    for (int stages = 1; stages <= setting.stages; ++stages) {
      CAPTURE(std::string(setting.name));
      CAPTURE(stages);
      std::vector<std::unique_ptr<Model<double>>> parts;
      Outcome outcome;
      for (int stage = 0; stage < stages; ++stage) {
        parts.push_back(make_model<double>(setting.spec, setting.shape, kPartedSamples,
                                           {.stage = stage, .stages = stages}));
        Model<double>& part = *parts.back();
        CHECK((part.flow_in(kPartedLeaves) == 0) == (stage == 0));
        CHECK((part.flow_out(kPartedLeaves) == 0) == (stage + 1 == stages));
        if (stage > 0) {
          const Model<double>& before = *parts[parts.size() - 2];
          REQUIRE(before.flow_out(kPartedLeaves) == part.flow_in(kPartedLeaves));
          std::copy_n(before.output(), part.flow_in(kPartedLeaves), part.input());
        }
        // Only the ends of a model see samples.
        const bool sees = stage == 0 || stage + 1 == stages;
        outcome = part.forward(data.parameters.data(), sees ? data.samples() : Samples<double>{}, kPartedLeaves);
      }
      CHECK(outcome.loss == data.outcome.loss);
      CHECK(outcome.correct == data.outcome.correct);
      CHECK(outcome.rows == data.outcome.rows);

      std::vector<double> sum(data.expected.size());
      std::vector<int> times(sum.size());
      for (int stage = stages; stage-- > 0;) {
        Model<double>& part = *parts[static_cast<size_t>(stage)];
        Buffer<double> gradients(data.layout.size());
        part.backward(data.parameters.data(), data.samples(), kPartedLeaves, gradients.data(), false);
        if (stage > 0) {
          std::copy_n(part.input_gradient(), part.flow_in(kPartedLeaves),
                      parts[static_cast<size_t>(stage) - 1]->output_gradient());
        }
        const Held held = held_by(setting.spec, setting.shape, {.stage = stage, .stages = stages});
        CHECK(held.same.empty());
        take(held.own, gradients, sum, times);
        take(held.partial, gradients, sum, times);
      }
      const bool tied = stages > 1 && std::holds_alternative<GptSpec>(setting.spec);
      for (size_t i = 0; const Parameter& p : data.layout.parameters()) {
        for (int64_t at = p.offset; at < p.range().end; ++at) {
          CHECK(times[static_cast<size_t>(at)] == (tied && i == 0 ? 2 : 1));
        }
        // All but the sum of what two stages know of the tokens has the same bits.
        if (!tied || i > 0) {
          CHECK(std::memcmp(&sum[static_cast<size_t>(p.offset)], &data.expected[static_cast<size_t>(p.offset)],
                            static_cast<size_t>(p.size()) * sizeof(double)) == 0);
        }
        ++i;
      }
      check_near(data.layout, sum, data.expected);
    }
  }
}

TEST_CASE("slices side by side give what the whole model gives") {
  for (const PartedSetting& setting : kPartedSettings) {
    const PartedData<double> data(setting);
    for (const int slices : {2, 4}) {
      CAPTURE(std::string(setting.name));
      CAPTURE(slices);
      Meeting<double> meeting(slices);
      std::vector<Buffer<double>> gradients;
      std::vector<Outcome> outcomes(static_cast<size_t>(slices));
      for (int slice = 0; slice < slices; ++slice) gradients.emplace_back(data.layout.size());
      std::vector<std::thread> threads;
      for (int slice = 0; slice < slices; ++slice) {
        threads.emplace_back([&, slice] {
          typename Meeting<double>::Partner partner(meeting, slice);
          const auto part = make_model<double>(setting.spec, setting.shape, kPartedSamples,
                                               {.slice = slice, .slices = slices}, &partner);
          outcomes[static_cast<size_t>(slice)] =
              part->train(data.parameters.data(), data.samples(), kPartedLeaves,
                          gradients[static_cast<size_t>(slice)].data(), false);
        });
      }
      for (std::thread& thread : threads) thread.join();
      std::vector<double> sum(data.expected.size());
      std::vector<int> times(sum.size());
      for (int slice = 0; slice < slices; ++slice) {
        const Outcome& outcome = outcomes[static_cast<size_t>(slice)];
        CHECK(outcome.loss == doctest::Approx(data.outcome.loss).epsilon(1e-12));
        CHECK(outcome.correct == data.outcome.correct);
        const Held held = held_by(setting.spec, setting.shape, {.slice = slice, .slices = slices});
        CHECK(held.partial.empty());
        CHECK_FALSE(held.own.empty());
        take(held.own, gradients[static_cast<size_t>(slice)], sum, times);
        if (slice == 0) take(held.same, gradients[0], sum, times);
        for (const Range range : held.same) {
          CHECK(std::memcmp(gradients[0].data() + range.begin,
                            gradients[static_cast<size_t>(slice)].data() + range.begin,
                            static_cast<size_t>(range.size()) * sizeof(double)) == 0);
        }
      }
      for (const Parameter& p : data.layout.parameters()) {
        for (int64_t at = p.offset; at < p.range().end; ++at) CHECK(times[static_cast<size_t>(at)] == 1);
      }
      check_near(data.layout, sum, data.expected);
    }
  }
}

}  // namespace
}  // namespace dtrain::engine
