// SPDX-License-Identifier: Apache-2.0
// digit_strokes.h: the ten digits as pen strokes, several styles each, in a unit square (x to the
// right, y down). synthetic_digits.cpp distorts and draws them.
#pragma once

#include <vector>

namespace convscope {

struct StrokePoint {
  double x = 0, y = 0;
};

struct PenStroke {
  enum class Form { corners, curve, loop };  // lines; a smooth curve; a closed curve
  Form form = Form::corners;
  std::vector<StrokePoint> points;
};

using DigitStyle = std::vector<PenStroke>;

// Returns the styles of a digit, 0..9.
const std::vector<DigitStyle>& digit_styles(int digit);

}  // namespace convscope
