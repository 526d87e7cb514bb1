// Whether a sanitizer looks at each access, which takes ten times as long: what has a test do the same code over more
// numbers, or more often, may then do with less.
#pragma once

namespace dtrain::tests {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace dtrain::tests
