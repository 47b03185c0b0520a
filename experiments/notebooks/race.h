// SPDX-License-Identifier: Apache-2.0
// race.h: compares the results and the time of a reader's convolution with those of the algorithms.
//
//   Tensor mine(const Conv2dProblem& z, const Tensor& x, const Tensor& w) { ...; return y; }
//   check_conv2d("mine", mine, {"n=1,c=2,h=5,w=6,k=3,r=3,s=3,pad=1"});
//   race("n=1,c=16,h=28,w=28,k=16,r=3,s=3,pad=1", {{"mine", mine}}, {"direct_lesson", "direct"});
//
// With a direction argument, check_conv2d() compares a gradient: its functions then get the inputs
// of that direction.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "framework/tensor.h"
#include "layers/conv2d/problem.h"
#include "layers/dispatch/direction.h"

namespace convscope {

// A function of x [N,C,H,W] and w [K,C/G,R,S] that returns y [N,K,P,Q], all f32 on the CPU. A
// gradient function takes dy and w and returns dx, or takes x and dy and returns dw.
using Conv2dFunction =
    std::function<Tensor(const Conv2dProblem& z, const Tensor& first, const Tensor& second)>;

// Returns y, dx or dw by the named algorithm; throws an error when no such algorithm exists or it
// refuses the problem.
CONVSCOPE_API Tensor conv2d_by(const std::string& algorithm, const Conv2dProblem& problem,
                               const Tensor& first, const Tensor& second,
                               Direction direction = Direction::forward);

// Returns the largest |a - b|; throws an error when the shapes differ.
CONVSCOPE_API double largest_difference(const Tensor& a, const Tensor& b);

// Compares `own` with the algorithm `reference` on each problem, with normally distributed inputs,
// and prints one line. Throws an error unless |error| <= growth * eps * max(conv(|x|,|w|)). The
// factor `growth` is scaled up with the square root of the number of terms.
CONVSCOPE_API void check_conv2d(const std::string& name, const Conv2dFunction& own,
                                const std::vector<std::string>& problems, double growth = 8,
                                Direction direction = Direction::forward);

// Throws an error with the sentence unless the condition holds.
CONVSCOPE_API void expect(bool holds, const std::string& sentence);
// Runs the checks of an exercise. Prints "right", or "not yet" with the message of the failed
// check. Returns whether all checks passed. Never throws, so that a notebook runs to its end.
CONVSCOPE_API bool exercise(const std::string& name, const std::function<void()>& checks);

struct RaceOptions {
  int threads = 1;           // of the algorithms; own code starts its own threads
  double min_seconds = 0.1;  // counted time of each
  std::string title = {};
  Direction direction = Direction::forward;
};
struct RaceRow {
  std::string name = {};
  double median_ms = 0;
  double gflops = 0;          // nominal FLOPs / time
  double error_ratio = 0;     // error / allowed error
  std::string left_out = {};  // why it was not timed, or ""
};
// Checks the results of all entries. Times the correct entries alternately and shows their times as
// bars. Returns a row per entry in the order of the entries.
CONVSCOPE_API std::vector<RaceRow> race(
    const std::string& problem, const std::vector<std::pair<std::string, Conv2dFunction>>& own,
    const std::vector<std::string>& algorithms, const RaceOptions& options = {});

// Returns the median milliseconds of a call; runs it for about `min_seconds`.
CONVSCOPE_API double time_ms(const std::function<void()>& call, double min_seconds = 0.1);

}  // namespace convscope
