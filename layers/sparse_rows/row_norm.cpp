// SPDX-License-Identifier: Apache-2.0
// row_norm.cpp: batch norm of rows [n,C].
#include "layers/sparse_rows/row_norm.h"

#include "framework/graph/apply.h"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/sparse_rows/row_layers.h"
#include "layers/sparse_rows/row_sums.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&)> row_sums_kernel{"row_sums"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)> row_moments_kernel{
    "sparse_batch_norm"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&)>
    row_apply_kernel{"sparse_batch_norm"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&)>
    row_gradient_sums_kernel{"sparse_batch_norm"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&, const Tensor&)>
    row_gradient_kernel{"sparse_batch_norm"};

void row_sums(const Tensor& x, const Tensor& sums) {
  if (x.numel() == 0) return sums.zero();
  row_sums_kernel.get(x.device())(x, sums);
}

namespace {

constexpr const char* kName = "sparse_batch_norm";

Tensor by_channel(const Tensor& like) {
  return Tensor::empty({like.dim(1)}, DType::f64, like.device());
}

// Inputs: x, weight and bias.
class RowNorm final : public Operation {
 public:
  // Without `mean`, the statistics are those of x (training mode).
  RowNorm(const Tensor& mean, const Tensor& variance, double eps, BatchNormStatistics* statistics)
      : Operation(kName), trains_(!mean.defined()), eps_(eps), out_(statistics) {
    if (trains_) return;
    // Copies the running statistics, because the next training step updates them.
    use_.mean = mean.dtype() == DType::f64 ? mean.clone() : mean.to(DType::f64);
    use_.variance = variance;
  }

  TensorDesc bind(Graph& graph) override {
    expect_eager(&graph);
    check_real_inputs(graph, *this);
    const TensorDesc& x = graph.desc(inputs[0]);
    CONVSCOPE_CHECK(x.shape.rank() == 2, kName, "expected rows x [n,C], got ", x.str());
    const Shape channels{x.shape[1]};
    for (const Shape& given : {graph.shape(inputs[1]), graph.shape(inputs[2])}) {
      CONVSCOPE_CHECK(given == channels, kName, "expected weight and bias ", channels,
                      " because x is ", x.str(), ", got ", given);
    }
    CONVSCOPE_CHECK(trains_ || (use_.mean.shape() == channels && use_.variance.shape() == channels),
                    kName, "expected mean and variance ", channels, ", got ", use_.mean.str(),
                    " and ", use_.variance.str());
    return x;
  }

  void forward(Emitter& emitter) override {
    const Tensor x = emitter.value(inputs[0]), y = emitter.value(output());
    emitter.call([&] {
      if (trains_) {
        use_ = {.mean = by_channel(x), .variance = by_channel(x), .inverse_deviation = {}};
        row_moments_kernel.get(x.device())(x, use_.mean, use_.variance);
      }
      use_.inverse_deviation = by_channel(x);
      batch_norm_inverse_deviation(use_.variance, eps_, use_.inverse_deviation);
      if (out_ != nullptr) *out_ = use_;
      const Tensor factor = by_channel(x), shift = by_channel(x);
      batch_norm_factors(emitter.value(inputs[1]), emitter.value(inputs[2]), use_.inverse_deviation,
                         factor, shift);
      row_apply_kernel.get(x.device())(x, use_.mean, factor, shift, y);
    });
  }

  void backward(Emitter& emitter) override {
    const Graph& graph = emitter.graph();
    const Tensor x = emitter.value(inputs[0]), dy = emitter.gradient(output());
    const Shape channels{x.dim(1)};
    const Tensor sum_dy = emitter.use(emitter.slot(channels, DType::f64));
    const Tensor sum_dy_x = emitter.use(emitter.slot(channels, DType::f64));
    emitter.call(
        [&] { row_gradient_sums_kernel.get(x.device())(dy, x, use_.mean, sum_dy, sum_dy_x); });
    if (graph.wants_gradient(inputs[0])) {
      const Tensor weight = emitter.value(inputs[1]);
      emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
        emitter.call([&] { emit_dx(x, weight, dy, sum_dy, sum_dy_x, dx); });
      });
    }
    emit_sums(emitter, inputs[1], sum_dy_x, use_.inverse_deviation);
    emit_sums(emitter, inputs[2], sum_dy, Tensor());
  }

 private:
  void emit_dx(const Tensor& x, const Tensor& weight, const Tensor& dy, const Tensor& sum_dy,
               const Tensor& sum_dy_x, const Tensor& dx) const {
    const Tensor a = by_channel(x), b = by_channel(x), d = by_channel(x);
    batch_norm_gradient_factors(weight, use_.inverse_deviation, sum_dy, sum_dy_x,
                                static_cast<double>(x.dim(0)), trains_, a, b, d);
    row_gradient_kernel.get(x.device())(dy, x, use_.mean, a, b, d, dx);
  }
  static void emit_sums(Emitter& emitter, ValueId value, const Tensor& sums, const Tensor& scale) {
    if (!emitter.graph().wants_gradient(value)) return;
    const Emitter::Target to = emitter.gradient_target(value);
    emitter.call([&] { batch_norm_parameter_gradient(sums, scale, to.tensor, to.accumulate); });
  }

  bool trains_;
  double eps_;
  BatchNormStatistics* out_;
  BatchNormStatistics use_;
};

}  // namespace

Variable row_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps,
                  BatchNormStatistics* statistics) {
  return apply(std::make_unique<RowNorm>(Tensor(), Tensor(), eps, statistics), {x, weight, bias});
}

Variable row_norm(const Variable& x, const Variable& weight, const Variable& bias,
                  const Tensor& mean, const Tensor& variance, double eps) {
  return apply(std::make_unique<RowNorm>(mean, variance, eps, nullptr), {x, weight, bias});
}

SparseBatchNorm::SparseBatchNorm(std::int64_t channels, const BatchNormOptions& options,
                                 LayerContext& context)
    : channels_(channels), options_(options) {
  CONVSCOPE_CHECK(
      channels >= 1 && options.eps >= 0 && options.momentum >= 0 && options.momentum <= 1, kName,
      "expected at least one channel, momentum in [0,1] and eps >= 0, got ", channels, ", ",
      options.momentum, " and ", options.eps);
  const auto full = [&](double value) {
    return Tensor::full({channels}, value, DType::f32, context.device);
  };
  weight_ = add_parameter("weight", full(1));
  bias_ = add_parameter("bias", full(0));
  add_buffer("running_mean", running_mean_, full(0));
  add_buffer("running_var", running_var_, full(1));
}

Variable SparseBatchNorm::forward(const Variable& x) {
  if (!is_training()) {
    return row_norm(x, weight_, bias_, running_mean_, running_var_, options_.eps);
  }
  BatchNormStatistics batch;
  const Variable y = row_norm(x, weight_, bias_, options_.eps, &batch);
  // A single row has no meaningful variance, so it does not change the running statistics.
  if (x.dim(0) > 1) {
    batch_norm_move_running(batch.mean, batch.variance, static_cast<double>(x.dim(0)),
                            options_.momentum, running_mean_, running_var_);
  }
  return y;
}

Shape SparseBatchNorm::output_shape(const Shape& input) const {
  CONVSCOPE_CHECK(input.rank() >= 2 && input[1] == channels_, kName, "expected rows of ", channels_,
                  " channels, got those of ", input);
  return input;
}

CONVSCOPE_REGISTER_LAYER("sparse_batch_norm",
                         {.doc = "batch norm over the active sites, then a scale and a shift",
                          .fields = BatchNormOptions::fields(),
                          .build = [](const Options& options, const Shape& input,
                                      LayerContext& context) -> std::shared_ptr<Module> {
                            expect_rows(kName, input, context);
                            return std::make_shared<SparseBatchNorm>(
                                input[1], BatchNormOptions::of(options), context);
                          },
                          .takes_rows = true})

}  // namespace convscope
