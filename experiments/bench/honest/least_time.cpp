// SPDX-License-Identifier: Apache-2.0
// least_time.cpp: detects measured times that are too short for the work.
#include "experiments/bench/honest/least_time.h"

#include <fmt/format.h>

#include <algorithm>

namespace convscope {
namespace {

constexpr double kSlack = 1.5;  // how much too low a measured peak may be
constexpr double kL1OverL2 = 4, kL1Bytes = 64 << 10;

}  // namespace

std::string impossible_time(const CpuPeaks& peaks, double seconds, double flops, double bytes,
                            int threads, DType operand_type) {
  if (!(seconds > 0)) return "its time is 0";
  const int used = std::min(threads, peaks.cores);
  const auto with = [&](const Peak& one) { return one.with(used, peaks.cores); };
  const double peak = with(peaks.peak(operand_type));
  if (peak > 0 && flops > kSlack * peak * seconds) {
    return fmt::format(
        "it states {:.4g} MFLOP executed; in {:.3g} ms that is {:.4g} GFLOP/s, but {:.4g} is the "
        "measured peak of {} thread{}",
        flops * 1e-6, seconds * 1e3, flops / seconds * 1e-9, peak * 1e-9, used,
        used == 1 ? "" : "s");
  }
  double fastest = 0;
  for (const Peak* one : {&peaks.l2_read, &peaks.l3_read, &peaks.dram_read, &peaks.l2_copy,
                          &peaks.l3_copy, &peaks.dram_copy}) {
    fastest = std::max(fastest, with(*one));
  }
  if (bytes <= kL1Bytes * used) fastest *= kL1OverL2;
  if (fastest > 0 && bytes > kSlack * fastest * seconds) {
    return fmt::format(
        "reading the inputs once and writing the output once in {:.3g} ms needs {:.4g} GB/s, but "
        "{:.4g} is the most that a cache delivers",
        seconds * 1e3, bytes / seconds * 1e-9, fastest * 1e-9);
  }
  return "";
}

double least_bytes_of(const Conv2dProblem& problem) {
  const auto bytes = [](const Shape& shape, DType type) {
    return static_cast<double>(shape.numel()) * static_cast<double>(size_of(type));
  };
  const OperandTypes types = problem.operand_types();
  const double taps = problem.dilation_h == 1 ? static_cast<double>(problem.r) : 1;
  const double rows = std::min(1.0, taps / static_cast<double>(problem.stride_h));
  const double w = bytes(problem.w_shape(), types.w);
  // Least bytes: an algorithm need not read pruned weights, or rows of x that no kernel reaches.
  const bool dense = problem.weight_format.is_dense() && problem.r <= problem.h;
  return bytes(problem.y_shape(), types.y) +
         (dense ? w + rows * bytes(problem.x_shape(), types.x) : 0);
}

}  // namespace convscope
