// SPDX-License-Identifier: Apache-2.0
// fit.h: fits the coefficients of the cost model to measured times, and measures how well they
// predict other times.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "layers/dispatch/cost/device_table.h"

namespace convscope {

// One measured call.
struct CostSample {
  std::string isa, kernel;    // kernel_of(): "conv2d direct forward nchw16c"
  std::string algorithm;      // "direct"
  std::string question;       // the case in which `auto` chooses: operator, problem, direction, ...
  bool held_out = false;      // not fitted: its error is reported
  bool may_be_chosen = true;  // by auto
  double seconds = 0;
  double weight = 1;        // of its error in the fit; fit_table() sets it
  Coefficients terms = {};  // seconds_per_coefficient()

  DeviceType device() const { return isa == "cuda" ? DeviceType::cuda : DeviceType::cpu; }
};

// Returns coefficients c >= 0 that minimise the sum of weight log(terms c / seconds)^2 over the
// rows, where an error above `kOutlier` counts only linearly. Terms that are 0 in all rows get 0.
// Gauss-Newton steps; each is a non-negative least-squares problem, solved by coordinate descent on
// the normal equations. A pull towards `prior`, as strong as `rows_of_prior` rows, decides where
// the rows do not.
CONVSCOPE_API Coefficients fit_coefficients(const std::vector<const CostSample*>& rows,
                                            const Coefficients& prior, double rows_of_prior = 0);
inline constexpr double kOutlier = 0.3;

// Fits the samples that are not held out: first all schedules of an algorithm in one direction
// together, then each schedule, with the first fit as its prior. The weight of a row is the root of
// (time of the fastest algorithm for the question / its own time). A schedule that was never timed
// so has the coefficients of its algorithm. Algorithms with fewer than kLeastRows rows are left
// out.
CONVSCOPE_API std::map<std::string, CoefficientsByKernel> fit_table(
    std::vector<CostSample> samples);
inline constexpr std::size_t kLeastRows = 6;

CONVSCOPE_API double predicted_seconds(const CostSample& sample, const Coefficients& coefficients);

// The errors of a table on the samples that were held out. An error of 0.1 means 10 %.
struct FitReport {
  std::size_t rows = 0, questions = 0;
  double median_error = 0,
         high_error = 0;  // quantiles 50 % and 90 % of |log(predicted / measured)|
  // Questions in which at least two algorithms were timed: the share in which the algorithm with
  // the least prediction takes at most 1.1 times as long as the fastest, and the largest ratio.
  double within_10_percent = 0, worst = 0;
  std::string worst_question, worst_choice, worst_fastest;
};
CONVSCOPE_API FitReport report_of(const std::vector<CostSample>& samples,
                                  const std::map<std::string, CoefficientsByKernel>& table);

// Writes and reads a file of samples: one JSON object in each line, after a line with the format.
CONVSCOPE_API std::string samples_text(const std::vector<CostSample>& samples);
CONVSCOPE_API std::vector<CostSample> parse_samples(const std::string& text,
                                                    const std::string& name);

}  // namespace convscope
