// SPDX-License-Identifier: Apache-2.0
// synthetic_digits.h: digits drawn by the program: a data set without files.
//
// The set is not MNIST, and must not be compared with it. It draws the pen strokes of
// digit_strokes.cpp, distorted by an affine and an elastic map, with a soft pen of random width,
// and adds noise. Sample i of a part is a pure function of (seed, part, i, image size, warp): the
// same bytes on any machine, with any number of threads.
// The elastic distortion follows P. Simard, D. Steinkraus, J. Platt: Best Practices for
// Convolutional Neural Networks Applied to Visual Document Analysis, ICDAR 2003. Here the
// distortion is a sum of a few waves, and moves the strokes, not the pixels.
#pragma once

#include <cstdint>

#include "datasets/dataset.h"

namespace convscope {

struct SyntheticDigitsOptions {
  std::int64_t train_size = 6000;
  std::int64_t test_size = 2000;
  std::uint64_t seed = 1;
  std::int64_t image_size = 28;  // pixels
  // Strength of an additional distortion, 0 to 1; 0: digits look like handwriting. With 1, each
  // digit is rotated by up to 60 degrees in either direction, shrunk to at least half its size, and
  // slanted by up to 0.5 to either side. Limits are proportional to `warp`.
  double warp = 0;
};

// Returns the options of the data set, as in a config.
CONVSCOPE_API std::vector<OptionField> synthetic_digits_fields();

CONVSCOPE_API DatasetSplits synthetic_digits(const SyntheticDigitsOptions& options);

}  // namespace convscope
