#include "engine/comm/sum.h"

#include "engine/vector_widths.h"

namespace dtrain::engine {

namespace {

constexpr int64_t kLine = 16;
// Elements. Arenas lie on small pages where they are shared, and the processor itself reads ahead no
// further than to the end of a page. Never beyond the end: where there are no pages, asking takes long.
constexpr int64_t kAhead = 512;
// Fewer lie in a cache, where asking only takes time.
constexpr int64_t kFar = 1 << 20;

}  // namespace

// Iterations are independent even where `out` is an operand: each reads what it writes, before.
FOR_EACH_VECTOR_WIDTH void add(float* out, const float* a, const float* b, int64_t count) {
  int64_t i = 0;
  for (; count >= kFar && i + kAhead + kLine <= count; i += kLine) {
    __builtin_prefetch(a + i + kAhead);
    __builtin_prefetch(b + i + kAhead);
    __builtin_prefetch(out + i + kAhead, 1);
#pragma GCC ivdep
    for (int64_t j = i; j < i + kLine; ++j) out[j] = a[j] + b[j];
  }
#pragma GCC ivdep
  for (; i < count; ++i) out[i] = a[i] + b[i];
}

FOR_EACH_VECTOR_WIDTH void add(float* out, const float* a, const float* b, const float* c, const float* d, int64_t count) {
  int64_t i = 0;
  for (; count >= kFar && i + kAhead + kLine <= count; i += kLine) {
    __builtin_prefetch(a + i + kAhead);
    __builtin_prefetch(b + i + kAhead);
    __builtin_prefetch(c + i + kAhead);
    __builtin_prefetch(d + i + kAhead);
    __builtin_prefetch(out + i + kAhead, 1);
#pragma GCC ivdep
    for (int64_t j = i; j < i + kLine; ++j) out[j] = (a[j] + b[j]) + (c[j] + d[j]);
  }
#pragma GCC ivdep
  for (; i < count; ++i) out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

}  // namespace dtrain::engine
