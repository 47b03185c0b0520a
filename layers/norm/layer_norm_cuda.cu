// SPDX-License-Identifier: Apache-2.0
// layer_norm_cuda.cu: layer norm and layer scale on a GPU.
//
// Method    planes (NCHW): a block has 32 pixels times 8 threads, each of which takes every eighth
//           channel, so that a warp reads 32 adjacent pixels. rows ([N,F], NHWC): a warp
//           takes one pixel. Both pass the channels three times: for the mean, for the variance,
//           and for y; the second and third pass mostly hit the caches. dweight and dbias: a block
//           adds the pixels of one slice for 32 channels (planes: for one channel), and a second
//           launch adds the slices in order
// Numerics  sums in f32 (f64 for f64) by thread, then by block; slices are added in double. The
//           division of work depends only on the shape, so two runs have the same bits
#include "framework/cuda/half_piece.cuh"
#include "framework/cuda/number.cuh"
#include "layers/norm/layer_norm.h"
#include "layers/norm/layer_scale.h"

namespace convscope {
namespace {

// Where the numbers of the pixels are.
struct PixelGrid {
  std::int64_t pixels;    // of the batch
  std::int64_t image;     // planes: pixels of an image; else 0
  std::int64_t channels;  // with a weight
  std::int64_t stored;    // channels in memory

  __device__ std::int64_t first(std::int64_t pixel) const {  // the place of channel 0
    return image == 0 ? pixel * stored : pixel / image * stored * image + pixel % image;
  }
  __device__ std::int64_t step() const { return image == 0 ? 1 : image; }
};

PixelGrid grid_of(const Shape& x, std::int64_t channels) {
  const bool is_nhwc = x.rank() == 5;
  const std::int64_t stored = is_nhwc ? x[4] : channels;
  const std::int64_t image = x.rank() == 4 && x[2] * x[3] > 1 ? x[2] * x[3] : 0;
  return {x.numel() / stored, image, channels, stored};
}

constexpr unsigned kPixelsAcross = 32, kChannelThreads = 8;

// The threads of one pixel: the 32 lanes of a warp (rows), or 8 threads in different warps.
template <bool kPlanes, class Float>
struct PixelTeam {
  Float (*shared)[kPixelsAcross];
  __device__ static unsigned first() { return kPlanes ? threadIdx.y : threadIdx.x; }
  __device__ static unsigned step() { return kPlanes ? kChannelThreads : kPixelsAcross; }
  __device__ static std::int64_t pixel() {
    return kPlanes ? std::int64_t{blockIdx.x} * kPixelsAcross + threadIdx.x
                   : std::int64_t{blockIdx.x} * kChannelThreads + threadIdx.y;
  }
  // Returns the sum over the team to each of its threads; all threads of the block call it.
  __device__ Float sum(Float value) const {
    if constexpr (!kPlanes) {
      return warp_sum(value);
    } else {
      __syncthreads();
      shared[threadIdx.y][threadIdx.x] = value;
      __syncthreads();
      Float total = 0;
      for (unsigned i = 0; i < kChannelThreads; ++i) total += shared[i][threadIdx.x];
      return total;
    }
  }
};

LaunchShape shape_of(const PixelGrid& grid) {
  const unsigned each = grid.image > 0 ? kPixelsAcross : kChannelThreads;
  return {.grid = dim3(static_cast<unsigned>(ceil_div(grid.pixels, each))),
          .block = dim3(kPixelsAcross, kChannelThreads)};
}

template <bool kPlanes, class T, class Float>
__global__ void __launch_bounds__(kThreads)
    layer_norm_pixels(PixelGrid grid, const T* x, const Float* weight, const Float* bias, Float eps,
                      T* y, Float* mean, Float* inverse) {
  __shared__ Float shared[kChannelThreads][kPixelsAcross];
  const PixelTeam<kPlanes, Float> team{shared};
  const std::int64_t pixel = team.pixel();
  const bool inside = pixel < grid.pixels;
  const std::int64_t first = inside ? grid.first(pixel) : 0, step = grid.step();
  const std::int64_t channels = inside ? grid.channels : 0;
  Float sum = 0;
  for (std::int64_t c = team.first(); c < channels; c += team.step()) {
    sum += number<T, Float>(x[first + c * step]);
  }
  const Float m = team.sum(sum) / static_cast<Float>(grid.channels);
  sum = 0;
  for (std::int64_t c = team.first(); c < channels; c += team.step()) {
    const Float d = number<T, Float>(x[first + c * step]) - m;
    sum += d * d;
  }
  const Float r = Float(1) / ::sqrt(team.sum(sum) / static_cast<Float>(grid.channels) + eps);
  for (std::int64_t c = team.first(); c < channels; c += team.step()) {
    const Float u = (number<T, Float>(x[first + c * step]) - m) * r;
    y[first + c * step] = stored_as<T, Float>(u * weight[c] + bias[c]);
  }
  if (!inside) return;
  for (std::int64_t c = grid.channels + team.first(); c < grid.stored; c += team.step()) {
    y[first + c * step] = stored_as<T, Float>(Float(0));
  }
  if (mean == nullptr || team.first() != 0) return;
  mean[pixel] = m;
  inverse[pixel] = r;
}

template <bool kPlanes, class T, class Float>
__global__ void __launch_bounds__(kThreads)
    layer_norm_pixel_gradients(PixelGrid grid, const T* dy, const T* x, const Float* weight,
                               const Float* mean, const Float* inverse, T* dx) {
  __shared__ Float shared[kChannelThreads][kPixelsAcross];
  const PixelTeam<kPlanes, Float> team{shared};
  const std::int64_t pixel = team.pixel();
  const bool inside = pixel < grid.pixels;
  const std::int64_t first = inside ? grid.first(pixel) : 0, step = grid.step();
  const std::int64_t channels = inside ? grid.channels : 0;
  const Float m = inside ? mean[pixel] : Float(0), r = inside ? inverse[pixel] : Float(0);
  Float g_sum = 0, gu_sum = 0;
  for (std::int64_t c = team.first(); c < channels; c += team.step()) {
    const Float g = number<T, Float>(dy[first + c * step]) * weight[c];
    g_sum += g;
    gu_sum += g * ((number<T, Float>(x[first + c * step]) - m) * r);
  }
  const Float g_mean = team.sum(g_sum) / static_cast<Float>(grid.channels);
  const Float gu_mean = team.sum(gu_sum) / static_cast<Float>(grid.channels);
  for (std::int64_t c = team.first(); c < channels; c += team.step()) {
    const Float g = number<T, Float>(dy[first + c * step]) * weight[c];
    const Float u = (number<T, Float>(x[first + c * step]) - m) * r;
    dx[first + c * step] = stored_as<T, Float>((g - g_mean - u * gu_mean) * r);
  }
  if (!inside) return;
  for (std::int64_t c = grid.channels + team.first(); c < grid.stored; c += team.step()) {
    dx[first + c * step] = stored_as<T, Float>(Float(0));
  }
}

template <bool kPlanes, class T, class Float>
__global__ void __launch_bounds__(kThreads)
    layer_scale_pixels(PixelGrid grid, const T* x, const Float* weight, T* y) {
  using Team = PixelTeam<kPlanes, Float>;
  const std::int64_t pixel = Team::pixel();
  if (pixel >= grid.pixels) return;
  const std::int64_t first = grid.first(pixel), step = grid.step();
  for (std::int64_t c = Team::first(); c < grid.stored; c += Team::step()) {
    const Float w = c < grid.channels ? weight[c] : Float(0);
    y[first + c * step] = stored_as<T, Float>(number<T, Float>(x[first + c * step]) * w);
  }
}

// Returns u = (x - mean) inverse of a pixel, or x for layer scale.
template <class T, class Float>
__device__ Float normed(const T* x, std::int64_t at, const Float* mean, const Float* inverse,
                        std::int64_t pixel) {
  const Float value = number<T, Float>(x[at]);
  return mean == nullptr ? value : (value - mean[pixel]) * inverse[pixel];
}

// The pixels of a slice.
struct PixelRange {
  std::int64_t begin, end;
};
__device__ PixelRange pixels_of_slice(std::int64_t pixels, std::int64_t slice,
                                      std::int64_t slices) {
  return {slice * pixels / slices, (slice + 1) * pixels / slices};
}

// Block (c, slice): the sums of one channel over planes. parts is [slices,3,C].
template <class T, class Float>
__global__ void __launch_bounds__(kThreads)
    layer_norm_plane_sums(PixelGrid grid, const T* dy, const T* x, const Float* mean,
                          const Float* inverse, double* parts) {
  __shared__ double shared[32];
  const std::int64_t c = blockIdx.x;
  const PixelRange range = pixels_of_slice(grid.pixels, blockIdx.y, gridDim.y);
  Float du = 0, d = 0;
  for (std::int64_t i = range.begin + threadIdx.x; i < range.end; i += kThreads) {
    const std::int64_t at = grid.first(i) + c * grid.step();
    const Float g = number<T, Float>(dy[at]);
    du += g * normed(x, at, mean, inverse, i);
    d += g;
  }
  const double du_sum = block_sum(static_cast<double>(du), shared);
  const double d_sum = block_sum(static_cast<double>(d), shared);
  if (threadIdx.x != 0) return;
  double* const part = parts + 3 * std::int64_t{blockIdx.y} * grid.channels;
  part[c] = du_sum;
  part[grid.channels + c] = d_sum;
}

// Block (c / 32, slice): the sums of 32 channels over rows, by 8 threads for each channel.
template <class T, class Float>
__global__ void __launch_bounds__(kThreads)
    layer_norm_row_sums(PixelGrid grid, const T* dy, const T* x, const Float* mean,
                        const Float* inverse, double* parts) {
  __shared__ double shared[kChannelThreads][kPixelsAcross];
  const PixelTeam</*kPlanes=*/true, double> team{shared};
  const std::int64_t c = std::int64_t{blockIdx.x} * kPixelsAcross + threadIdx.x;
  const PixelRange range = pixels_of_slice(grid.pixels, blockIdx.y, gridDim.y);
  Float du = 0, d = 0;
  for (std::int64_t i = range.begin + threadIdx.y; c < grid.channels && i < range.end;
       i += kChannelThreads) {
    const std::int64_t at = grid.first(i) + c;
    const Float g = number<T, Float>(dy[at]);
    du += g * normed(x, at, mean, inverse, i);
    d += g;
  }
  const double du_sum = team.sum(static_cast<double>(du)), d_sum = team.sum(static_cast<double>(d));
  if (threadIdx.y != 0 || c >= grid.channels) return;
  double* const part = parts + 3 * std::int64_t{blockIdx.y} * grid.channels;
  part[c] = du_sum;
  part[grid.channels + c] = d_sum;
}

// A thread adds the slices of one element of dweight (thread < channels) or dbias.
template <class Float>
__global__ void __launch_bounds__(kThreads)
    layer_norm_add_slices(const double* parts, std::int64_t slices, std::int64_t channels,
                          Float* dweight, Float* dbias) {
  for (std::int64_t i = global_thread(); i < 2 * channels; i += global_threads()) {
    double sum = 0;
    for (std::int64_t s = 0; s < slices; ++s) sum += parts[3 * s * channels + i];
    Float* const to = i < channels ? dweight : dbias;
    if (to != nullptr) to[i < channels ? i : i - channels] = static_cast<Float>(sum);
  }
}

template <class T>
T* pointer(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.raw_data()) : nullptr;
}

template <class Float, class T>
void forward_on(const LayerNormArgs& a, T) {
  const PixelGrid grid = grid_of(a.x.shape(), a.weight.numel());
  launch(grid.image > 0 ? layer_norm_pixels<true, T, Float> : layer_norm_pixels<false, T, Float>,
         shape_of(grid), grid, pointer<const T>(a.x), a.weight.data<Float>(), a.bias.data<Float>(),
         static_cast<Float>(a.eps), pointer<T>(a.y), pointer<Float>(a.mean),
         pointer<Float>(a.inverse));
}

// Computes dweight and dbias: the sums over all pixels.
template <class Float, class T>
void add_pixels(const PixelGrid& grid, const T* dy, const T* x, const Float* mean,
                const Float* inverse, const Tensor& parts, const Tensor& dweight,
                const Tensor& dbias) {
  const bool planes = grid.image > 0;
  const auto slices = static_cast<unsigned>(parts.dim(0));
  const auto across = static_cast<unsigned>(grid.channels);
  const LaunchShape shape = planes
                                ? LaunchShape{.grid = dim3(across, slices), .block = dim3(kThreads)}
                                : LaunchShape{.grid = dim3(ceil_div(across, kPixelsAcross), slices),
                                              .block = dim3(kPixelsAcross, kChannelThreads)};
  launch(planes ? layer_norm_plane_sums<T, Float> : layer_norm_row_sums<T, Float>, shape, grid, dy,
         x, mean, inverse, parts.data<double>());
  launch(layer_norm_add_slices<Float>, grid_for(2 * grid.channels), parts.data<double>(),
         parts.dim(0), grid.channels, pointer<Float>(dweight), pointer<Float>(dbias));
}

template <class Float, class T>
void gradient_on(const LayerNormGradientArgs& a, T) {
  const PixelGrid grid = grid_of(a.x.shape(), a.weight.numel());
  const bool planes = grid.image > 0;
  const T *const dy = pointer<const T>(a.dy), *const x = pointer<const T>(a.x);
  const Float *const mean = a.mean.data<Float>(), *const inverse = a.inverse.data<Float>();
  if (a.dx.defined()) {
    launch(planes ? layer_norm_pixel_gradients<true, T, Float>
                  : layer_norm_pixel_gradients<false, T, Float>,
           shape_of(grid), grid, dy, x, a.weight.data<Float>(), mean, inverse, pointer<T>(a.dx));
  }
  if (!a.dweight.defined() && !a.dbias.defined()) return;
  add_pixels<Float>(grid, dy, x, mean, inverse, a.parts, a.dweight, a.dbias);
}

template <class Float, class T>
void scale_on(const Tensor& x, const Tensor& weight, const Tensor& y, T) {
  const PixelGrid grid = grid_of(x.shape(), weight.numel());
  launch(grid.image > 0 ? layer_scale_pixels<true, T, Float> : layer_scale_pixels<false, T, Float>,
         shape_of(grid), grid, pointer<const T>(x), weight.data<Float>(), pointer<T>(y));
}

template <class Float, class T>
void scale_weight_on(const Tensor& dy, const Tensor& x, const Tensor& parts, const Tensor& dweight,
                     T) {
  const Float* const none = nullptr;
  add_pixels<Float>(grid_of(x.shape(), dweight.numel()), pointer<const T>(dy), pointer<const T>(x),
                    none, none, parts, dweight, Tensor());
}

void layer_norm_cuda(const LayerNormArgs& a) {
  if (a.x.dtype() == DType::f64) return forward_on<double>(a, 0.0);
  with_stored_type(a.x.dtype(), [&](auto zero) { forward_on<float>(a, zero); });
}

void layer_norm_gradient_cuda(const LayerNormGradientArgs& a) {
  if (a.x.dtype() == DType::f64) return gradient_on<double>(a, 0.0);
  with_stored_type(a.x.dtype(), [&](auto zero) { gradient_on<float>(a, zero); });
}

void layer_scale_cuda(const Tensor& x, const Tensor& weight, const Tensor& y) {
  if (x.dtype() == DType::f64) return scale_on<double>(x, weight, y, 0.0);
  with_stored_type(x.dtype(), [&](auto zero) { scale_on<float>(x, weight, y, zero); });
}

void layer_scale_weight_cuda(const Tensor& dy, const Tensor& x, const Tensor& parts,
                             const Tensor& dweight) {
  if (x.dtype() == DType::f64) return scale_weight_on<double>(dy, x, parts, dweight, 0.0);
  with_stored_type(x.dtype(),
                   [&](auto zero) { scale_weight_on<float>(dy, x, parts, dweight, zero); });
}

}  // namespace
CONVSCOPE_KERNEL(layer_scale_kernel, cuda, layer_scale_cuda)
CONVSCOPE_KERNEL(layer_scale_weight_kernel, cuda, layer_scale_weight_cuda)
CONVSCOPE_KERNEL(layer_norm_kernel, cuda, layer_norm_cuda)
CONVSCOPE_KERNEL(layer_norm_gradient_kernel, cuda, layer_norm_gradient_cuda)
}  // namespace convscope
