// FOR_EACH_VECTOR_WIDTH before a function compiles it once for each of these instruction sets; the
// loader picks the best that the processor has.
#pragma once

// The thread sanitizer is not up yet when the loader does.
#if defined(__SANITIZE_THREAD__)
#define FOR_EACH_VECTOR_WIDTH
#else
#define FOR_EACH_VECTOR_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
