// SPDX-License-Identifier: Apache-2.0
// deform_im2col_gemm_cuda.cu: deformable convolution by the method of its authors. All samples of
// some images fill a matrix of columns, which is multiplied by the weights.
//
// Formula    y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                w[k,c,r,s] mask[n,j,p,q] sample(x[n, g C/G + c], v, u)   (problem.h)
// Textbook   for each image: columns = samples(x, offset, mask)   # [C/G R S, P Q]
//                            y = w columns + b                    # [K/G, C/G R S] [C/G R S, P Q]
//            gradient of the columns = w^T dy; each element is added to four pixels of dx and to
//            the gradients of its offset and mask
//            dw += dy columns^T, for which the columns are computed once more
// Method     Computes as many images at once as fit into kColumnBytes of columns. Each image and
//            weight group is one product of a batch.
//              forward          a thread looks up one place and samples kChannels channels there;
//                               neighbouring threads of a warp have neighbouring pixels of y, so
//                               stores write whole cache lines. y holds the bias, and the product
//                               is added to it
//              doffset, dmask   a thread for each tap sums over the channels of its offset group
//              dx               lists say which taps read a pixel (pixel_readers.cuh); a thread
//                               sums these for kPixelChannels channels of its pixel
//              dw               one partial sum for each image; the partial sums are added in the
//                               order of the images
// Shapes     x [N,C,H,W], w [K,C/G,R,S], offset [N,2 O R S,P,Q], mask [N,O R S,P,Q], y [N,K,P,Q],
//            row-major, any alignment, f32, f16 or bf16; columns [images,C,R S,P Q] of that type
//            (backward_data: f32); places and sums in f32
// Supports   f32, f16, bf16 in [N,C,H,W]; every stride, dilation, padding, number of groups and of
//            offset groups; with and without a mask; planes below 2^30
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = the tensors, and the columns, written and read
//            once in each direction: R S times as large as x at stride 1; workspace = the columns
//            of some images, for dx also 28 bytes for each tap, for dw a sum for each image.
//            Bound by the memory traffic of the columns, unless K/G is large
// Numerics   samples in f32, rounded to the type of the columns; products by cuBLAS (TF32 only
//            where the problem asks for it). Same bits on each run on one GPU: dx is gathered.
// Backward   dx, doffset, dmask assigned, each only if requested; dw assigned or added to
// Choices    kColumnBytes 256 MiB: as in im2col_gemm_cuda.cu
//            kChannels 8, kPixelChannels 8: 8 channels share the cost of a place or a list
//            kSumBytes 256 MiB: limit of the partial sums of dw, all images together
//            kMaxImages 32768: a batch of products, or a grid, has at most 65535 items
// Source     J. Dai et al. 2017: arXiv 1703.06211, and torchvision.ops.deform_conv2d, which use
//            this method but scatter to dx by atomic additions
// Read next  deform_fused_lesson_cuda.cu, without columns; im2col_gemm_cuda.cu, without offsets
#include <algorithm>
#include <numeric>

#include "framework/cuda/blas.cuh"
#include "framework/int_math.h"
#include "framework/memory/memory.h"
#include "layers/conv2d/shared/cuda/blas_cost.h"
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

constexpr Index kColumnBytes = Index{256} << 20;
constexpr Index kSumBytes = Index{256} << 20;
constexpr Index kMaxImages = 32768;
constexpr int kChannels = 8;
constexpr int kPixelChannels = 8;

// ---- kernels -----------------------------------------------------------------------------------
// In the grid of each kernel, x runs over the pixels of a plane, z over images, and y over rows,
// which each kernel defines.

__device__ Index pixel_here() { return global_thread(); }

// Writes columns. A thread samples one tap of one pixel, for each image from `first` on and for
// kChannels channels of an offset group at a time.
template <class T>
__global__ void columns_kernel(DeviceSizes z, Index first, Index images, const T* x,
                               const T* offset, const T* mask, T* columns) {
  if (pixel_here() >= z.pixels) return;
  const int pixel = static_cast<int>(pixel_here());
  const int parts = ceil_div(z.c_offset(), kChannels);
  for (Index image = blockIdx.z; image < images; image += gridDim.z) {
    for (Index row = blockIdx.y; row < Index{z.offset_groups} * parts * z.taps; row += gridDim.y) {
      const int t = static_cast<int>(row % z.taps);
      const int o = static_cast<int>(row / z.taps / parts);
      const int begin = o * z.c_offset() + static_cast<int>(row / z.taps % parts) * kChannels;
      const int end = min(begin + kChannels, (o + 1) * z.c_offset());
      const DeviceTap<T> tap(z, offset, mask, first + image, o, t, pixel);
      for (int c = begin; c < end; ++c) {
        columns[((image * z.c + c) * z.taps + t) * z.pixels + pixel] =
            from_float<T>(tap.sample(x + ((first + image) * z.c + c) * z.plane));
      }
    }
  }
}

// Writes the bias into every element of y.
template <class T>
__global__ void bias_kernel(DeviceSizes z, const T* b, T* y) {
  for (Index i = global_thread(); i < z.n * z.k * z.pixels; i += global_threads()) {
    y[i] = b[i / z.pixels % z.k];
  }
}

// Computes doffset and dmask of one tap of one pixel: the columns' gradient, summed over the
// channels that share the place. Null: not needed.
template <class T>
__global__ void places_kernel(DeviceSizes z, Index first, Index images, const T* x, const T* offset,
                              const T* mask, const float* columns, T* doffset, T* dmask) {
  if (pixel_here() >= z.pixels) return;
  const int pixel = static_cast<int>(pixel_here());
  for (Index image = blockIdx.z; image < images; image += gridDim.z) {
    for (Index row = blockIdx.y; row < Index{z.offset_groups} * z.taps; row += gridDim.y) {
      const int t = static_cast<int>(row % z.taps);
      const int o = static_cast<int>(row / z.taps);
      const DeviceTap<T> tap(z, offset, mask, first + image, o, t, pixel);
      float sums[4] = {};  // for each corner: gradient times x
      for (int c = o * z.c_offset(); c < (o + 1) * z.c_offset(); ++c) {
        const float gradient = columns[((image * z.c + c) * z.taps + t) * z.pixels + pixel];
        const T* const from = x + ((first + image) * z.c + c) * z.plane;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (tap.place.has(i)) sums[i] += gradient * to_float(from[tap.place.pixel(i)]);
        }
      }
      float by_v = 0, by_u = 0, by_mask = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!tap.place.has(i)) continue;
        by_v += tap.place.weight_by_v(i) * sums[i];
        by_u += tap.place.weight_by_u(i) * sums[i];
        by_mask += tap.place.weight(i) * sums[i];
      }
      if (doffset != nullptr) {
        doffset[tap.v_at] = from_float<T>(tap.factor * by_v);
        doffset[tap.u_at] = from_float<T>(tap.factor * by_u);
      }
      if (dmask != nullptr) dmask[tap.at] = from_float<T>(by_mask);
    }
  }
}

// Sums some channels of one pixel of dx.
template <class T>
__global__ void gather_kernel(DeviceSizes z, PixelReaders readers, Index first, Index images,
                              const float* columns, T* dx) {
  if (pixel_here() >= z.plane) return;
  const int pixel = static_cast<int>(pixel_here());
  const int parts = ceil_div(z.c_offset(), kPixelChannels);
  for (Index image = blockIdx.z; image < images; image += gridDim.z) {
    for (Index row = blockIdx.y; row < Index{z.offset_groups} * parts; row += gridDim.y) {
      const int o = static_cast<int>(row / parts);
      const int begin = o * z.c_offset() + static_cast<int>(row % parts) * kPixelChannels;
      const int channels = min(kPixelChannels, (o + 1) * z.c_offset() - begin);
      const float* const from = columns + (image * z.c + begin) * z.taps * z.pixels;
      const Index step = Index{z.taps} * z.pixels;  // from one channel to the next
      float sums[kPixelChannels] = {};
      deform::for_each_reader(z, readers, image * z.offset_groups + o, pixel / z.w, pixel % z.w,
                              [&](int tap, float weight) {
#pragma unroll
                                for (int c = 0; c < kPixelChannels; ++c) {
                                  if (c < channels) sums[c] += weight * from[c * step + tap];
                                }
                              });
      T* const to = dx + ((first + image) * z.c + begin) * z.plane + pixel;
#pragma unroll
      for (int c = 0; c < kPixelChannels; ++c) {
        if (c < channels) to[Index{c} * z.plane] = from_float<T>(sums[c]);
      }
    }
  }
}

// Sums dw over all images, in their order.
template <class T>
__global__ void add_images_kernel(const float* sums, Index images, Index count, bool accumulate,
                                  T* dw) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    float sum = accumulate ? to_float(dw[i]) : 0.0f;
    for (Index image = 0; image < images; ++image) sum += sums[image * count + i];
    dw[i] = from_float<T>(sum);
  }
}

// ---- how a problem is cut ----------------------------------------------------------------------

struct DeformIm2colShape {
  explicit DeformIm2colShape(const Problem& z)
      : kernels(z.k_per_group()),
        depth(z.c_per_group() * z.taps()),
        pixels(z.p() * z.q()),
        image(z.c * z.taps() * pixels),
        weights(z.w_shape().numel()),
        element(Index(size_of(z.dtype))) {}
  Index kernels, depth;  // K/G, C/G R S
  Index pixels;          // P Q
  Index image;           // C R S P Q: the columns of an image
  Index weights;         // K C/G R S
  Index element;         // bytes
};

// Returns the number of images of a chunk. Chunks are computed one after the other, and all have
// the same size.
Index chunk_of(const Problem& z, Direction direction) {
  const DeformIm2colShape sizes(z);
  const bool data = direction == Direction::backward_data;
  const Index bytes = sizes.image * (data ? Index(sizeof(float)) : sizes.element);
  Index most = kColumnBytes / std::max<Index>(1, bytes);
  if (direction == Direction::backward_weight) {
    most = std::min(most, kSumBytes / (sizes.weights * Index(sizeof(float))));
  }
  most = std::clamp<Index>(most, 1, std::min(z.n, kMaxImages));
  return ceil_div(z.n, ceil_div(z.n, most));
}

std::size_t bytes_of(Index elements, Index element) {
  return ScratchArena::round_up(static_cast<std::size_t>(elements * element));
}

LaunchShape over_pixels(Index pixels, Index rows, Index images) {
  const auto most = [](Index size) { return static_cast<unsigned>(std::min<Index>(size, 65535)); };
  return {.grid = dim3(static_cast<unsigned>(ceil_div(pixels, kThreads)), most(rows), most(images)),
          .block = dim3(kThreads)};
}

template <class T>
void make_columns(const Problem& problem, Index first, Index images, const void* x,
                  const void* offset, const void* mask, T* columns) {
  const DeviceSizes z(problem);
  const Index rows = Index{z.offset_groups} * ceil_div(z.c_offset(), kChannels) * z.taps;
  launch(columns_kernel<T>, over_pixels(z.pixels, rows, images), z, first, images,
         static_cast<const T*>(x), static_cast<const T*>(offset), static_cast<const T*>(mask),
         columns);
}

// Distances in elements: from one image to the next, and from one weight group to the next.
struct Steps {
  Index image, group;
};

// Computes one product for each image and group. Either the images or the groups are the batch of
// one call, and a loop runs over the others.
void multiply(BlasGemm product, Index images, Index groups, const Steps& a, const Steps& b,
              const Steps& c) {
  const bool batch_of_images = images >= groups;
  const auto in_batch = [&](const Steps& steps) {
    return batch_of_images ? steps.image : steps.group;
  };
  const auto in_loop = [&](const Steps& steps) {
    return batch_of_images ? steps.group : steps.image;
  };
  product.batch = std::max(images, groups);
  product.stride_a = in_batch(a);
  product.stride_b = in_batch(b);
  product.stride_c = in_batch(c);
  const auto at = [](const void* from, Index elements, DType type) {
    return static_cast<const std::byte*>(from) + elements * Index(size_of(type));
  };
  for (Index i = 0; i < std::min(images, groups); ++i) {
    BlasGemm one = product;
    one.a = at(product.a, i * in_loop(a), product.dtype);
    one.b = at(product.b, i * in_loop(b), product.dtype);
    one.c = const_cast<std::byte*>(at(product.c, i * in_loop(c), product.dtype_c));
    blas_gemm(one);
  }
}

// ---- the three directions ----------------------------------------------------------------------

template <class T>
void forward_as(const DeformConv2dForwardArgs& args) {
  const Problem& problem = args.problem;
  const DeformIm2colShape z(problem);
  const Index chunk = chunk_of(problem, Direction::forward);
  auto* const columns = static_cast<T*>(args.workspace);  // [images,C,R S,P Q]
  auto* const y = static_cast<T*>(args.y);
  if (args.b != nullptr) {
    launch(bias_kernel<T>, grid_for(problem.y_shape().numel()), DeviceSizes(problem),
           static_cast<const T*>(args.b), y);
  }
  for (Index first = 0; first < problem.n; first += chunk) {
    const Index images = std::min(chunk, problem.n - first);
    make_columns(problem, first, images, args.x, args.offset, args.mask, columns);
    multiply({.m = z.kernels,
              .n = z.pixels,
              .k = z.depth,
              .a = args.w,
              .b = columns,
              .c = y + first * problem.k * z.pixels,
              .lda = z.depth,
              .ldb = z.pixels,
              .ldc = z.pixels,
              .dtype = problem.dtype,
              .dtype_c = problem.dtype,
              .beta = args.b == nullptr ? 0.0 : 1.0,
              .math = problem.math},
             images, problem.groups, {0, z.kernels * z.depth}, {z.image, z.depth * z.pixels},
             {problem.k * z.pixels, z.kernels * z.pixels});
  }
}

template <class T>
void backward_data_as(const DeformConv2dBackwardDataArgs& args) {
  const Problem& problem = args.problem;
  const DeformIm2colShape z(problem);
  const DeviceSizes sizes(problem);
  const Index chunk = chunk_of(problem, Direction::backward_data);
  auto* const columns = static_cast<float*>(args.workspace);  // [images,C,R S,P Q]
  void* const lists = static_cast<std::byte*>(args.workspace) + bytes_of(chunk * z.image, 4);
  const auto* const x = static_cast<const T*>(args.x);
  const auto* const offset = static_cast<const T*>(args.offset);
  const auto* const mask = static_cast<const T*>(args.mask);
  for (Index first = 0; first < problem.n; first += chunk) {
    const Index images = std::min(chunk, problem.n - first);
    multiply({.m = z.depth,
              .n = z.pixels,
              .k = z.kernels,
              .a = args.w,
              .b = static_cast<const T*>(args.dy) + first * problem.k * z.pixels,
              .c = columns,
              .lda = z.depth,
              .ldb = z.pixels,
              .ldc = z.pixels,
              .transpose_a = true,
              .dtype = problem.dtype,
              .math = problem.math},
             images, problem.groups, {0, z.kernels * z.depth},
             {problem.k * z.pixels, z.kernels * z.pixels}, {z.image, z.depth * z.pixels});
    if (args.doffset != nullptr || args.dmask != nullptr) {
      launch(places_kernel<T>,
             over_pixels(z.pixels, Index{sizes.offset_groups} * sizes.taps, images), sizes, first,
             images, x, offset, mask, columns, static_cast<T*>(args.doffset),
             static_cast<T*>(args.dmask));
    }
    if (args.dx != nullptr) {
      const PixelReaders readers(problem, images, lists);
      deform::find_readers(problem, readers, first, offset, mask);
      const Index rows = Index{sizes.offset_groups} * ceil_div(sizes.c_offset(), kPixelChannels);
      launch(gather_kernel<T>, over_pixels(sizes.plane, rows, images), sizes, readers, first,
             images, columns, static_cast<T*>(args.dx));
    }
  }
}

template <class T>
void backward_weight_as(const DeformConv2dBackwardWeightArgs& args) {
  const Problem& problem = args.problem;
  const DeformIm2colShape z(problem);
  const Index chunk = chunk_of(problem, Direction::backward_weight);
  auto* const columns = static_cast<T*>(args.workspace);  // [images,C,R S,P Q]
  auto* const sums = reinterpret_cast<float*>(            // [images,K,C/G R S]
      static_cast<std::byte*>(args.workspace) + bytes_of(chunk * z.image, z.element));
  for (Index first = 0; first < problem.n; first += chunk) {
    const Index images = std::min(chunk, problem.n - first);
    make_columns(problem, first, images, args.x, args.offset, args.mask, columns);
    multiply({.m = z.kernels,
              .n = z.depth,
              .k = z.pixels,
              .a = static_cast<const T*>(args.dy) + first * problem.k * z.pixels,
              .b = columns,
              .c = sums,
              .lda = z.pixels,
              .ldb = z.pixels,
              .ldc = z.depth,
              .transpose_b = true,
              .dtype = problem.dtype,
              .beta = first == 0 ? 0.0 : 1.0,
              .math = problem.math},
             images, problem.groups, {problem.k * z.pixels, z.kernels * z.pixels},
             {z.image, z.depth * z.pixels}, {z.weights, z.kernels * z.depth});
  }
  launch(add_images_kernel<T>, grid_for(z.weights), sums, chunk, z.weights, args.accumulate,
         static_cast<T*>(args.dw));
}

void forward(const DeformConv2dForwardArgs& args) {
  with_float_type(args.problem.dtype, [&](auto zero) { forward_as<decltype(zero)>(args); });
}
void backward_data(const DeformConv2dBackwardDataArgs& args) {
  with_float_type(args.problem.dtype, [&](auto zero) { backward_data_as<decltype(zero)>(args); });
}
void backward_weight(const DeformConv2dBackwardWeightArgs& args) {
  with_float_type(args.problem.dtype, [&](auto zero) { backward_weight_as<decltype(zero)>(args); });
}

// ---- algorithm
// --------------------------------------------------------------------------------------

Support supports(const Problem& z, Direction) {
  if (z.dtype != DType::f32 && !is_half(z.dtype)) {
    return Support::no(cat("expects elements of type f32, f16 or bf16, got ", name_of(z.dtype)));
  }
  return deform::fits_kernels(z);
}

Cost cost(const Problem& problem, Direction direction) {
  using blas_cost::Operands;
  const DeformIm2colShape z(problem);
  const bool data = direction == Direction::backward_data;
  const bool weight = direction == Direction::backward_weight;
  const Index images = chunk_of(problem, direction), chunks = ceil_div(problem.n, images);
  const Operands type = problem.dtype != DType::f32      ? Operands::half
                        : problem.math == MathMode::tf32 ? Operands::tf32
                                                         : Operands::f32;
  const blas_cost::Products products{.m = data ? z.depth : z.kernels,
                                     .n = weight ? z.depth : z.pixels,
                                     .k = data     ? z.kernels
                                          : weight ? z.pixels
                                                   : z.depth,
                                     .batch = images * problem.groups,
                                     .apart = std::gcd(z.depth, z.pixels)};
  Cost out = blas_cost::counts_of(products, type, cuda_device_facts().multiprocessors,
                                  number(chunks));
  const double columns = number(problem.n * z.image), element = number(z.element);
  out.flops = problem.nominal_flops();
  out.bytes = problem.nominal_bytes() + columns * (data ? 4 : element);
  // A column is made of four elements. For dx it is added to four, and multiplied with four for the
  // gradients of places; each tap has 28 bytes of lists.
  out.pass_bytes += data ? columns * (4 * 4 + 4 + 4 * element) +
                               28 * number(problem.n * problem.taps() * z.pixels)
                         : columns * 5 * element;
  if (weight) out.pass_bytes += 2 * 4 * number(images * z.weights);  // sums of the images
  out.launches += number(chunks) * (data ? 7 : 1) + 1;
  return out;
}

std::size_t workspace_bytes(const Problem& problem, Direction direction) {
  const DeformIm2colShape z(problem);
  const Index chunk = chunk_of(problem, direction);
  if (direction == Direction::forward) return bytes_of(chunk * z.image, z.element);
  if (direction == Direction::backward_data) {
    return bytes_of(chunk * z.image, 4) +
           ScratchArena::round_up(PixelReaders::bytes(problem, chunk));
  }
  return bytes_of(chunk * z.image, z.element) + bytes_of(chunk * z.weights, 4);
}

const DeformConv2dAlgorithm kAlgorithm{
    .name = "im2col_gemm",
    .device = DeviceType::cuda,
    .idea = "all samples of some images in columns, then cuBLAS products; the authors' method",
    .paper = "Dai et al. 2017: Deformable Convolutional Networks, arXiv 1703.06211",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 12,
    .one_chain = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_DEFORM_CONV2D_ALGORITHM(convscope::kAlgorithm)
