// SPDX-License-Identifier: Apache-2.0
// deform_fused_lesson_cuda.cu: deformable convolution on a GPU with a thread for each element of
// the result. The thread looks up where the taps read, samples there, and multiplies at once.
//
// Formula    y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                w[k,c,r,s] mask[n,j,p,q] sample(x[n, g C/G + c], v, u)   (problem.h)
// Textbook   for each n, k, p, q:                                   # a thread
//              for each channel c and tap t:
//                place = (p,q) + t + offset[t]                      # four corners, four weights
//                y += w[k,c,t] * mask[t] * (sum over the corners of weight * x)
// Method     Neighbouring threads of a warp have neighbouring pixels, so their sampling positions
//            (places) are near each other and the caches serve most reads. The K/G outputs of a
//            pixel and group are sums over the same column, each in a separate thread: im2col
//            stores the column, this file computes it K/G times.
//              doffset, dmask   a thread for each tap of each pixel, all channels of its group
//              dx               a thread for each element adds up the taps that read its pixel. The
//                               lists of pixel_readers.cuh say which taps these are, image by image
//              dw               a warp for each weight: every 32nd pixel of all images
// Shapes     x [N,C,H,W], w [K,C/G,R,S], offset [N,2 O R S,P,Q], mask [N,O R S,P,Q], y [N,K,P,Q],
//            row-major, f32, f16 or bf16; places and sums in f32
// Supports   f32 (tf32 is computed as f32), f16, bf16 in [N,C,H,W]; every stride, dilation,
//            padding, number of groups and of offset groups; planes below 2^30; for dw sums of up
//            to 2^20 products
// Cost       FLOPs = 2 N K P Q (C/G) R S, and about 30 for the sample of each product; dx: four
//            times the FLOPs, because a column's gradient is computed again for each corner;
//            workspace = the lists of one image; bound by the arithmetic of places and by loads
//            from the caches
// Numerics   sums in f32, one term after the other; same bits on each run. A scatter to dx, which
//            adds a column's gradient to its four corners by atomicAdd, would sum in a random
//            order: other bits on each run.
// Backward   The column's gradient is g = sum over k of w[k] dy[k]. With a_i = sum over c of
//            g x[corner i]: dmask = sum of weight_i a_i; the gradients of v and u are the same sum
//            with the derivatives of the weights. dx, doffset, dmask assigned, each only if asked
//            for; dw assigned or added to.
// Choices    none
// Source     J. Dai et al. 2017: Deformable Convolutional Networks, arXiv 1703.06211; X. Zhu et al.
//            2019: Deformable ConvNets v2, arXiv 1811.11168
// Read next  layers/deform_conv2d/place.cuh, the corners; deform_fused_lesson_cpu.cpp, without
//            threads; deform_im2col_gemm_cuda.cu, each sample computed once
#include "layers/deform_conv2d/algorithm.h"
#include "layers/deform_conv2d/pixel_readers.cuh"
#include "layers/deform_conv2d/place.cuh"

namespace convscope {
namespace {

using deform::DeviceSizes;
using deform::DeviceTap;
using deform::Index;
using deform::PixelReaders;
using Problem = DeformConv2dProblem;

// The arrays that all directions read.
template <class T>
struct Arrays {
  const T *x, *w, *offset, *mask, *dy;

  // The place where channel c reads tap t for pixel i of y.
  __device__ DeviceTap<T> tap(const DeviceSizes& z, Index n, int c, int t, int i) const {
    return {z, offset, mask, n, c / z.c_offset(), t, i};
  }
  __device__ const T* plane(const DeviceSizes& z, Index n, int c) const {
    return x + (n * z.c + c) * z.plane;
  }
  // Returns the gradient of the column's element for channel c and tap t of pixel i: sum over k of
  // w[k] dy[k].
  __device__ float column_gradient(const DeviceSizes& z, Index n, int c, int t, int i) const {
    const int g = c / z.c_group();
    float sum = 0;
    for (int k = g * z.k_group(); k < (g + 1) * z.k_group(); ++k) {
      sum += to_float(w[(Index{k} * z.c_group() + c % z.c_group()) * z.taps + t]) *
             to_float(dy[(n * z.k + k) * z.pixels + i]);
    }
    return sum;
  }
};

template <class T>
__global__ void forward_kernel(DeviceSizes z, Arrays<T> in, const T* b, T* y) {
  for (Index at = global_thread(); at < z.n * z.k * z.pixels; at += global_threads()) {
    const int i = static_cast<int>(at % z.pixels), k = static_cast<int>(at / z.pixels % z.k);
    const Index n = at / z.pixels / z.k;
    const int first = k / z.k_group() * z.c_group();  // channel of x
    float sum = b == nullptr ? 0.0f : to_float(b[k]);
    for (int c = 0; c < z.c_group(); ++c) {
      for (int t = 0; t < z.taps; ++t) {
        sum += to_float(in.w[(Index{k} * z.c_group() + c) * z.taps + t]) *
               in.tap(z, n, first + c, t, i).sample(in.plane(z, n, first + c));
      }
    }
    y[at] = from_float<T>(sum);
  }
}

// Computes the gradients of offset and mask, with a thread for each tap of each pixel. A null
// output is not needed.
template <class T>
__global__ void places_kernel(DeviceSizes z, Arrays<T> in, T* doffset, T* dmask) {
  const Index taps = Index{z.offset_groups} * z.taps;
  for (Index at = global_thread(); at < z.n * taps * z.pixels; at += global_threads()) {
    const int i = static_cast<int>(at % z.pixels), t = static_cast<int>(at / z.pixels % z.taps);
    const int o = static_cast<int>(at / z.pixels / z.taps % z.offset_groups);
    const Index n = at / z.pixels / taps;
    const int first = o * z.c_offset();
    const DeviceTap<T> tap = in.tap(z, n, first, t, i);  // of all channels of the offset group
    float by_v = 0, by_u = 0, by_mask = 0;
    for (int c = first; c < first + z.c_offset(); ++c) {
      const float gradient = in.column_gradient(z, n, c, t, i);
      const T* const plane = in.plane(z, n, c);
      for (int corner = 0; corner < 4; ++corner) {
        if (!tap.place.has(corner)) continue;
        const float a = gradient * to_float(plane[tap.place.pixel(corner)]);
        by_v += a * tap.place.weight_by_v(corner);
        by_u += a * tap.place.weight_by_u(corner);
        by_mask += a * tap.place.weight(corner);
      }
    }
    if (doffset != nullptr) {
      doffset[tap.v_at] = from_float<T>(tap.factor * by_v);
      doffset[tap.u_at] = from_float<T>(tap.factor * by_u);
    }
    if (dmask != nullptr) dmask[tap.at] = from_float<T>(by_mask);
  }
}

// Computes dx of image n. A thread for each element sums over the taps that read the pixel.
template <class T>
__global__ void data_kernel(DeviceSizes z, Arrays<T> in, PixelReaders readers, Index n, T* dx) {
  for (Index at = global_thread(); at < Index{z.c} * z.plane; at += global_threads()) {
    const int pixel = static_cast<int>(at % z.plane), c = static_cast<int>(at / z.plane);
    float sum = 0;
    deform::for_each_reader(
        z, readers, c / z.c_offset(), pixel / z.w, pixel % z.w, [&](int tap, float weight) {
          sum += weight * in.column_gradient(z, n, c, tap / z.pixels, tap % z.pixels);
        });
    dx[n * z.c * z.plane + at] = from_float<T>(sum);
  }
}

// A thread block is one warp. The index of the block is the index of the weight.
template <class T>
__global__ void weight_kernel(DeviceSizes z, Arrays<T> in, bool accumulate, T* dw) {
  const int number = static_cast<int>(blockIdx.x);
  const int t = number % z.taps, in_group = number / z.taps % z.c_group();
  const int k = number / z.taps / z.c_group(), c = k / z.k_group() * z.c_group() + in_group;
  float sum = 0;
  for (Index at = threadIdx.x; at < z.n * z.pixels; at += 32) {
    const Index n = at / z.pixels;
    const int i = static_cast<int>(at % z.pixels);
    sum += to_float(in.dy[(n * z.k + k) * z.pixels + i]) *
           in.tap(z, n, c, t, i).sample(in.plane(z, n, c));
  }
  sum = warp_sum(sum);  // of all 32 threads, in a fixed order
  if (threadIdx.x != 0) return;
  dw[number] = from_float<T>(accumulate ? to_float(dw[number]) + sum : sum);
}

template <class T, class Args>
Arrays<T> arrays_of(const Args& args, const void* w, const void* dy) {
  const auto as = [](const void* data) { return static_cast<const T*>(data); };
  return {as(args.x), as(w), as(args.offset), as(args.mask), as(dy)};
}

template <class T>
void run_forward(const DeformConv2dForwardArgs& a) {
  launch(forward_kernel<T>, grid_for(a.problem.y_shape().numel()), DeviceSizes(a.problem),
         arrays_of<T>(a, a.w, nullptr), static_cast<const T*>(a.b), static_cast<T*>(a.y));
}

template <class T>
void run_backward_data(const DeformConv2dBackwardDataArgs& a) {
  const DeviceSizes z(a.problem);
  const Arrays<T> in = arrays_of<T>(a, a.w, a.dy);
  if (a.doffset != nullptr || a.dmask != nullptr) {
    launch(places_kernel<T>, grid_for(z.n * z.offset_groups * z.taps * z.pixels), z, in,
           static_cast<T*>(a.doffset), static_cast<T*>(a.dmask));
  }
  for (Index n = 0; a.dx != nullptr && n < z.n; ++n) {
    const PixelReaders readers(a.problem, /*images=*/1, a.workspace);
    deform::find_readers(a.problem, readers, n, in.offset, in.mask);
    launch(data_kernel<T>, grid_for(Index{z.c} * z.plane), z, in, readers, n,
           static_cast<T*>(a.dx));
  }
}

template <class T>
void run_backward_weight(const DeformConv2dBackwardWeightArgs& a) {
  launch(weight_kernel<T>,
         {.grid = dim3(static_cast<unsigned>(a.problem.w_shape().numel())), .block = dim3(32)},
         DeviceSizes(a.problem), arrays_of<T>(a, nullptr, a.dy), a.accumulate,
         static_cast<T*>(a.dw));
}

constexpr Index kMaxTerms = Index{1} << 20;  // as in implicit_gemm_lesson_cuda.cu

Support supports(const Problem& z, Direction direction) {
  if (z.dtype != DType::f32 && !is_half(z.dtype)) {
    return Support::no(cat("expects elements of type f32, f16 or bf16, got ", name_of(z.dtype)));
  }
  const Index terms = z.n * z.p() * z.q();
  if (direction != Direction::backward_weight || terms <= kMaxTerms) {
    return deform::fits_kernels(z);
  }
  return Support::no(cat("expects sums of at most ", kMaxTerms, " products, because a warp adds ",
                         "them one after the other in f32, got ", terms));
}

const DeformConv2dAlgorithm kAlgorithm{
    .name = "fused_lesson",
    .device = DeviceType::cuda,
    .idea = "lesson: a thread for each number; it samples as it multiplies",
    .paper = "Dai et al. 2017, arXiv 1703.06211; Zhu et al. 2019, arXiv 1811.11168",
    .supports = supports,
    // Each FMA needs a sample, which takes four loads and eight operations, and a weight.
    .cost = [](const Problem& z, Direction) -> Cost {
      return {.flops = z.nominal_flops(),
              .bytes = z.nominal_bytes(),
              .issued = z.nominal_flops() * 5,
              .cached = z.nominal_flops() / 2 * 5 * 4};
    },
    .workspace_bytes = [](const Problem& z, Direction direction) -> std::size_t {
      if (direction != Direction::backward_data) return 0;
      return PixelReaders::bytes(z, /*images=*/1);
    },
    .error_growth = 12,
    .one_chain = true,
    .auto_ok = false,
    .forward =
        [](const DeformConv2dForwardArgs& a) {
          with_float_type(a.problem.dtype, [&](auto zero) { run_forward<decltype(zero)>(a); });
        },
    .backward_data =
        [](const DeformConv2dBackwardDataArgs& a) {
          with_float_type(a.problem.dtype,
                          [&](auto zero) { run_backward_data<decltype(zero)>(a); });
        },
    .backward_weight =
        [](const DeformConv2dBackwardWeightArgs& a) {
          with_float_type(a.problem.dtype,
                          [&](auto zero) { run_backward_weight<decltype(zero)>(a); });
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_DEFORM_CONV2D_ALGORITHM(convscope::kAlgorithm)
