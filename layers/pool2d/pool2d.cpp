// SPDX-License-Identifier: Apache-2.0
// pool2d.cpp: the largest or the mean element of each window of an image.
#include "layers/pool2d/pool2d.h"

#include "framework/ops/codes/codes.h"
#include "framework/ops/codes/quantize_op.h"
#include "layers/layer_types.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Pool2dWindow&, const Tensor&, const Tensor&)>
    max_pool_kernel{"max_pool2d"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Pool2dWindow&, const Tensor&)>
    max_pool_gradient_kernel{"max_pool2d"};
constinit KernelSlot<void(const Tensor&, const Pool2dWindow&, const Tensor&)> avg_pool_kernel{
    "avg_pool2d"};
constinit KernelSlot<void(const Tensor&, const Pool2dWindow&, const Tensor&)>
    avg_pool_gradient_kernel{"avg_pool2d"};
constinit KernelSlot<void(const Tensor&, const Tensor&)> adaptive_pool_kernel{
    "adaptive_avg_pool2d"};
constinit KernelSlot<void(const Tensor&, const Tensor&)> adaptive_pool_gradient_kernel{
    "adaptive_avg_pool2d"};

namespace {

constexpr std::int64_t kLargestWindow = 1 << 20;  // keeps all index arithmetic far from 2^63

std::int64_t output_size(const char* operation, const char* axis, std::int64_t size,
                         std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                         bool ceil_mode) {
  CONVSCOPE_CHECK(
      kernel >= 1 && kernel <= kLargestWindow && stride >= 1 && stride <= kLargestWindow, operation,
      "expected a kernel and a stride of 1 to 2^20 pixels, got ", kernel, " and ", stride);
  CONVSCOPE_CHECK(
      pad >= 0 && pad <= kernel / 2, operation,
      "expected a padding of 0 to kernel / 2 because no window may be outside of the image, got ",
      pad, " for kernel ", kernel);
  const std::int64_t room = size + 2 * pad - kernel;
  CONVSCOPE_CHECK(size >= 1 && room >= 0, operation, "expected an image of at least ",
                  kernel - 2 * pad, " pixels along ", axis, " because the kernel has ", kernel,
                  " and the padding ", pad, ", got ", size);
  std::int64_t out = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (out - 1) * stride >= size + pad) --out;
  return out;
}

}  // namespace

Shape Pool2dWindow::output_shape(const Shape& x, const char* operation) const {
  CONVSCOPE_CHECK(x.rank() == 4, operation, "expected x [N,C,H,W], got ", x);
  return {x[0], x[1], output_size(operation, "H", x[2], kernel_h, stride_h, pad_h, ceil_mode),
          output_size(operation, "W", x[3], kernel_w, stride_w, pad_w, ceil_mode)};
}

Shape MaxPool::output_shape(const std::vector<Shape>& x) const {
  return window_.output_shape(x[0], kind().data());
}

// Keeps one small number for each window instead of x.
SimpleOperation::Keeps MaxPool::keeps(const std::vector<Shape>& x) const {
  const bool small = window_.kernel_h * window_.kernel_w <= 256;
  return {.saved = {{output_shape(x), small ? DType::u8 : DType::i32}}};
}

void MaxPool::run(const Forward& a) const {
  max_pool_kernel.get(a.device())(a.x[0], window_, a.y, a.saved[0]);
}

void MaxPool::run(const Backward& a) const {
  max_pool_gradient_kernel.get(a.device())(a.dy, a.saved[0], window_, a.dx[0]);
}

std::string MaxPool::text() const {
  return codes_ ? cat(kind(), " on ", name_of(*codes_)) : Operation::text();
}

TensorDesc MaxPool::bind(Graph& graph) {
  TensorDesc desc = graph.desc(inputs[0]);
  if (!desc.quantization) return SimpleOperation::bind(graph);
  codes_ = desc.dtype;
  desc.shape = output_shape({desc.shape});
  return desc;
}

std::optional<Format> MaxPool::format(const Graph& graph, ActivationLayout layout) const {
  return codes_ ? codes_format(layout, ActivationLayout::nchw)
                : SimpleOperation::format(graph, layout);
}

void MaxPool::forward(Emitter& emitter) {
  if (!codes_) return SimpleOperation::forward(emitter);
  const Shape& from = emitter.graph().shape(inputs[0]);
  const Shape& to = emitter.graph().shape(output());
  const CodesPool pool{.planes = from[0] * ceil_div(from[1], kCodeBlock),
                       .h = from[2],
                       .w = from[3],
                       .p = to[2],
                       .q = to[3],
                       .kernel_h = window_.kernel_h,
                       .kernel_w = window_.kernel_w,
                       .stride_h = window_.stride_h,
                       .stride_w = window_.stride_w,
                       .pad_h = window_.pad_h,
                       .pad_w = window_.pad_w,
                       .is_signed = *codes_ == DType::i8};
  emitter.call([run = pool_codes_kernel.get(emitter.device()), pool, x = emitter.value(inputs[0]),
                y = emitter.value(output())] {
    CodesPool now = pool;
    now.from = static_cast<const std::uint8_t*>(x.raw_data());
    now.to = static_cast<std::uint8_t*>(y.raw_data());
    run(now);
  });
}

namespace {

class AvgPool final : public SimpleOperation {
 public:
  explicit AvgPool(const Pool2dWindow& window)
      : SimpleOperation("avg_pool2d", {.nchw16c = true, .nhwc = true}), window_(window) {}
  Shape output_shape(const std::vector<Shape>& x) const override {
    return window_.output_shape(x[0], kind().data());
  }
  void run(const Forward& a) const override {
    avg_pool_kernel.get(a.device())(a.x[0], window_, a.y);
  }
  void run(const Backward& a) const override {
    avg_pool_gradient_kernel.get(a.device())(a.dy, window_, a.dx[0]);
  }

 private:
  Pool2dWindow window_;
};

class AdaptivePool final : public SimpleOperation {
 public:
  AdaptivePool(std::int64_t p, std::int64_t q)
      : SimpleOperation("adaptive_avg_pool2d", {.nchw16c = true, .nhwc = true}), p_(p), q_(q) {}
  Shape output_shape(const std::vector<Shape>& x) const override {
    return AdaptiveAvgPool2d(p_, q_).output_shape(x[0]);
  }
  void run(const Forward& a) const override { adaptive_pool_kernel.get(a.device())(a.x[0], a.y); }
  void run(const Backward& a) const override {
    adaptive_pool_gradient_kernel.get(a.device())(a.dy, a.dx[0]);
  }

 private:
  std::int64_t p_, q_;
};

}  // namespace

Variable max_pool2d(const Variable& x, const Pool2dWindow& window) {
  return apply(std::make_unique<MaxPool>(window), {x});
}

Variable avg_pool2d(const Variable& x, const Pool2dWindow& window) {
  return apply(std::make_unique<AvgPool>(window), {x});
}

Variable adaptive_avg_pool2d(const Variable& x, std::int64_t p, std::int64_t q) {
  return apply(std::make_unique<AdaptivePool>(p, q), {x});
}

Variable Pool2d::forward(const Variable& x) {
  return pool_ == PoolKind::max ? max_pool2d(x, window_) : avg_pool2d(x, window_);
}

Shape Pool2d::output_shape(const Shape& input) const {
  return window_.output_shape(input, pool_ == PoolKind::max ? "max_pool2d" : "avg_pool2d");
}

Shape AdaptiveAvgPool2d::output_shape(const Shape& input) const {
  CONVSCOPE_CHECK(input.rank() == 4 && input[2] >= 1 && input[3] >= 1, "adaptive_avg_pool2d",
                  "expected x [N,C,H,W] with at least one pixel, got ", input);
  CONVSCOPE_CHECK(p_ >= 1 && q_ >= 1, "adaptive_avg_pool2d",
                  "expected an output of at least 1x1, got ", p_, "x", q_);
  return {input[0], input[1], p_, q_};
}

namespace {

// A single number counts for both axes.
struct Pair {
  std::int64_t h, w;
};
Pair pair_of(const Options& options, const char* name, Pair otherwise) {
  if (!options.has(name)) return otherwise;
  const std::vector<std::int64_t>& list = options.integers(name);
  CONVSCOPE_CHECK(list.size() == 1 || list.size() == 2, name, "expected one number or [h, w], got ",
                  list.size(), " numbers");
  return {list.front(), list.back()};
}

std::vector<OptionField> window_fields(PoolKind pool) {
  constexpr double kMax = 1 << 20;
  std::vector<OptionField> fields{{.name = "kernel_size",
                                   .type = OptionType::integers,
                                   .doc = "window in pixels: one number or [h, w]",
                                   .required = true,
                                   .min = 1,
                                   .max = kMax},
                                  {.name = "stride",
                                   .type = OptionType::integers,
                                   .doc = "stride in pixels (default kernel_size)",
                                   .min = 1,
                                   .max = kMax},
                                  {.name = "padding",
                                   .type = OptionType::integers,
                                   .default_value = std::vector<std::int64_t>{0},
                                   .doc = "padding in pixels on each side, at most half the kernel",
                                   .min = 0,
                                   .max = kMax},
                                  {.name = "ceil_mode",
                                   .type = OptionType::boolean,
                                   .default_value = false,
                                   .doc = "round the output size up"}};
  if (pool == PoolKind::avg) {
    fields.push_back({.name = "count_include_pad",
                      .type = OptionType::boolean,
                      .default_value = true,
                      .doc = "count padding in the divisor"});
  }
  return fields;
}

LayerType pool_type(PoolKind pool, const char* doc) {
  return {.doc = doc,
          .fields = window_fields(pool),
          .build = [pool](const Options& options, const Shape&,
                          LayerContext&) -> std::shared_ptr<Module> {
            const Pair kernel = pair_of(options, "kernel_size", {2, 2});
            const Pair stride = pair_of(options, "stride", kernel);
            const Pair padding = pair_of(options, "padding", {0, 0});
            Pool2dWindow window{.kernel_h = kernel.h,
                                .kernel_w = kernel.w,
                                .stride_h = stride.h,
                                .stride_w = stride.w,
                                .pad_h = padding.h,
                                .pad_w = padding.w,
                                .ceil_mode = options.flag("ceil_mode")};
            if (pool == PoolKind::avg) window.count_include_pad = options.flag("count_include_pad");
            return std::make_shared<Pool2d>(pool, window);
          }};
}

}  // namespace

CONVSCOPE_REGISTER_LAYER("max_pool2d",
                         pool_type(PoolKind::max, "the largest element of each window"))
CONVSCOPE_REGISTER_LAYER("avg_pool2d", pool_type(PoolKind::avg, "the mean of each window"))
CONVSCOPE_REGISTER_LAYER("adaptive_avg_pool2d",
                         {.doc = "means over windows that yield a given output size",
                          .fields = {{.name = "output_size",
                                      .type = OptionType::integers,
                                      .doc = "output size: one number or [h, w]",
                                      .required = true,
                                      .min = 1,
                                      .max = 1 << 20}},
                          .build = [](const Options& options, const Shape&,
                                      LayerContext&) -> std::shared_ptr<Module> {
                            const Pair size = pair_of(options, "output_size", {1, 1});
                            return std::make_shared<AdaptiveAvgPool2d>(size.h, size.w);
                          }})

}  // namespace convscope
