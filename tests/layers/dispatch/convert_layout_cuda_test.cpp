// SPDX-License-Identifier: Apache-2.0
// convert_layout_cuda_test.cpp: tests conversions between NCHW and NCHW16c on `device cuda`: they
// assign or add the same numbers as on the CPU.
#include <bit>
#include <cmath>

#include "tests/layers/nchw16c_images.h"
#include "tests/support/cuda.h"

namespace convscope {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): as the other tests of blocks
using ConvertLayoutOnCuda = CudaTest;

// Compares two tensors bit by bit. NaN only has to match NaN, because on a GPU the sum of a NaN and
// any number is always the same NaN.
bool same_numbers(const Tensor& a, const Tensor& b) {
  bool same = a.shape() == b.shape();
  for (std::int64_t i = 0; same && i < a.numel(); ++i) {
    const float left = a.data<float>()[i], right = b.data<float>()[i];
    same = std::isnan(left) ? std::isnan(right)
                            : std::bit_cast<unsigned>(left) == std::bit_cast<unsigned>(right);
  }
  return same;
}

TEST_F(ConvertLayoutOnCuda, MovesAndAddsAsTheCpu) {
  for (const Shape& shape : {Shape{2, 3, 9, 11}, Shape{1, 16, 7, 7}, Shape{2, 17, 5, 3},
                             Shape{3, 40, 1, 1}, Shape{0, 17, 3, 3}, Shape{1, 33, 17, 13}}) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(cat(shape, accumulate ? " added" : ""));
      const Tensor x = images_of(Numbers::ties, shape);
      const Tensor other = images_of(Numbers::normal, shape, 2);
      const auto on = [&](Device device) {
        const Tensor stored = (accumulate ? nchw16c(other) : dirty_nchw16c(shape)).to(device);
        const Tensor back = (accumulate ? other : dirty(shape)).clone().to(device);
        convert_layout(x.to(device), shape, stored, accumulate);
        convert_layout(stored, shape, back, accumulate);
        return std::pair(stored.to(Device{}), back.to(Device{}));
      };
      const auto [want_stored, want_back] = on({});
      const auto [stored, back] = on(cuda());
      EXPECT_TRUE(same_numbers(stored, want_stored));
      EXPECT_TRUE(same_numbers(back, want_back));
      EXPECT_TRUE(has_clean_lanes(stored, shape, kNchw16c));
    }
  }
}

}  // namespace
}  // namespace convscope
