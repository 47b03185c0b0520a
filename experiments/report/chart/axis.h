// SPDX-License-Identifier: Apache-2.0
// axis.h: converts values to pixels, with ticks at round numbers.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct AxisSpec {
  std::string label = {};  // with its unit: "loss (nats)"
  bool log = false;        // only if all values are above 0; otherwise the axis is linear
  bool from_zero = false;
  bool whole_numbers = false;  // for epochs: no ticks between them
  // The smallest span of the axis, so that noise does not fill the panel. The span of a linear axis
  // is the difference of its ends; the span of a logarithmic axis is their quotient.
  double least_span = 0, least_ratio = 1;
  std::vector<double> include = {};  // further values to show, for panels with the same axes
  // Limits of the axis, whatever the data are (for percent: 0 and 100).
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
};

// The smallest and the largest of the finite values added so far.
struct CONVSCOPE_API Extent {
  double low = 0, high = 0;
  bool any = false;
  void add(double value);
};

// Returns about `wanted` multiples of 1, 2 or 5 times a power of ten, the first at or below `low`,
// the last at or above `high`.
CONVSCOPE_API std::vector<double> nice_ticks(double low, double high, int wanted,
                                             bool whole_numbers = false);
// Returns ticks of a logarithmic axis; 0 < low <= high.
CONVSCOPE_API std::vector<double> log_ticks(double low, double high, int wanted);
// Returns texts with equal numbers of decimals, as many as the closest two ticks need: "0.5",
// "1.0"; "10k"; "1e-5" on wide axes.
CONVSCOPE_API std::vector<std::string> tick_texts(const std::vector<double>& ticks, bool log);

class CONVSCOPE_API Axis {
 public:
  Axis(const AxisSpec& spec, Extent extent, int wanted_ticks, double from_pixel, double to_pixel);

  // Returns the pixel of a value. A value beyond an end of the axis gets the pixel of that end.
  double pixel(double value) const;
  bool can_show(double value) const;  // finite, and above 0 on a logarithmic axis
  bool log() const { return log_; }
  double low() const { return low_; }
  double high() const { return high_; }
  const std::vector<double>& ticks() const { return ticks_; }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  double scaled(double value) const;
  bool log_;
  double from_, to_, low_ = 0, high_ = 1;
  std::vector<double> ticks_;
  std::vector<std::string> texts_;
};

}  // namespace convscope
