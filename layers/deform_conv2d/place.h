// SPDX-License-Identifier: Apache-2.0
// place.h: where one tap of one output pixel reads x, and with which weights, as problem.h defines.
// The SIMD and CUDA versions compute the same expressions. "Place" means a sampling position (v,u).
//
//   (h,w)     o-------o (h,w+1)       the place is (v,u) = (h + down, w + right);
//             |  down |               corners 0 1 / 2 3 weigh (1-down)(1-right), (1-down) right,
//             |   x   |               down (1-right), down right
//   (h+1,w)   o-------o (h+1,w+1)
#pragma once

#include <cmath>

#include "layers/deform_conv2d/problem.h"

namespace convscope {

// v and u are rounded to T, f32 or f64. The rest is computed in double.
template <class T>
class DeformPlace {
 public:
  DeformPlace(std::int64_t base_v, std::int64_t base_u, T offset_v, T offset_u, std::int64_t height,
              std::int64_t width)
      : width_(width) {
    const T v = static_cast<T>(base_v) + offset_v, u = static_cast<T>(base_u) + offset_u;
    // A NaN position counts as inside, because comparisons with NaN are false. Its sample is NaN.
    if (v <= T(-1) || v >= static_cast<T>(height) || u <= T(-1) || u >= static_cast<T>(width)) {
      return;
    }
    const T h = std::floor(v), w = std::floor(u);
    down_ = static_cast<double>(v - h);
    right_ = static_cast<double>(u - w);
    h_ = std::isnan(h) ? 0 : static_cast<std::int64_t>(h);  // NaN weights, at pixels that exist
    w_ = std::isnan(w) ? 0 : static_cast<std::int64_t>(w);
    for (int i = 0; i < 4; ++i) {
      const std::int64_t row = h_ + i / 2, column = w_ + i % 2;
      has_[i] = row >= 0 && row < height && column >= 0 && column < width;
    }
  }

  bool has(int corner) const { return has_[corner]; }
  std::int64_t pixel(int corner) const { return (h_ + corner / 2) * width_ + w_ + corner % 2; }
  double weight(int corner) const {
    return (corner / 2 == 1 ? down_ : 1 - down_) * (corner % 2 == 1 ? right_ : 1 - right_);
  }
  // Returns the derivative of the corner's weight with respect to v.
  double weight_by_v(int corner) const {
    return (corner / 2 == 1 ? 1 : -1) * (corner % 2 == 1 ? right_ : 1 - right_);
  }
  double weight_by_u(int corner) const {
    return (corner / 2 == 1 ? down_ : 1 - down_) * (corner % 2 == 1 ? 1 : -1);
  }

 private:
  std::int64_t width_, h_ = 0, w_ = 0;
  double down_ = 0, right_ = 0;
  bool has_[4] = {};
};

// The place of tap (r,s) of offset group o for output pixel (p,q) of image n, and its mask.
template <class T>
struct DeformTap {
  DeformTap(const DeformConv2dProblem& z, const T* offset, const T* mask, std::int64_t n,
            std::int64_t o, std::int64_t r, std::int64_t s, std::int64_t p, std::int64_t q)
      : at(index(z, n, o, r, s) * z.p() * z.q() + p * z.q() + q),
        v_at((2 * index(z, n, o, r, s) * z.p() + p) * z.q() + q),
        u_at(v_at + z.p() * z.q()),
        factor(mask == nullptr ? 1.0 : static_cast<double>(mask[at])),
        place(p * z.stride_h - z.pad_top + r * z.dilation_h,
              q * z.stride_w - z.pad_left + s * z.dilation_w, offset[v_at], offset[u_at], z.h,
              z.w) {}

  std::int64_t at;          // in mask
  std::int64_t v_at, u_at;  // in offset
  double factor;            // mask, or 1
  DeformPlace<T> place;

 private:
  static std::int64_t index(const DeformConv2dProblem& z, std::int64_t n, std::int64_t o,
                            std::int64_t r, std::int64_t s) {
    return (n * z.offset_groups + o) * z.taps() + r * z.s + s;
  }
};

}  // namespace convscope
