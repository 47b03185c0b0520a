// SPDX-License-Identifier: Apache-2.0
// synthetic_digits.h: digits drawn by the program: a data set that needs no files.
//
// Not MNIST, and not meant to be compared with it: pen strokes of digit_strokes.cpp, bent by an
// affine and an elastic distortion, drawn with a soft pen of random width, with noise. Sample i of
// a part is a pure function of (seed, part, i, image size, warp): same bytes on any machine, with
// any number of threads.
// Elastic distortion after P. Simard, D. Steinkraus, J. Platt: Best Practices for Convolutional
// Neural Networks Applied to Visual Document Analysis, ICDAR 2003; here it moves the strokes, not
// the pixels, by a sum of a few waves.
#pragma once

#include <cstdint>

#include "datasets/dataset.h"

namespace convscope {

struct SyntheticDigitsOptions {
  std::int64_t train_size = 6000;
  std::int64_t test_size = 2000;
  std::uint64_t seed = 1;
  std::int64_t image_size = 28;  // pixels
  // 0: as a hand writes. Up to 1, each digit is turned by up to 60 degrees either way, made smaller
  // down to half its size, and slanted by up to 0.5 to either side, each times this number.
  double warp = 0;
};

// The options of the data set, as a config gives them.
CONVSCOPE_API std::vector<OptionField> synthetic_digits_fields();

CONVSCOPE_API DatasetSplits synthetic_digits(const SyntheticDigitsOptions& options);

}  // namespace convscope
