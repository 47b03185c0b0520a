// SPDX-License-Identifier: Apache-2.0
// sparkline.cpp: a word-sized curve.
#include "experiments/report/index/sparkline.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "experiments/report/chart/svg_text.h"

namespace convscope {
namespace {

constexpr double kWidth = 84, kHeight = 22, kEdge = 3;
constexpr std::size_t kPoints = 40;  // more points are not visible
constexpr double kLeastSpan = 2;     // span of the values: noise must not look like progress

}  // namespace

std::string sparkline(const std::vector<double>& values, const std::string& title) {
  if (values.empty()) return "";
  const auto [low_at, high_at] = std::minmax_element(values.begin(), values.end());
  const double span = std::max(kLeastSpan, *high_at - *low_at);
  const double low = (*low_at + *high_at - span) / 2;
  const std::size_t count = std::min(values.size(), kPoints);
  std::string points;
  double x = kWidth / 2, y = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = count == 1 ? 0 : i * (values.size() - 1) / (count - 1);
    if (count > 1) {
      x = kEdge + (kWidth - 2 * kEdge) * static_cast<double>(i) / static_cast<double>(count - 1);
    }
    y = kHeight - kEdge - (kHeight - 2 * kEdge) * (values[at] - low) / span;
    fmt::format_to(std::back_inserter(points), "{}{:.1f},{:.1f}", i == 0 ? "" : " ", x, y);
  }
  return fmt::format(
      "<svg class=\"spark\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\">"
      "<title>{2}</title><polyline points=\"{3}\"/><circle cx=\"{4:.1f}\" cy=\"{5:.1f}\" r=\"2\"/>"
      "</svg>",
      kWidth, kHeight, escape_markup(title), points, x, y);
}

}  // namespace convscope
