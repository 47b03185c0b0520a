// SPDX-License-Identifier: Apache-2.0
// gemm_1x1_cuda.cu: pointwise convolution. For a 1x1 kernel an image of NCHW planes is already a
// matrix [C, P Q], so the convolution is one product for each image, in a batched call of cuBLAS.
//
// Formula    y[n,k,p,q] = b[k] + sum over c < C/G of w[k,c] x[n, g C/G + c, p, q]
// Textbook   for n: y[n] = w x[n] + b           # [K,C] [C,PQ]
//                   dx[n] = w^T dy[n]           # [C,K] [K,PQ]
//                   dw += dy[n] x[n]^T          # [K,PQ] [PQ,C]
// Method     Forward and backward_data are one batched product over the images, with the same
//            weights for each image (step 0). With groups there is one batched product for each
//            group, or for each image when there are fewer images than groups. A bias is written to
//            y first, and the product is added to it. In half precision the bias is added to f32
//            results, so that y is rounded once. backward_weight is a product with a separate
//            result for each image; a second kernel adds the results in the order of the images.
// Shapes     x [N,C,H,W], w [K,C/G,1,1], y [N,K,P,Q], row-major, any alignment, f32, f16 or bf16;
//            f32 accumulators
// Supports   f32, f16, bf16; 1x1 kernels with stride 1 and no padding; every number of groups
// Cost       FLOPs = 2 N K P Q C/G; bytes = the three tensors once (with a bias y is written and
//            read once more); workspace = backward_weight: K C/G f32 results for each image (at
//            most kSumBytes); forward in half precision with a bias: f32 results of some images of
//            y (kHalfSumBytes). Memory-bound when 2 / (1/K + 1/C) FLOPs a float is below the ridge:
//            50 channels in f32, 350 in TF32
// Numerics   f32: cuBLAS without TF32 (TF32 only when the problem asks); one rounding per FMA; same
//            bits on each run on one GPU; exact on integers below 2^24 in f32
// Backward   dx assigned; dw assigned or added to, summed in f32 also in half precision
// Choices    kSumBytes 256 MiB, kHalfSumBytes 64 MiB: if results of all images exceed this, several
//            calls follow each other
// Source     M. Lin, Q. Chen, S. Yan 2013: Network In Network, arXiv 1312.4400
// Read next  im2col_gemm_cuda.cu, for kernels and strides of any size
#include <algorithm>
#include <numeric>

#include "framework/cuda/blas.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/shared/cuda/blas_cost.h"

namespace convscope {
namespace {

using Index = std::int64_t;

constexpr Index kSumBytes = Index{256} << 20;
constexpr Index kHalfSumBytes = Index{64} << 20;

template <class T>
__global__ void bias_kernel(const T* b, Index kernels, Index plane, Index count, T* y) {
  for (Index i = global_thread(); i < count; i += global_threads()) y[i] = b[i / plane % kernels];
}

// Adds the bias to f32 `sums` [images][K][P Q] and rounds each result once.
template <class T>
__global__ void round_kernel(const float* sums, const T* b, Index kernels, Index plane, Index count,
                             T* y) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    y[i] = from_float<T>(sums[i] + to_float(b[i / plane % kernels]));
  }
}

// Adds up f32 `sums` [images][K, C/G] over the images in order.
template <class T>
__global__ void add_images_kernel(const float* sums, int images, Index count, bool accumulate,
                                  T* dw) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    float sum = accumulate ? to_float(dw[i]) : 0.0f;
    for (int n = 0; n < images; ++n) sum += sums[n * count + i];
    dw[i] = from_float<T>(sum);
  }
}

const std::byte* offset(const void* base, Index elements, DType dtype) {
  return static_cast<const std::byte*>(base) + elements * Index(size_of(dtype));
}
std::byte* offset(void* base, Index elements, DType dtype) {
  return static_cast<std::byte*>(base) + elements * Index(size_of(dtype));
}

// Computes out[n,g] [rows, P Q] = w_g [rows, `depth`] in[n,g] [`depth`, P Q], or with w_g
// transposed.
void products(const Conv2dProblem& z, bool transpose, const void* in, const void* w, double beta,
              void* out, DType dtype_out) {
  const Index plane = z.h * z.w;
  const Index weights = z.k_per_group() * z.c_per_group();
  const Index rows = transpose ? z.c_per_group() : z.k_per_group();
  const Index depth = transpose ? z.k_per_group() : z.c_per_group();
  BlasGemm gemm{.m = rows,
                .n = plane,
                .k = depth,
                .lda = z.c_per_group(),
                .ldb = plane,
                .ldc = plane,
                .transpose_a = transpose,
                .dtype = z.dtype,
                .dtype_c = dtype_out,
                .beta = beta,
                .math = z.math};
  const bool by_group = z.groups <= z.n;
  const Index calls = by_group ? z.groups : z.n;
  gemm.batch = by_group ? z.n : z.groups;
  gemm.stride_a = by_group ? 0 : weights;
  gemm.stride_b = (by_group ? z.groups : 1) * depth * plane;
  gemm.stride_c = (by_group ? z.groups : 1) * rows * plane;
  for (Index i = 0; i < calls; ++i) {
    const Index image = by_group ? i : i * z.groups;  // n G + g
    gemm.a = offset(w, by_group ? i * weights : 0, z.dtype);
    gemm.b = offset(in, image * depth * plane, z.dtype);
    gemm.c = offset(out, image * rows * plane, dtype_out);
    blas_gemm(gemm);
  }
}

bool is_half(const Conv2dProblem& z) { return z.dtype != DType::f32; }

// Returns how many images are computed at a time in half precision with a bias. Their f32 results
// fit in kHalfSumBytes.
Index half_images(const Conv2dProblem& z) {
  const Index bytes = z.k * z.h * z.w * Index(sizeof(float));
  return std::clamp<Index>(kHalfSumBytes / std::max<Index>(1, bytes), 1, std::max<Index>(1, z.n));
}

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  if (args.b == nullptr) return products(z, false, args.x, args.w, 0.0, args.y, z.dtype);
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const b = static_cast<const T*>(args.b);
    auto* const y = static_cast<T*>(args.y);
    const Index plane = z.h * z.w;
    if (!is_half(z)) {
      launch(bias_kernel<T>, grid_for(z.y_shape().numel()), b, z.k, plane, z.y_shape().numel(), y);
      return products(z, false, args.x, args.w, 1.0, args.y, z.dtype);
    }
    // If the product were added to an fp16/bf16 bias in y, y would be rounded twice.
    auto* const sums = static_cast<float*>(args.workspace);
    Conv2dProblem part = z;
    for (Index n = 0; n < z.n; n += part.n) {
      part.n = std::min(half_images(z), z.n - n);
      products(part, false, offset(args.x, n * z.c * plane, z.dtype), args.w, 0.0, sums,
               DType::f32);
      const Index count = part.y_shape().numel();
      launch(round_kernel<T>, grid_for(count), sums, b, z.k, plane, count, y + n * z.k * plane);
    }
  });
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  if (z.n > 0) products(z, true, args.dy, args.w, 0.0, args.dx, z.dtype);
}

Index images_at_once(const Conv2dProblem& z) {
  const Index bytes = z.w_shape().numel() * Index(sizeof(float));
  return std::min(z.n, std::max<Index>(1, kSumBytes / bytes));
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const Index plane = z.h * z.w;
  const Index kernels = z.k_per_group();
  const Index channels = z.c_per_group();
  const Index images = images_at_once(z);
  const Index count = z.w_shape().numel();
  auto* const sums = static_cast<float*>(args.workspace);  // [images][K, C/G]
  for (Index n = 0; n < z.n; n += images) {
    const Index here = std::min(images, z.n - n);
    BlasGemm gemm{.m = kernels,
                  .n = channels,
                  .k = plane,
                  .lda = plane,
                  .ldb = plane,
                  .ldc = channels,
                  .transpose_b = true,
                  .dtype = z.dtype,
                  .beta = n == 0 ? 0.0 : 1.0,
                  .math = z.math};
    // In all three operands the matrices of all groups and images are consecutive, so one call is
    // enough.
    gemm.a = offset(args.dy, n * z.k * plane, z.dtype);
    gemm.b = offset(args.x, n * z.c * plane, z.dtype);
    gemm.c = sums;
    gemm.batch = here * z.groups;
    gemm.stride_a = kernels * plane;
    gemm.stride_b = channels * plane;
    gemm.stride_c = kernels * channels;
    blas_gemm(gemm);
  }
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(add_images_kernel<T>, grid_for(count), sums, int(images), count, args.accumulate,
           static_cast<T*>(args.dw));
  });
}

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  if (z.dtype != DType::f32 && z.dtype != DType::f16 && z.dtype != DType::bf16) {
    return no("expects elements of type f32, f16 or bf16, got ", name_of(z.dtype));
  }
  if (z.r != 1 || z.s != 1) return no("expects a 1x1 kernel, got ", z.r, "x", z.s);
  if (z.stride_h != 1 || z.stride_w != 1) {
    return no("expects stride 1, because images are used as matrices in place, got ", z.stride_h,
              "x", z.stride_w);
  }
  if (z.pad_top != 0 || z.pad_bottom != 0 || z.pad_left != 0 || z.pad_right != 0) {
    return no("expects no padding, because images are used as matrices in place, got ", z.pad_top,
              ", ", z.pad_bottom, ", ", z.pad_left, ", ", z.pad_right);
  }
  return {};
}

// Assumes that there is no bias, because a problem does not say so.
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const Index plane = z.h * z.w;
  const bool weight = direction == Direction::backward_weight;
  const bool forward = direction == Direction::forward;
  const Index images = std::max<Index>(1, images_at_once(z));
  const Index calls = weight ? ceil_div(z.n, images) : std::min(z.groups, z.n);
  const Index apart = std::gcd(plane, z.c_per_group());
  const Index rows = forward ? z.k_per_group() : z.c_per_group();
  const Index depth = forward ? z.c_per_group() : z.k_per_group();
  using blas_cost::Products;
  const Products products =
      weight ? Products{z.k_per_group(), z.c_per_group(), plane, images * z.groups, apart}
             : Products{rows, plane, depth, std::max(z.groups, z.n), apart};
  Conv2dCost cost = blas_cost::counts_of(products, blas_cost::operands_of(z),
                                         cuda_device_facts().multiprocessors, number(calls));
  cost.flops = z.nominal_flops();
  cost.bytes = z.nominal_bytes();
  if (weight) {
    const double sums = 4 * number(images) * number(z.w_shape().numel());
    cost.bytes += (2 * number(calls) - 1) * sums;  // later calls add to the sums of the first
    cost.pass_bytes += sums;
    cost.waits = number(images);
    cost.launches += 1;
  }
  return cost;
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (direction == Direction::forward && is_half(z) && z.n > 0) {
    return static_cast<std::size_t>(half_images(z) * z.k * z.h * z.w) * sizeof(float);
  }
  if (direction != Direction::backward_weight) return 0;
  return static_cast<std::size_t>(images_at_once(z) * z.w_shape().numel()) * sizeof(float);
}

const Conv2dAlgorithm kAlgorithm{
    .name = "gemm_1x1",
    .device = DeviceType::cuda,
    .idea = "for 1x1 kernels: images already are matrices, one batched cuBLAS product",
    .paper = "Lin, Chen, Yan 2013: Network In Network, arXiv 1312.4400",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
