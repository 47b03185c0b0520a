// SPDX-License-Identifier: Apache-2.0
// calibrate.cpp: computes an initial step size from the values that will be rounded.
#include "quant/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "framework/parallel.h"

namespace convscope {
namespace {

constexpr int kCandidates = 100;

// The values that share a step; `low` is -Qn.
struct Row {
  const float* v;
  std::int64_t count;
  float low, high;
  bool skip_zeros;

  double magnitude(std::int64_t i) const {
    const double x = v[i];
    return low < 0 ? std::abs(x) : std::max(x, 0.0);
  }
  double largest() const {
    double out = 0;
    for (std::int64_t i = 0; i < count; ++i) out = std::max(out, magnitude(i));
    return out;
  }
  double mean() const {
    double sum = 0;
    std::int64_t counted = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      sum += magnitude(i);
      counted += skip_zeros && v[i] == 0 ? 0 : 1;
    }
    return sum / static_cast<double>(counted);
  }
  double error(double step) const {
    const auto s = static_cast<float>(step);
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double d = static_cast<double>(code_of(v[i], s, low, high) * s - v[i]);
      sum += d * d;
    }
    return sum;
  }
};

double least_error_step(const Row& row) {
  const double unit = row.largest() / (kCandidates * static_cast<double>(row.high));
  std::array<double, kCandidates> error{};
  parallel_chunks(kCandidates, [&](std::int64_t c, int) {
    error[static_cast<std::size_t>(c)] = row.error(unit * static_cast<double>(c + 1));
  });
  const auto best = std::min_element(error.begin(), error.end()) - error.begin();
  return unit * static_cast<double>(best + 1);
}

// Returns the value below which `percent` percent of all magnitudes are, interpolated between the
// two nearest magnitudes.
double percentile_of(const Row& row, double percent) {
  std::vector<double> sorted;
  sorted.reserve(static_cast<std::size_t>(row.count));
  for (std::int64_t i = 0; i < row.count; ++i) {
    if (!row.skip_zeros || row.v[i] != 0) sorted.push_back(row.magnitude(i));
  }
  std::sort(sorted.begin(), sorted.end());
  const double at = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

// Returns 0 if every value is 0 (on an unsigned grid: if no value is positive).
double step_of(const Row& row, StepRule rule, double percentile) {
  const double qp = static_cast<double>(row.high);
  if (row.largest() == 0) return 0;
  if (rule == StepRule::mean_abs) return 2 * row.mean() / std::sqrt(qp);
  if (rule == StepRule::mse) return least_error_step(row);
  const double top = rule == StepRule::percentile ? percentile_of(row, percentile) : row.largest();
  return (top > 0 ? top : row.largest()) / qp;
}

Row row_of(const Tensor& v, const IntegerGrid& grid, std::int64_t first, std::int64_t count,
           bool skip_zeros = false) {
  return {v.data<float>() + first, count, static_cast<float>(-grid.qn), static_cast<float>(grid.qp),
          skip_zeros};
}

}  // namespace

Tensor calibrated_step(const Tensor& given, const IntegerGrid& grid, StepRule rule, bool by_channel,
                       double percentile, bool skip_zeros) {
  CONVSCOPE_CHECK(given.defined() && given.dtype() == DType::f32 && given.numel() > 0, "quant",
                  "expected at least one f32 value to calibrate a step on, got ", given.str());
  CONVSCOPE_CHECK(percentile > 0 && percentile <= 100, "quant",
                  "expected a percentile above 0 and up to 100, got ", percentile);
  const Tensor v = given.to(Device{});
  for (std::int64_t i = 0; i < v.numel(); ++i) {
    if (std::isfinite(v.data<float>()[i])) continue;
    fail(ErrorKind::kRun, "quant",
         cat("expected finite values to calibrate a step on, got ",
             static_cast<double>(v.data<float>()[i]), " at index ", i, " of ", v.shape()));
  }
  const std::int64_t rows = by_channel ? v.dim(0) : 1;
  const std::int64_t inner = v.numel() / rows;
  const Tensor out = Tensor::empty({rows});
  float* const steps = out.data<float>();
  // The least step size is the smallest normal number. So v / s stays finite for subnormal v.
  constexpr double kLeast = 1.1754943508222875e-38;
  double largest = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const double s = step_of(row_of(v, grid, r * inner, inner, skip_zeros), rule, percentile);
    steps[r] = static_cast<float>(s == 0 ? 0 : std::max(s, kLeast));
    largest = std::max(largest, static_cast<double>(steps[r]));
  }
  if (largest == 0) largest = 1.0 / grid.qp;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (steps[r] == 0) steps[r] = static_cast<float>(largest);
  }
  return out.to(given.device());
}

double rounding_error(const Tensor& v, const IntegerGrid& grid, double s) {
  const Tensor here = v.to(Device{});
  return row_of(here, grid, 0, here.numel()).error(s);
}

}  // namespace convscope
