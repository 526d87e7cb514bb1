// What the values of an EngineSpec may be: for the YAML and for the JSON alike.
#pragma once

#include <cstddef>

namespace dtrain::engine_limits {

struct Range {
  double least = 0;
  double most = 0;
};

inline constexpr size_t kLayersMax = 64;  // of `hidden`
inline constexpr size_t kPathBytesMax = 4096;

inline constexpr Range kWidth{1, 1'000'000};
inline constexpr Range kKernel{1, 31};
inline constexpr Range kChannels{1, 65'536};
inline constexpr Range kPool{1, 2};
inline constexpr Range kGptLayers{1, 1000};
inline constexpr Range kGptHeads{1, 1024};
inline constexpr Range kGptWidth{1, 65'536};
inline constexpr Range kGptContext{1, 1'048'576};
inline constexpr Range kGptVocabulary{0, 16'777'216};
inline constexpr Range kDevices{0, 1024};
inline constexpr Range kStaleness{0, 1'000'000};
inline constexpr Range kApplyEvery{1, 1'000'000};
inline constexpr Range kBackup{0, 10'000};
inline constexpr Range kMicroBatches{1, 100'000};
inline constexpr Range kMesh{1, 10'000};
inline constexpr Range kBucketMb{0, 1'000'000};
inline constexpr Range kBatch{1, 16'777'216};
inline constexpr Range kBatchOrNone{0, 16'777'216};
inline constexpr Range kEpochs{0.0001, 1'000'000};
inline constexpr Range kEpochsOrNone{0, 1'000'000};
inline constexpr Range kSteps{1, 1e12};
inline constexpr Range kStepsOrNone{0, 1e12};
inline constexpr Range kLearningRate{0, 1'000'000};
inline constexpr Range kMomentum{0, 1};
inline constexpr Range kBeta{0, 0.999999999};  // at 1 its mean would never move
inline constexpr Range kEpsilon{1e-30, 1};
inline constexpr Range kWeightDecay{0, 1000};
inline constexpr Range kFraction{0, 1};
inline constexpr Range kClip{0, 1e9};
inline constexpr Range kKeep{1, 10'000};
inline constexpr Range kThreads{0, 1024};
inline constexpr Range kDeadlineSeconds{0.1, 86'400};

}  // namespace dtrain::engine_limits
