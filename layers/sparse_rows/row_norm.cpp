// SPDX-License-Identifier: Apache-2.0
// row_norm.cpp: batch norm of rows [n,C].
#include "layers/sparse_rows/row_norm.h"

#include "framework/graph/apply.h"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/batch_norm2d/batch_norm_op.h"
#include "layers/sparse_rows/row_layers.h"
#include "layers/sparse_rows/row_sums.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&)> row_sums_kernel{"row_sums"};
constinit BatchNormStatisticsSlot row_moments_kernel{"sparse_batch_norm"};
constinit BatchNormApplySlot row_apply_kernel{"sparse_batch_norm"};
constinit BatchNormSumsSlot row_gradient_sums_kernel{"sparse_batch_norm"};
constinit BatchNormGradientSlot row_gradient_kernel{"sparse_batch_norm"};

void row_sums(const Tensor& x, const Tensor& sums) {
  if (x.numel() == 0) return sums.zero();
  row_sums_kernel.get(x.device())(x, sums);
}

namespace {

constexpr const char* kName = "sparse_batch_norm";

Tensor by_channel(const Tensor& like) {
  return Tensor::empty({like.dim(1)}, DType::f64, like.device());
}

void train(const BatchNormTrainArgs& a) {
  const Device device = a.x.device();
  row_moments_kernel.get(device)(a.x, a.mean, a.variance);
  batch_norm_inverse_deviation(a.variance, a.eps, a.inverse_deviation);
  const Tensor factor = by_channel(a.x), shift = by_channel(a.x);
  batch_norm_factors(a.weight, a.bias, a.inverse_deviation, factor, shift);
  row_apply_kernel.get(device)(a.x, a.mean, factor, shift, a.y);
}

void train_gradient(const BatchNormTrainGradientArgs& args) {
  const Device device = args.x.device();
  row_gradient_sums_kernel.get(device)(args.dy, args.x, args.mean, args.sum_dy, args.sum_dy_x);
  if (!args.dx.defined()) return;
  const Tensor a = by_channel(args.x), b = by_channel(args.x), d = by_channel(args.x);
  batch_norm_gradient_factors(args.weight, args.inverse_deviation, args.sum_dy, args.sum_dy_x,
                              static_cast<double>(args.x.dim(0)), /*training=*/true, a, b, d);
  row_gradient_kernel.get(device)(args.dy, args.x, args.mean, a, b, d, args.dx);
}

const BatchNormPasses row_passes{.name = kName,
                                 .rank = 2,
                                 .train = train,
                                 .train_gradient = train_gradient,
                                 .apply = row_apply_kernel,
                                 .sums = row_gradient_sums_kernel,
                                 .gradient = row_gradient_kernel};

class RowNorm final : public BatchNormOp {
 public:
  RowNorm(const Tensor& mean, const Tensor& variance, double eps, bool trains, double momentum,
          BatchNormStatistics* statistics = nullptr)
      : BatchNormOp(mean, variance, eps, trains, momentum, statistics, row_passes) {}
  TensorDesc bind(Graph& graph) override {
    expect_eager(&graph);
    return BatchNormOp::bind(graph);
  }
};

}  // namespace

Variable row_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps,
                  BatchNormStatistics* statistics) {
  return apply(std::make_unique<RowNorm>(Tensor(), Tensor(), eps, /*trains=*/true, 0.0, statistics),
               {x, weight, bias});
}

Variable row_norm(const Variable& x, const Variable& weight, const Variable& bias,
                  const Tensor& mean, const Tensor& variance, double eps) {
  return apply(std::make_unique<RowNorm>(mean, variance, eps, /*trains=*/false, 0.0),
               {x, weight, bias});
}

SparseBatchNorm::SparseBatchNorm(std::int64_t channels, const BatchNormOptions& options,
                                 LayerContext& context)
    : BatchNormLayer(kName, channels, options, context) {}

Variable SparseBatchNorm::forward(const Variable& x) {
  return apply(std::make_unique<RowNorm>(running_mean_, running_var_, options_.eps, trains_on(x),
                                         options_.momentum),
               {x, weight_, bias_});
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
