// The part of fmt that is no template, compiled once. Debian has no static library of it; included
// everywhere, by FMT_HEADER_ONLY, it was two thirds of the time that most of our files took to compile.
#include <fmt/format-inl.h>

namespace fmt::detail {

// fmt/format.h declares these `extern`.
template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl<char>(locale_ref) -> char;

}  // namespace fmt::detail
