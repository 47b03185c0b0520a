// SPDX-License-Identifier: Apache-2.0
// label_layout.cpp: finds positions for labels inside a panel's frame that overlap no mark and no
// other label.
#include "experiments/report/chart/label_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

namespace convscope {
namespace {

constexpr double kMark = 6;  // half the width of a mark, its edge included
constexpr double kGap = 2;   // between a label and its line, the label's white edge included

using Corner = std::pair<double, double>;
using Corners = LabelLayout::Corners;

Corners corners_of(const Box& box) {
  return {
      {{box.left, box.top}, {box.right, box.top}, {box.right, box.bottom}, {box.left, box.bottom}}};
}

Corners corners_of(const LabelPosition& place, double width, double height) {
  const double turn = place.degrees * std::numbers::pi / 180;
  const double right_x = std::cos(turn) * width / 2, right_y = std::sin(turn) * width / 2;
  const double down_x = -std::sin(turn) * height / 2, down_y = std::cos(turn) * height / 2;
  const auto at = [&](int right, int down) {
    return Corner{place.x + right * right_x + down * down_x,
                  place.y + right * right_y + down * down_y};
  };
  return {at(-1, -1), at(1, -1), at(1, 1), at(-1, 1)};
}

// Returns whether two convex shapes of two corners (a line) or more intersect: no edge of either
// shape separates them.
bool meet(std::span<const Corner> a, std::span<const Corner> b) {
  const auto apart = [](std::span<const Corner> edges, std::span<const Corner> other) {
    for (std::size_t i = 0; i < edges.size(); ++i) {
      const Corner from = edges[i], to = edges[(i + 1) % edges.size()];
      constexpr double kInfinite = std::numeric_limits<double>::infinity();
      const auto extent = [&](std::span<const Corner> shape) {
        std::pair<double, double> out{kInfinite, -kInfinite};
        for (const auto& [at_x, at_y] : shape) {
          const double along = (at_x - from.first) * (to.second - from.second) -
                               (at_y - from.second) * (to.first - from.first);
          out = {std::min(out.first, along), std::max(out.second, along)};
        }
        return out;
      };
      const auto one = extent(edges), two = extent(other);
      if (one.second <= two.first || two.second <= one.first) return true;
    }
    return false;
  };
  return !apart(a, b) && !apart(b, a);
}

}  // namespace

void LabelLayout::add_mark(double x, double y) {
  taken_.push_back(corners_of(Box{x - kMark, y - kMark, x + kMark, y + kMark}));
}

void LabelLayout::add_line(Points line) { lines_.push_back(std::move(line)); }

bool LabelLayout::free(const Corners& label) const {
  const auto outside = [&](const Corner& corner) {
    return corner.first < frame_.left || corner.first > frame_.right ||
           corner.second < frame_.top || corner.second > frame_.bottom;
  };
  return std::ranges::none_of(label, outside) &&
         std::ranges::none_of(taken_, [&](const Corners& other) { return meet(label, other); });
}

bool LabelLayout::crossed(const Corners& label) const {
  return std::ranges::any_of(lines_, [&](const Points& line) {
    for (std::size_t i = 1; i < line.size(); ++i) {
      if (meet(label, std::span(line).subspan(i - 1, 2))) return true;
    }
    return false;
  });
}

std::optional<Box> LabelLayout::at_mark(double x, double y, double width, double height) {
  for (const double distance : {7.0, 10.0, 15.0, 21.0, 28.0, 36.0, 46.0, 58.0}) {
    // Candidate positions are right, left, above, below, and four directions between them.
    constexpr double kWays[][2] = {{1, -.6}, {1, .6}, {-1, -.6}, {-1, .6},
                                   {0, -1},  {0, 1},  {1, 0},    {-1, 0}};
    for (const auto& [right, down] : kWays) {
      const double at = x + right * distance;
      const double middle = y + down * (distance + height / 2);
      const double left = right > 0 ? at : right < 0 ? at - width : x - width / 2;
      const Box box{left, middle - height / 2, left + width, middle + height / 2};
      if (!free(corners_of(box))) continue;
      taken_.push_back(corners_of(box));
      return box;
    }
  }
  return std::nullopt;
}

std::optional<LabelPosition> LabelLayout::at_line(const Points& line, double width, double height) {
  for (std::size_t i = 1; i < line.size(); ++i) {
    double x = line[i - 1].first, y = line[i - 1].second;
    double to_x = line[i].first, to_y = line[i].second;
    if (to_x < x) std::swap(x, to_x), std::swap(y, to_y);  // reads from left to right
    const double length = std::hypot(to_x - x, to_y - y);
    if (length < width) continue;
    const double right_x = (to_x - x) / length, right_y = (to_y - y) / length;
    const double degrees = std::atan2(right_y, right_x) * 180 / std::numbers::pi;
    const double slack = (length - width) / 2;  // from the middle of the piece to both sides
    for (int step = 0; step <= 60; ++step) {
      const double along = length / 2 + (step % 2 == 0 ? 1 : -1) * slack * ((step + 1) / 2) / 30.0;
      for (const int side : {1, -1}) {  // above the line, below it
        const double away = side * (kGap + height / 2);
        const auto at = [&](double aside) {
          return LabelPosition{x + along * right_x + aside * right_y,
                               y + along * right_y - aside * right_x, degrees};
        };
        const LabelPosition place = at(away);
        const Corners label = corners_of(place, width, height);
        // Other lines must be at least three times as far from the label as the label's own line.
        const Corners room = corners_of(at(away + side * kGap), width, height + 2 * kGap - 0.2);
        if (!free(label) || crossed(room)) continue;
        taken_.push_back(label);
        return place;
      }
    }
  }
  return std::nullopt;
}

}  // namespace convscope
