// SPDX-License-Identifier: Apache-2.0
// channel_moments.cuh: mean and variance of each channel. Kernels that write NHWC images collect
// partial statistics; a later kernel adds these in a fixed order.
//
// Parts     The result is an f32 array [part][4][lanes], with one lane per channel. A part is a set
//           of pixels. For each part and channel, the array holds
//             0  the number of elements, at most 2^24
//             1  a shift, close to the elements
//             2  the sum of (element - shift)
//             3  the sum of (element - shift)^2
//           A kernel that merges sets stores the merged mean as the shift, so entry 2 is 0.
// Merging   Two sets have counts m and n, means a and b, and sums of squared deviations A and B:
//             mean = a + (b - a) n / (m + n),   squares = A + B + (b - a)^2 m n / (m + n)
//           Only b - a subtracts numbers that an offset of the data makes large.
// Numerics  Let u = 2^-24, M the largest magnitude of an element, and L the number of merges that
//           lead from an element to the sums of its part. A mean has an error e <= (L + 2) u M. The
//           sum of n squares about such a mean is too large by n e^2, and each merge uses the
//           difference of two such means. So the error of a part's sum of squares S is at most
//           (2 L + 4) u S + 4 e sqrt(n S) + n e^2. So for data with an offset of k standard
//           deviations, the relative error of the standard deviation is about 2 (L + 2) k u; with
//           sums of plain squares it is k^2 u. The parts are added in double, about the shift of
//           the first part.
// Paper     T. F. Chan, G. H. Golub, R. J. LeVeque: Updating Formulae and a Pairwise Algorithm for
//           Computing Sample Variances, COMPSTAT 1982
// Read next channel_sums.cuh
#pragma once

#include "framework/cuda/channel_sums.cuh"

namespace convscope {

inline constexpr int kMomentSums = 4;

// Weights for merging two sets with means a and b. The new mean is a + mean (b - a), and (b - a)^2
// enters the new sum of squares with the factor `squares`.
struct MomentShares {
  float mean, squares;
};
// Returns the weights for merging a set of `coming` elements into a set of `own` elements, and sets
// `own` to the total count. The approximate quotient may be off by two units in the last place: the
// quotient scales a difference of means, so an offset of the data does not increase the error.
__device__ inline MomentShares shares_of(float& own, float coming) {
  const float both = own + coming;
#if defined(CONVSCOPE_CUDA_EMULATED)
  const float part = both > 0 ? coming / both : 0.0f;
#else
  const float part = both > 0 ? __fdividef(coming, both) : 0.0f;
#endif
  const MomentShares out{part, own * part};
  own = both;
  return out;
}
__device__ inline void merge_moments(float& mean, float& squares, float coming_mean,
                                     float coming_squares, const MomentShares& shares) {
  const float difference = coming_mean - mean;
  mean = ::fmaf(difference, shares.mean, mean);
  squares = ::fmaf(difference * difference, shares.squares, squares + coming_squares);
}

// Adds all parts of this thread's channel. Returns s, the shift of the first part. sums[0] is the
// sum of (element - s), and sums[1] is the sum of (element - s)^2. Kernels that call this function
// are launched with walk.finish_shape(). All threads call it; only threads with is_finisher() get
// the sums.
template <int kLanes>
__device__ inline float add_moment_parts(const float* part, int parts,
                                         const PieceWalk<kLanes>& walk, double (&sums)[2]) {
  using Walk = PieceWalk<kLanes>;
  constexpr int kRows = kThreads / Walk::kFinishers;
  __shared__ double scratch[kRows][2][Walk::kFinishers];
  const int row = static_cast<int>(threadIdx.x) / Walk::kFinishers;
  const int own_channel = static_cast<int>(threadIdx.x) % Walk::kFinishers;
  const int lanes = walk.lanes();
  double sum = 0, squares = 0;
  float first = 0;
  if (walk.channel() < lanes) {
    const float* const own = part + walk.channel();
    first = own[lanes];
#pragma unroll 4
    for (int p = row; p < parts; p += kRows) {
      const float* const from = own + static_cast<std::int64_t>(p) * kMomentSums * lanes;
      const auto count = static_cast<double>(from[0]);
      const double off = static_cast<double>(from[lanes]) - static_cast<double>(first);
      const auto differences = static_cast<double>(from[2 * lanes]);
      sum += count * off + differences;
      squares += (count * off + 2 * differences) * off + static_cast<double>(from[3 * lanes]);
    }
  }
  scratch[row][0][own_channel] = sum;
  scratch[row][1][own_channel] = squares;
  __syncthreads();
  if (!Walk::is_finisher()) return first;
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    sums[s] = 0;
    for (int r = 0; r < kRows; ++r) sums[s] += scratch[r][s][own_channel];
  }
  return first;
}

}  // namespace convscope
