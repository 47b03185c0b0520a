// SPDX-License-Identifier: Apache-2.0
// nchw16c_cuts_test.cpp: tests how `direct_nchw16c` cuts two computations into tiles: dw, and
// the forward pass of a first layer. The tiling depends on the sizes of the caches. The tests set
// small cache sizes, so that small problems use every kind of tiling.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "layers/conv2d/algorithm.h"
#include "tests/support/cases.h"
#include "tests/support/numbers.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

constexpr const char* kTexts[] = {
    "n=7,c=40,h=5,w=6,k=70",                                // several images in a chain
    "n=1,c=70,h=5,w=7,k=40",                                // one unit: dw is written by tiles
    "n=1,c=48,h=3,w=3,k=33",                                // lanes that are cut, in one unit
    "n=3,c=33,h=19,w=30,k=50",                              // strips of pixels
    "n=2,c=40,h=9,w=11,k=70,stride=2x3",                    // a strided kernel of one tap
    "n=2,c=20,h=3,w=4,k=20,pad=1",                          // pixels that read nothing of x
    "n=5,c=40,h=7,w=6,k=40,r=3,s=3,pad=1",                  // taps over several images
    "n=2,c=20,h=9,w=170,k=37,r=3,s=2,pad=1",                // rows longer than a chain
    "n=3,c=33,h=20,w=13,k=20,r=3,s=3,pad=2,stride=2",       // strips of rows
    "n=2,c=17,h=2,w=3,k=5,r=3,s=3,pad=9x0x0x8",             // taps that read nothing
    "n=2,c=96,h=6,w=7,k=64,r=3,s=3,pad=1,groups=2",         // groups of whole blocks
    "n=2,c=3,h=21,w=19,k=70,r=7,s=7,stride=2,pad=3",        // a first layer
    "n=1,c=5,h=12,w=33,k=20,r=3,s=5,stride=3,dilation=1x2"  // and its columns modulo 3
};

// Computes y and dw of each problem, once with x and y in NCHW16c, and once with only y in NCHW16c
// (as in the first layer of a network). Returns "" if the results are right with all instruction
// sets, and have the same bits with one and with three threads. Otherwise returns an error report.
std::string wrong_sums() {
  const testing::MachineScope scope;
  for (const char* text : kTexts) {
    const Conv2dProblem plain = Conv2dProblem::parse(text);
    for (const ImageLayouts layout : {ImageLayouts(ActivationLayout::nchw16c), kNchwToNchw16c}) {
      Conv2dProblem problem = plain;
      problem.layout = layout;
      testing::ConvolutionCase one(problem, testing::Tier::bounded);
      for (int i = 0; i < kIsaCount; ++i) {
        if (!supports_isa(static_cast<Isa>(i))) continue;
        set_isa(static_cast<Isa>(i));
        for (const Direction direction : {Direction::forward, Direction::backward_weight}) {
          std::vector<float> bits[2];
          for (const int threads : {1, 3}) {
            set_num_threads(threads);
            const std::string wrong =
                one.check(conv2d_algorithms(DeviceType::cpu).get("direct_nchw16c"), direction,
                          &bits[threads / 2]);
            if (!wrong.empty()) return wrong;
          }
          if (bits[0].empty() || bits[0].size() != bits[1].size() ||
              std::memcmp(bits[0].data(), bits[1].data(), bits[0].size() * sizeof(float)) != 0) {
            return problem.text() + ": other bits with other threads";
          }
        }
      }
    }
  }
  return "";
}

TEST(Nchw16cCuts, OfThisMachineSumAll) { EXPECT_EQ(wrong_sums(), ""); }

TEST(Nchw16cCuts, OfSmallCachesSumAll) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process reads the sizes again
  for (const char* sizes : {"1024,1024", "4096,16384", "16384,40000"}) {
    EXPECT_EXIT(
        {
          setenv("CONVSCOPE_CACHE_SIZES", sizes, 1);
          const std::string wrong = wrong_sums();
          std::fprintf(stderr, "%s\n", wrong.c_str());
          std::exit(wrong.empty() ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "")
        << sizes;
  }
}

}  // namespace
}  // namespace convscope
