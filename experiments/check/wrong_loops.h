// SPDX-License-Identifier: Apache-2.0
// wrong_loops.h: the textbook loops of a convolution, into which a known mistake can be put. If the
// result of an algorithm agrees with these loops, the algorithm probably makes the same mistake.
//
//   y[n,k,p,q] += w[k,c,r,s] x[n, from, p stride_h - pad_top + r dilation_h, ...]
//
// All three directions are sums of the same products, so a mistake has to be described only once.
#pragma once

#include <cstdint>
#include <vector>

#include "experiments/check/matrix/convolution_case.h"

namespace convscope {

struct Loops {
  using Index = std::int64_t;
  struct Range {
    Index begin, end;
    bool has(Index i) const { return i >= begin && i < end; }
    bool operator==(const Range&) const = default;
  };
  // Pixels outside x that a wrong border test accepts:
  enum class Outside {
    zero,     // count as 0
    memory,   // are read at the computed address: a neighbouring row
    nearest,  // are replaced by the nearest border
  };
  enum class Channels {
    own_group,    // channel g C/G + c, g = k / (K/G): correct
    first_group,  // c
    interleaved,  // g = k mod G
    by_inputs,    // g = k / (C/G)
    all,          // each kernel sums over all C, and reads w past its end
  };
  enum class Order { nchw, nhwc };
  enum class Start { right, left_out, twice, first_bias };

  CONVSCOPE_API explicit Loops(const Conv2dProblem& problem);

  Conv2dProblem z;  // the sizes of the arrays, which no mistake changes
  Index stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  Range n, k, p, q, c, r, s;  // the indices that the loops visit
  Range h, w;                 // the rows and columns that the border test accepts
  Outside outside = Outside::zero;
  Channels channels = Channels::own_group;
  bool flip_r = false, flip_s = false;  // w[k,c,R-1-r,S-1-s]
  bool swap_axes = false;               // w[k,c,s,r]
  bool swap_channels = false;           // w[c,k,r,s]
  Order x_order = Order::nchw, y_order = Order::nchw, w_order = Order::nchw;
  bool first_image = false;    // x[0] for every n
  Start start = Start::right;  // the initial value of a sum: bias (forward), old value (gradients)
  double factor = 1;           // of each product

  bool operator==(const Loops&) const = default;
};

// Returns the result of the loops for the inputs of a case.
CONVSCOPE_API std::vector<double> sums_of(const Loops& loops,
                                          const matrix::ConvolutionCase& numbers,
                                          Direction direction, bool extra);

// One mistake, with the texts of a diagnosis.
struct KnownMistake {
  const char* agrees;  // "a convolution whose dilation is 1"
  const char* cause;   // "the dilation seems to be ignored"
  void (*plant)(Loops&);
  const char* agrees_of_dw = nullptr;  // if different for backward_weight
  const char* cause_of_dw = nullptr;
};
// Returns the mistakes, the likeliest first.
CONVSCOPE_API const std::vector<KnownMistake>& known_mistakes();

}  // namespace convscope
