// SPDX-License-Identifier: Apache-2.0
// adaptive_max_pool2d.cpp: the largest element of each of P x Q windows, and pools over whole
// images.
#include "layers/pool2d/adaptive_max_pool2d.h"

#include <algorithm>

#include "framework/graph/simple_operation.h"
#include "framework/parallel.h"
#include "layers/layer_types.h"
#include "layers/pool2d/pool2d.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)> adaptive_max_pool_kernel{
    "adaptive_max_pool2d"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)>
    adaptive_max_pool_gradient_kernel{"adaptive_max_pool2d"};

namespace {

constexpr const char* kAdaptiveMax = "adaptive_max_pool2d";

class AdaptiveMaxPool final : public SimpleOperation {
 public:
  AdaptiveMaxPool(std::int64_t p, std::int64_t q) : SimpleOperation(kAdaptiveMax), p_(p), q_(q) {}
  Shape output_shape(const std::vector<Shape>& x) const override {
    return AdaptiveMaxPool2d(p_, q_).output_shape(x[0]);
  }
  Keeps keeps(const std::vector<Shape>& x) const override {
    return {.saved = {{output_shape(x), DType::i32}}};
  }
  void run(const Forward& a) const override {
    adaptive_max_pool_kernel.get(a.device())(a.x[0], a.y, a.saved[0]);
  }
  void run(const Backward& a) const override {
    adaptive_max_pool_gradient_kernel.get(a.device())(a.dy, a.saved[0], a.dx[0]);
  }

 private:
  std::int64_t p_, q_;
};

template <class T>
void largest_of_windows(const Tensor& x, const Tensor& y, const Tensor& taps) {
  const AdaptiveAxis rows{x.dim(2), y.dim(2)}, columns{x.dim(3), y.dim(3)};
  const std::int64_t windows = rows.out * columns.out, pixels = rows.in * columns.in;
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 13) / pixels);
  parallel_for(x.dim(0) * x.dim(1), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin * windows; at < end * windows; ++at) {
      const T* const image = x.data<T>() + at / windows * pixels;
      const auto down = rows.window(at % windows / columns.out);
      const auto across = columns.window(at % columns.out);
      std::int64_t tap = down.begin * columns.in + across.begin;
      for (std::int64_t i = down.begin; i < down.end; ++i) {
        for (std::int64_t j = across.begin; j < across.end; ++j) {
          const T value = image[i * columns.in + j];
          if (value > image[tap] || value != value) tap = i * columns.in + j;
        }
      }
      y.data<T>()[at] = image[tap];
      if (taps.defined()) taps.data<std::int32_t>()[at] = static_cast<std::int32_t>(tap);
    }
  });
}

template <class T>
void gradient_of_windows(const Tensor& dy, const Tensor& taps, const Tensor& dx) {
  const std::int64_t windows = dy.dim(2) * dy.dim(3), pixels = dx.dim(2) * dx.dim(3);
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 13) / pixels);
  parallel_for(dx.dim(0) * dx.dim(1), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      T* const to = dx.data<T>() + plane * pixels;
      std::fill_n(to, pixels, T{0});
      for (std::int64_t at = plane * windows; at < (plane + 1) * windows; ++at) {
        to[taps.data<std::int32_t>()[at]] += dy.data<T>()[at];
      }
    }
  });
}

void adaptive_max_cpu(const Tensor& x, const Tensor& y, const Tensor& taps) {
  x.dtype() == DType::f64 ? largest_of_windows<double>(x, y, taps)
                          : largest_of_windows<float>(x, y, taps);
}

void adaptive_max_gradient_cpu(const Tensor& dy, const Tensor& taps, const Tensor& dx) {
  dy.dtype() == DType::f64 ? gradient_of_windows<double>(dy, taps, dx)
                           : gradient_of_windows<float>(dy, taps, dx);
}

Shape checked_images(const Shape& x, const char* operation) {
  CONVSCOPE_CHECK(x.rank() == 4 && x[2] >= 1 && x[3] >= 1, operation,
                  "expected x [N,C,H,W] with at least one pixel, got ", x);
  return x;
}

}  // namespace

CONVSCOPE_KERNEL(adaptive_max_pool_kernel, cpu, adaptive_max_cpu)
CONVSCOPE_KERNEL(adaptive_max_pool_gradient_kernel, cpu, adaptive_max_gradient_cpu)

Variable adaptive_max_pool2d(const Variable& x, std::int64_t p, std::int64_t q) {
  const Shape y = AdaptiveMaxPool2d(p, q).output_shape(x.shape());
  const std::int64_t h = x.shape()[2], w = x.shape()[3];
  if (h % y[2] != 0 || w % y[3] != 0) {
    return apply(std::make_unique<AdaptiveMaxPool>(p, q), {x});
  }
  return max_pool2d(x,
                    {.kernel_h = h / p, .kernel_w = w / q, .stride_h = h / p, .stride_w = w / q});
}

Shape AdaptiveMaxPool2d::output_shape(const Shape& input) const {
  const Shape x = checked_images(input, kAdaptiveMax);
  CONVSCOPE_CHECK(p_ >= 1 && q_ >= 1, kAdaptiveMax, "expected an output of at least 1x1, got ", p_,
                  "x", q_);
  CONVSCOPE_CHECK(x[2] * x[3] < (std::int64_t{1} << 31), kAdaptiveMax,
                  "expected an image of fewer than 2^31 pixels, got ", x);
  return {x[0], x[1], p_, q_};
}

Variable GlobalPool2d::forward(const Variable& x) {
  return max_ ? adaptive_max_pool2d(x, 1, 1) : adaptive_avg_pool2d(x, 1, 1);
}

Shape GlobalPool2d::output_shape(const Shape& input) const {
  const Shape x = checked_images(input, kind().c_str());
  return {x[0], x[1], 1, 1};
}

namespace {

LayerType global_pool_type(bool max, const char* doc) {
  return {.doc = doc,
          .fields = {},
          .build = [max](const Options&, const Shape&, LayerContext&) -> std::shared_ptr<Module> {
            return std::make_shared<GlobalPool2d>(max);
          }};
}

}  // namespace

CONVSCOPE_REGISTER_LAYER("global_avg_pool2d",
                         global_pool_type(false, "the mean of each channel, [N,C,1,1]"))
CONVSCOPE_REGISTER_LAYER("global_max_pool2d",
                         global_pool_type(true, "the largest element of each channel, [N,C,1,1]"))
CONVSCOPE_REGISTER_LAYER(
    "adaptive_max_pool2d",
    {.doc = "the largest element of each window, for an output of the given size",
     .fields = {{.name = "output_size",
                 .type = OptionType::integers,
                 .doc = "size of the output in pixels: one number or [height, width]",
                 .required = true,
                 .min = 1,
                 .max = 1 << 20}},
     .build = [](const Options& options, const Shape&, LayerContext&) -> std::shared_ptr<Module> {
       const std::vector<std::int64_t>& size = options.integers("output_size");
       CONVSCOPE_CHECK(size.size() == 1 || size.size() == 2, kAdaptiveMax,
                       "expected 'output_size' to be one number or [height, width], got ",
                       to_text(options.get("output_size")));
       return std::make_shared<AdaptiveMaxPool2d>(size.front(), size.back());
     }})

}  // namespace convscope
