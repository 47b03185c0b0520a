// SPDX-License-Identifier: Apache-2.0
// wrong_positions.cpp: describes the positions of the wrong elements of a result.
#include "experiments/check/wrong_positions.h"

#include <algorithm>
#include <array>
#include <set>

#include "experiments/check/diagnosis.h"

namespace convscope {
namespace {

struct Axis {
  const char* name;
  std::int64_t size;
};

std::array<Axis, 4> axes_of(const Conv2dProblem& z, Direction direction) {
  if (direction == Direction::forward) {
    return {Axis{"n", z.n}, Axis{"k", z.k}, Axis{"p", z.p()}, Axis{"q", z.q()}};
  }
  if (direction == Direction::backward_data) {
    return {Axis{"n", z.n}, Axis{"c", z.c}, Axis{"h", z.h}, Axis{"w", z.w}};
  }
  return {Axis{"k", z.k}, Axis{"c", z.c_per_group()}, Axis{"r", z.r}, Axis{"s", z.s}};
}

std::array<std::int64_t, 4> indices_of(const std::array<Axis, 4>& axes, std::size_t at) {
  std::array<std::int64_t, 4> out{};
  auto left = static_cast<std::int64_t>(at);
  for (std::size_t i = 4; i-- > 0;) {
    out[i] = left % axes[i].size;
    left /= axes[i].size;
  }
  return out;
}

// Describes the indices of one axis: "q = 5 (the last)"; "" for all indices or no pattern.
std::string habit_of(const Axis& axis, const std::set<std::int64_t>& seen) {
  if (axis.size < 2 || static_cast<std::int64_t>(seen.size()) == axis.size) return "";
  const std::int64_t least = *seen.begin(), most = *seen.rbegin();
  if (least == most) {
    const char* const which = least == 0               ? " (the first)"
                              : least == axis.size - 1 ? " (the last)"
                                                       : "";
    return cat(axis.name, " = ", least, which);
  }
  const bool dense = most - least + 1 == static_cast<std::int64_t>(seen.size());
  if (dense && most == axis.size - 1) return cat(axis.name, " >= ", least, " of ", axis.size);
  if (dense) return cat(axis.name, " from ", least, " to ", most, " of ", axis.size);
  if (seen.size() == 2 && least == 0 && most == axis.size - 1) {
    return cat(axis.name, " = 0 or ", most, " (both ends)");
  }
  for (const std::int64_t part : {0, 1}) {
    if (std::ranges::all_of(seen, [&](std::int64_t i) { return i % 2 == part; })) {
      return cat(part == 0 ? "even " : "odd ", axis.name);
    }
  }
  return "";
}

// Returns whether the kernel reaches into the padding at a pixel of y.
bool at_border(const Conv2dProblem& z, std::int64_t p, std::int64_t q) {
  const std::int64_t top = p * z.stride_h - z.pad_top, left = q * z.stride_w - z.pad_left;
  return top < 0 || left < 0 || top + (z.r - 1) * z.dilation_h >= z.h ||
         left + (z.s - 1) * z.dilation_w >= z.w;
}

}  // namespace

std::string place_text(const Conv2dProblem& problem, Direction direction, std::size_t at) {
  const auto axes = axes_of(problem, direction);
  const auto indices = indices_of(axes, at);
  std::string names, numbers;
  for (std::size_t i = 0; i < 4; ++i) {
    names += cat(i == 0 ? "" : ",", axes[i].name);
    numbers += cat(i == 0 ? "" : ",", indices[i]);
  }
  return cat("[", names, "] = [", numbers, "]");
}

std::string positions_text(const Conv2dProblem& problem, Direction direction,
                           const std::vector<bool>& wrong) {
  const auto axes = axes_of(problem, direction);
  std::array<std::set<std::int64_t>, 4> seen;
  std::size_t count = 0;
  bool border_alone = direction == Direction::forward, border_all = true;
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    const auto indices = indices_of(axes, i);
    const bool border = border_alone && at_border(problem, indices[2], indices[3]);
    if (!wrong[i]) {
      border_all = border_all && !border;
      continue;
    }
    border_alone = border_alone && border;
    ++count;
    for (std::size_t axis = 0; axis < 4; ++axis) seen[axis].insert(indices[axis]);
  }
  std::string out = count == wrong.size() ? cat("all ", count, " elements")
                                          : cat(count, " of ", wrong.size(), " elements");
  std::vector<std::string> habits;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const std::string habit = habit_of(axes[axis], seen[axis]);
    if (!habit.empty()) habits.push_back(habit);
  }
  if (!habits.empty()) return cat(out, ", all with ", join(habits, " and "));
  if (border_alone && count > 0 && count < wrong.size()) {
    return cat(out, ", ", border_all ? "just those" : "all",
               " where the kernel reaches into the padding");
  }
  return out;
}

}  // namespace convscope
