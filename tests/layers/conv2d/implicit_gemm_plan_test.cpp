// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_plan_test.cpp: tests the index arithmetic of implicit_gemm: every product of a
// convolution occurs exactly once.
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "layers/conv2d/shared/cuda/seen_pixels.h"

namespace convscope::implicit_gemm {
namespace {

struct Dimension {
  int input, kernel, stride, pad, dilation;
  int output() const { return (input + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1; }
};

std::vector<Dimension> dimensions() {
  std::vector<Dimension> out;
  for (const int input : {1, 2, 5, 8, 13}) {
    for (const int kernel : {1, 2, 3, 4, 7}) {
      for (const int stride : {1, 2, 3, 4, 6}) {
        for (const int pad : {0, 1, 3}) {
          for (const int dilation : {1, 2, 3, 4}) {
            const Dimension d{input, kernel, stride, pad, dilation};
            if (input + 2 * pad >= dilation * (kernel - 1) + 1) out.push_back(d);
          }
        }
      }
    }
  }
  return out;
}

using Products = std::multiset<std::tuple<int, int, int>>;  // input, kernel, output

Products all_products(const Dimension& d) {
  Products out;
  for (int p = 0; p < d.output(); ++p) {
    for (int r = 0; r < d.kernel; ++r) {
      const int h = p * d.stride - d.pad + r * d.dilation;
      if (h >= 0 && h < d.input) out.emplace(h, r, p);
    }
  }
  return out;
}

TEST(ImplicitGemmPlan, AForwardLineMeetsEveryProductOnce) {
  for (const Dimension& d : dimensions()) {
    const Line line = forward_line(d.input, d.output(), d.kernel, d.stride, d.pad, d.dilation);
    Products met;
    for (int i = 0; i < line.outputs; ++i) {
      for (int t = 0; t < line.taps; ++t) {
        if ((line.inside(i) >> t & 1u) != 0) {
          met.emplace(line.input(i, t), line.kernel(t), line.output(i));
        }
      }
    }
    EXPECT_EQ(met, all_products(d));
  }
}

TEST(ImplicitGemmPlan, ThePhasesOfBackwardDataMeetEveryProductOnceAndWriteEveryElement) {
  for (const Dimension& d : dimensions()) {
    Products met;
    std::multiset<int> written;
    int taps = 0;
    for (int phase = 0; phase < d.stride; ++phase) {
      const Line line =
          backward_line(phase, d.input, d.output(), d.kernel, d.stride, d.pad, d.dilation);
      taps += line.taps;
      for (int i = 0; i < line.outputs; ++i) {
        written.insert(line.output(i));
        for (int t = 0; t < line.taps; ++t) {
          if ((line.inside(i) >> t & 1u) != 0) {
            met.emplace(line.output(i), line.kernel(t), line.input(i, t));
          }
        }
      }
    }
    EXPECT_EQ(met, all_products(d));
    EXPECT_EQ(written.size(), static_cast<std::size_t>(d.input));
    EXPECT_EQ(std::set<int>(written.begin(), written.end()).size(), written.size());
    EXPECT_EQ(taps % d.kernel, 0) << "each tap of the kernel belongs to the same number of phases";
  }
}

TEST(ImplicitGemmPlan, ThePiecesOfTheDepthAreMetOnceAndInBlocksOfChannels) {
  for (const int taps_h : {1, 2, 5}) {
    for (const int taps_w : {1, 3}) {
      for (const int pieces : {1, 3, 7, 8, 9, 16, 21}) {
        std::set<std::tuple<int, int, int>> seen;
        for (int i = 0; i < taps_h * taps_w * pieces; ++i) {
          const Piece piece = piece_at(i, taps_h, taps_w, pieces);
          EXPECT_LT(piece.tap_h, taps_h);
          EXPECT_LT(piece.tap_w, taps_w);
          EXPECT_LT(piece.channel, pieces);
          EXPECT_TRUE(seen.emplace(piece.tap_h, piece.tap_w, piece.channel).second);
          if (pieces % kChannelPieces == 0) {  // half a step is 32 channels of one tap
            EXPECT_EQ(piece.channel % kChannelPieces, i % kChannelPieces);
          }
        }
      }
    }
  }
}

TEST(ImplicitGemmPlan, TheScaleBringsTheLargestMagnitudeBelowTheLargestHalf) {
  for (const float largest : {1.0f, 0.75f, 3e38f, 1e-20f, 65504.0f}) {
    const int e = scale_exponent(std::bit_cast<unsigned>(largest));
    const double scaled = std::ldexp(static_cast<double>(largest), e);
    EXPECT_GE(scaled, 8192.0);
    EXPECT_LT(scaled, 16384.0);
  }
  EXPECT_EQ(scale_exponent(0), 0);
  EXPECT_EQ(scale_exponent(std::bit_cast<unsigned>(1e-42f)), 126) << "still a power that f32 has";
}

TEST(ImplicitGemmPlan, PartsOfTheDepthCoverItWithoutGaps) {
  for (const int total : {0, 1, 7, 128, 100003}) {
    for (const int count : {1, 2, 7, 130}) {
      int next = 0;
      for (int i = 0; i < count; ++i) {
        EXPECT_EQ(part_begin(total, i, count), next);
        next = part_begin(total, i + 1, count);
      }
      EXPECT_EQ(next, total);
    }
  }
}

// On a line so long that its ends do not matter.
TEST(SeenPixels, AreThoseThatSomeTapStandsOn) {
  constexpr int kInput = 12 * 5000;
  for (const int kernel : {1, 2, 3, 7}) {
    for (const int stride : {1, 2, 3, 4, 6}) {
      for (const int dilation : {1, 2, 3, 4}) {
        const Dimension d{kInput, kernel, stride, 0, dilation};
        std::vector<bool> met(kInput);
        for (int p = 0; p < d.output(); ++p) {
          for (int r = 0; r < kernel; ++r) {
            met[static_cast<std::size_t>(p * stride + r * dilation)] = true;
          }
        }
        Conv2dProblem z;
        z.r = kernel;
        z.stride_h = stride;
        z.dilation_h = dilation;
        z.s = z.stride_w = z.dilation_w = 1;
        const auto count = static_cast<double>(std::count(met.begin(), met.end(), true));
        EXPECT_NEAR(seen_part_of_x(z), count / kInput, 1e-3)
            << kernel << " taps, stride " << stride << ", dilation " << dilation;
      }
    }
  }
}

}  // namespace
}  // namespace convscope::implicit_gemm
