// The wheel's include folder carries a newer fmt than the system's, and comes first for whatever includes torch; the
// library part of that version exists nowhere. This is it. The versions live in different inline namespaces, so both
// may be linked.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE

template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;

namespace detail {
template FMT_API auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);
}  // namespace detail

FMT_END_NAMESPACE
