// SPDX-License-Identifier: Apache-2.0
// layer_norm_cpu.cpp: layer norm on the CPU. Threads process blocks of 64 pixels. The gradients of
// weight and bias are sums by slice, which are added in order.
#include <algorithm>
#include <cmath>

#include "framework/activation_layout.h"
#include "framework/parallel.h"
#include "layers/norm/layer_norm.h"
#include "layers/norm/layer_norm_simd.h"

namespace convscope {

constinit IsaTable<LayerNormKernels> layer_norm_kernels;

namespace {

// x as images whose pixels are planes or rows (PixelPlaces).
struct Images {
  PixelPlaces at;
  bool planes;
  std::int64_t pixels;  // of an image
  std::int64_t image;   // the distance of two images, in elements
  std::int64_t images;

  Images(const Shape& x, std::int64_t channels) : images(x[0]) {
    const std::int64_t all = x.numel();
    image = images == 0 ? 0 : all / images;
    planes = x.rank() == 4 && x[2] * x[3] > 1;
    pixels = x.rank() == 2 ? 1 : x[2] * x[3];
    if (planes) {
      at = {.channels = channels, .stride = pixels};
    } else if (x.rank() == 5) {
      at = {channels, pixels * kChannelBlock, kChannelBlock, kChannelBlock};
    } else {  // rows of numbers
      at = {channels, 0, channels, channels};
      pixels = images;
      images = 1;
    }
  }
  std::int64_t blocks() const { return images * ceil_div(pixels, kLayerNormPixels); }
  // Calls body(offset of the first pixel in x, number of the pixel in the batch, pixels) for a
  // block.
  template <class Body>
  void visit(std::int64_t block, const Body& body) const {
    const std::int64_t each = ceil_div(pixels, kLayerNormPixels);
    const std::int64_t n = block / each, first = block % each * kLayerNormPixels;
    body(n * image + first * (planes ? 1 : at.step), n * pixels + first,
         std::min(kLayerNormPixels, pixels - first));
  }
};

// f64 versions of the loops of layer_norm_simd.cpp, for gradient checks. They know NCHW and rows.
struct DoublePixels {
  static std::int64_t place(const PixelPlaces& at, bool planes, std::int64_t c, std::int64_t i) {
    return planes ? c * at.stride + i : c + i * at.step;
  }
  static void forward(const PixelPlaces& at, bool planes, std::int64_t count, const double* x,
                      const double* weight, const double* bias, double eps, double* y, double* mean,
                      double* inverse) {
    const auto channels = static_cast<double>(at.channels);
    for (std::int64_t i = 0; i < count; ++i) {
      double m = 0, v = 0;
      for (std::int64_t c = 0; c < at.channels; ++c) m += x[place(at, planes, c, i)];
      m /= channels;
      for (std::int64_t c = 0; c < at.channels; ++c) {
        const double d = x[place(at, planes, c, i)] - m;
        v += d * d;
      }
      const double r = 1 / std::sqrt(v / channels + eps);
      for (std::int64_t c = 0; c < at.channels; ++c) {
        const std::int64_t p = place(at, planes, c, i);
        y[p] = (x[p] - m) * r * weight[c] + bias[c];
      }
      if (mean == nullptr) continue;
      mean[i] = m;
      inverse[i] = r;
    }
  }
  static void gradient(const PixelPlaces& at, bool planes, std::int64_t count, const double* dy,
                       const double* x, const double* weight, const double* mean,
                       const double* inverse, double* dx, double* sums) {
    const auto channels = static_cast<double>(at.channels);
    for (std::int64_t i = 0; i < count; ++i) {
      double g_sum = 0, gu_sum = 0;
      for (std::int64_t c = 0; c < at.channels; ++c) {
        const std::int64_t p = place(at, planes, c, i);
        const double u = (x[p] - mean[i]) * inverse[i];
        g_sum += dy[p] * weight[c];
        gu_sum += dy[p] * weight[c] * u;
        sums[c] += dy[p] * u;
        sums[at.channels + c] += dy[p];
      }
      for (std::int64_t c = 0; dx != nullptr && c < at.channels; ++c) {
        const std::int64_t p = place(at, planes, c, i);
        const double u = (x[p] - mean[i]) * inverse[i];
        dx[p] = (dy[p] * weight[c] - g_sum / channels - u * gu_sum / channels) * inverse[i];
      }
    }
  }
};

template <class T>
T* data_or_null(const Tensor& tensor, std::int64_t offset) {
  return tensor.defined() ? tensor.data<T>() + offset : nullptr;
}

template <class T>
void layer_norm_forward(const LayerNormArgs& a) {
  const Images images(a.x.shape(), a.weight.numel());
  const std::int64_t grain =
      std::max<std::int64_t>(1, (1 << 14) / (kLayerNormPixels * images.at.channels));
  parallel_for(images.blocks(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      images.visit(block, [&](std::int64_t offset, std::int64_t pixel, std::int64_t count) {
        const T *const x = a.x.data<T>() + offset, *const w = a.weight.data<T>();
        T *const y = a.y.data<T>() + offset, *const mean = data_or_null<T>(a.mean, pixel);
        T* const inverse = data_or_null<T>(a.inverse, pixel);
        if constexpr (sizeof(T) == sizeof(double)) {
          DoublePixels::forward(images.at, images.planes, count, x, w, a.bias.data<T>(), a.eps, y,
                                mean, inverse);
        } else {
          const LayerNormKernels& loops = layer_norm_kernels.get();
          (images.planes ? loops.planes : loops.rows)(images.at, count, x, w, a.bias.data<T>(),
                                                      static_cast<float>(a.eps), y, mean, inverse);
        }
      });
    }
  });
}

void layer_norm_cpu(const LayerNormArgs& a) {
  a.x.dtype() == DType::f64 ? layer_norm_forward<double>(a) : layer_norm_forward<float>(a);
}

// Adds the sums of the slices, in order.
template <class T>
void add_slices(const LayerNormGradientArgs& a, std::int64_t slices, std::int64_t channels) {
  const double* const parts = a.parts.data<double>();
  for (const bool is_bias : {false, true}) {
    const Tensor& to = is_bias ? a.dbias : a.dweight;
    if (!to.defined()) continue;
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::int64_t s = 0; s < slices; ++s) {
        sum += parts[(3 * s + (is_bias ? 1 : 0)) * channels + c];
      }
      to.data<T>()[c] = static_cast<T>(sum);
    }
  }
}

template <class T>
void layer_norm_backward(const LayerNormGradientArgs& a) {
  const std::int64_t channels = a.weight.numel();
  const Images images(a.x.shape(), channels);
  const std::int64_t slices = a.parts.dim(0), blocks = images.blocks();
  parallel_chunks(slices, [&](std::int64_t slice, int) {
    double* const sums = a.parts.data<double>() + 3 * slice * channels;
    std::fill_n(sums, 2 * channels, 0.0);
    for (std::int64_t block = slice * blocks / slices; block < (slice + 1) * blocks / slices;
         ++block) {
      images.visit(block, [&](std::int64_t offset, std::int64_t pixel, std::int64_t count) {
        const T *const dy = a.dy.data<T>() + offset, *const x = a.x.data<T>() + offset;
        const T *const w = a.weight.data<T>(), *const mean = a.mean.data<T>() + pixel;
        const T* const inverse = a.inverse.data<T>() + pixel;
        T* const dx = data_or_null<T>(a.dx, offset);
        if constexpr (sizeof(T) == sizeof(double)) {
          DoublePixels::gradient(images.at, images.planes, count, dy, x, w, mean, inverse, dx,
                                 sums);
        } else {
          const LayerNormKernels& loops = layer_norm_kernels.get();
          (images.planes ? loops.planes_gradient : loops.rows_gradient)(
              images.at, count, dy, x, w, mean, inverse, dx, sums,
              reinterpret_cast<float*>(sums + 2 * channels));
        }
      });
    }
  });
  add_slices<T>(a, slices, channels);
}

void layer_norm_gradient_cpu(const LayerNormGradientArgs& a) {
  a.x.dtype() == DType::f64 ? layer_norm_backward<double>(a) : layer_norm_backward<float>(a);
}

}  // namespace
CONVSCOPE_KERNEL(layer_norm_kernel, cpu, layer_norm_cpu)
CONVSCOPE_KERNEL(layer_norm_gradient_kernel, cpu, layer_norm_gradient_cpu)
}  // namespace convscope
