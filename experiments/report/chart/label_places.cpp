// SPDX-License-Identifier: Apache-2.0
// label_places.cpp: where a label fits in a panel: on no mark, on no other label, inside the frame.
#include "experiments/report/chart/label_places.h"

#include <algorithm>
#include <cmath>

namespace convscope {
namespace {

constexpr double kMark = 6;  // half the width of a mark, its edge included
constexpr double kHalo = 1.5;

bool overlap(const Box& a, const Box& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

// Whether the straight line from (x, y) by (dx, dy) meets the box (Liang and Barsky 1984).
bool meets(const Box& box, double x, double y, double dx, double dy) {
  double from = 0, to = 1;
  const auto clip = [&](double direction, double distance) {
    if (direction == 0) return distance >= 0;
    const double at = distance / direction;
    if (direction < 0) from = std::max(from, at);
    if (direction > 0) to = std::min(to, at);
    return from <= to;
  };
  return clip(-dx, x - box.left) && clip(dx, box.right - x) && clip(-dy, y - box.top) &&
         clip(dy, box.bottom - y);
}

}  // namespace

void LabelPlaces::add_mark(double x, double y) {
  taken_.push_back({x - kMark, y - kMark, x + kMark, y + kMark});
}

void LabelPlaces::add_line(Points line) { lines_.push_back(std::move(line)); }

bool LabelPlaces::free(const Box& box) const {
  return box.left >= frame_.left && box.right <= frame_.right && box.top >= frame_.top &&
         box.bottom <= frame_.bottom &&
         std::ranges::none_of(taken_, [&](const Box& other) { return overlap(box, other); });
}

bool LabelPlaces::crossed(const Box& box) const {
  return std::ranges::any_of(lines_, [&](const Points& line) {
    for (std::size_t i = 1; i < line.size(); ++i) {
      const auto [x, y] = line[i - 1];
      if (meets(box, x, y, line[i].first - x, line[i].second - y)) return true;
    }
    return false;
  });
}

std::optional<Box> LabelPlaces::at_mark(double x, double y, double width, double height) {
  for (const double distance : {7.0, 10.0, 15.0, 21.0, 28.0, 36.0, 46.0, 58.0}) {
    // Right, left, above, below, and between these.
    constexpr double kWays[][2] = {{1, -.6}, {1, .6}, {-1, -.6}, {-1, .6},
                                   {0, -1},  {0, 1},  {1, 0},    {-1, 0}};
    for (const auto& [right, down] : kWays) {
      const double at = x + right * distance;
      const double middle = y + down * (distance + height / 2);
      const double left = right > 0 ? at : right < 0 ? at - width : x - width / 2;
      const Box box{left, middle - height / 2, left + width, middle + height / 2};
      if (!free(box)) continue;
      taken_.push_back(box);
      return box;
    }
  }
  return std::nullopt;
}

std::optional<Box> LabelPlaces::at_line(const Points& line, double width, double height) {
  if (line.size() < 2) return std::nullopt;
  for (const bool may_cross : {false, true}) {
    // From the middle outwards; on either side of the line.
    for (int step = 0; step <= 48; ++step) {
      const double part = 0.5 + (step % 2 == 0 ? 1 : -1) * 0.01 * ((step + 1) / 2 * 2);
      const double at = std::clamp(part, 0.0, 1.0) * static_cast<double>(line.size() - 1);
      const auto i = std::min(static_cast<std::size_t>(at), line.size() - 2);
      const double rest = at - static_cast<double>(i);
      const double dx = line[i + 1].first - line[i].first;
      const double dy = line[i + 1].second - line[i].second;
      const double x = line[i].first + rest * dx, y = line[i].second + rest * dy;
      // Beside a flat line: above or below its point. Beside a rising one: left of it, or right.
      const double slope = std::abs(dx) < 1e-9 ? 1e9 : std::abs(dy / dx);
      const double gap = 3 + kHalo;
      for (const int side : {-1, 1}) {
        Box box{x - width / 2, y + side * (gap + height / 2) - height / 2, 0, 0};
        if (slope > 0.1) {
          // The corner that is nearest to the line touches it almost.
          box.left = side < 0 ? x - gap - width : x + gap;
          box.top = side < 0 ? y - gap - height : y + gap;
          if (dx * dy > 0) box.top = side < 0 ? y + gap : y - gap - height;
        }
        box.right = box.left + width;
        box.bottom = box.top + height;
        if (!free(box) || (!may_cross && crossed(box))) continue;
        taken_.push_back(box);
        return box;
      }
    }
  }
  return std::nullopt;
}

}  // namespace convscope
