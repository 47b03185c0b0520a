// SPDX-License-Identifier: Apache-2.0
// place.cuh: where a tap reads x, for CUDA kernels: the definition of problem.h in f32, line by
// line as in place.h. Half-precision offsets become f32 before they are added, so all types sample
// at the positions of the definition.
#pragma once

#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/deform_conv2d/algorithm.h"

namespace convscope::deform {

using Index = std::int64_t;

// The sizes as kernels read them. Rows, columns, taps and planes have fewer than 2^31 elements
// (fits_kernels()); a whole tensor may have more.
struct DeviceSizes {
  explicit DeviceSizes(const DeformConv2dProblem& z)
      : n(z.n),
        c(int(z.c)),
        k(int(z.k)),
        h(int(z.h)),
        w(int(z.w)),
        s(int(z.s)),
        q(int(z.q())),
        stride_h(int(z.stride_h)),
        stride_w(int(z.stride_w)),
        pad_top(int(z.pad_top)),
        pad_left(int(z.pad_left)),
        dilation_h(int(z.dilation_h)),
        dilation_w(int(z.dilation_w)),
        groups(int(z.groups)),
        offset_groups(int(z.offset_groups)),
        taps(int(z.taps())),
        plane(int(z.h * z.w)),
        pixels(int(z.p() * z.q())) {}

  __host__ __device__ int c_group() const { return c / groups; }
  __host__ __device__ int k_group() const { return k / groups; }
  __host__ __device__ int c_offset() const { return c / offset_groups; }

  Index n;
  int c, k, h, w, s, q;
  int stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int groups, offset_groups;
  int taps, plane, pixels;  // R S, H W, P Q
};

inline Support fits_kernels(const DeformConv2dProblem& z) {
  constexpr Index kMax = (Index{1} << 30) - 1;
  const bool fits = (z.h + 1) * (z.w + 1) <= kMax && z.taps() * z.p() * z.q() <= kMax &&
                    z.c * z.taps() <= kMax && z.w_shape().numel() <= kMax && z.pad_top <= kMax &&
                    z.pad_left <= kMax;
  if (fits) return {};
  return Support::no(cat("expects fewer than 2^30 weights, and taps of a plane, got ", z.text()));
}

// The sampling position of a tap, with its four corners and their weights: 0 1
//                                                      2 3
class DevicePlace {
 public:
  // The tap at row r and column s of the kernel, for output pixel (p,q).
  __device__ DevicePlace(const DeviceSizes& z, int r, int s, int p, int q, float offset_v,
                         float offset_u)
      : height_(z.h), width_(z.w) {
    const Index base_v = Index{p} * z.stride_h - z.pad_top + Index{r} * z.dilation_h;
    const Index base_u = Index{q} * z.stride_w - z.pad_left + Index{s} * z.dilation_w;
    const float v = static_cast<float>(base_v) + offset_v;
    const float u = static_cast<float>(base_u) + offset_u;
    // A NaN position counts as inside, because comparisons with NaN are false. Its sample is NaN.
    inside_ =
        !(v <= -1.0f || v >= static_cast<float>(z.h) || u <= -1.0f || u >= static_cast<float>(z.w));
    if (!inside_) return;  // infinite places included, which have no integer
    const float top = floorf(v), left = floorf(u);
    down_ = v - top;
    right_ = u - left;
    h_ = top == top ? static_cast<int>(top) : 0;  // NaN weights, at pixels that exist
    w_ = left == left ? static_cast<int>(left) : 0;
  }

  __device__ bool inside() const { return inside_; }
  // Returns the row of the pixel at corner 0, which may be one row above the image. column()
  // returns the column of this pixel, which may be one column to the left of the image.
  __device__ int row() const { return h_; }
  __device__ int column() const { return w_; }
  __device__ bool has(int corner) const {
    const int row = h_ + corner / 2, column = w_ + corner % 2;
    return inside_ && row >= 0 && row < height_ && column >= 0 && column < width_;
  }
  __device__ int pixel(int corner) const {  // in a plane of x
    return (h_ + corner / 2) * width_ + w_ + corner % 2;
  }
  __device__ float weight(int corner) const { return along_v(corner) * along_u(corner); }
  // Derivatives of the weight by v and by u.
  __device__ float weight_by_v(int corner) const {
    return corner / 2 == 1 ? along_u(corner) : -along_u(corner);
  }
  __device__ float weight_by_u(int corner) const {
    return corner % 2 == 1 ? along_v(corner) : -along_v(corner);
  }

 private:
  __device__ float along_v(int corner) const { return corner / 2 == 1 ? down_ : 1 - down_; }
  __device__ float along_u(int corner) const { return corner % 2 == 1 ? right_ : 1 - right_; }

  int height_, width_, h_ = 0, w_ = 0;
  float down_ = 0, right_ = 0;
  bool inside_;
};

// The sampling position (place) and the mask of tap t of offset group o, for pixel i < P Q of image
// n.
template <class T>
struct DeviceTap {
  __device__ DeviceTap(const DeviceSizes& z, const T* offset, const T* mask, Index n, int o, int t,
                       int i)
      : at(((n * z.offset_groups + o) * z.taps + t) * z.pixels + i),
        v_at(2 * (at - i) + i),
        u_at(v_at + z.pixels),
        factor(mask == nullptr ? 1.0f : to_float(mask[at])),
        place(z, t / z.s, t % z.s, i / z.q, i % z.q, to_float(offset[v_at]),
              to_float(offset[u_at])) {}

  // Returns mask * (the value of this plane of x at the place).
  __device__ float sample(const T* plane) const {
    float sum = 0;
#pragma unroll
    for (int corner = 0; corner < 4; ++corner) {
      if (place.has(corner)) {
        sum += place.weight(corner) * to_float(plane[place.pixel(corner)]);
      }
    }
    return factor * sum;
  }

  Index at;          // in mask
  Index v_at, u_at;  // in offset
  float factor;      // mask, or 1
  DevicePlace place;
};

}  // namespace convscope::deform
