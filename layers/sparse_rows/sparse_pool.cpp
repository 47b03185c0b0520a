// SPDX-License-Identifier: Apache-2.0
// sparse_pool.cpp: pools over the existing sites.
#include "layers/sparse_rows/sparse_pool.h"

#include "framework/graph/simple_operation.h"
#include "layers/sparse_conv/levels.h"

namespace convscope {
namespace {

const char* type_of(PoolMode mode) {
  return mode == PoolMode::max ? "sparse_max_pool" : "sparse_avg_pool";
}

class PoolRows final : public SimpleOperation {
 public:
  PoolRows(const PoolLists& lists, PoolMode mode)
      : SimpleOperation("sparse_pool"), lists_(lists), mode_(mode) {}

  TensorDesc bind(Graph& graph) override {
    expect_eager(&graph);
    return SimpleOperation::bind(graph);
  }
  Shape output_shape(const std::vector<Shape>& x) const override {
    CONVSCOPE_CHECK(x[0].rank() == 2 && x[0][0] == lists_.by_input.count(), "sparse_pool",
                    "expected rows x [", lists_.by_input.count(), ",C], got ", x[0]);
    return {lists_.by_output.count(), x[0][1]};
  }
  Keeps keeps(const std::vector<Shape>& x) const override {
    if (mode_ != PoolMode::max) return {};
    return {.saved = {{output_shape(x), DType::i32}}};  // the chosen rows
  }
  void run(const Forward& a) const override {
    if (mode_ != PoolMode::max) {
      return list_mean_kernel.get(a.device())(a.x[0], lists_.by_output, a.y);
    }
    const Tensor chosen =
        a.saved[0].defined() ? a.saved[0] : Tensor::empty(a.y.shape(), DType::i32, a.device());
    list_max_kernel.get(a.device())(a.x[0], lists_.by_output, a.y, chosen);
  }
  void run(const Backward& a) const override {
    if (a.dx[0].numel() == 0) return;
    if (mode_ == PoolMode::max) {
      list_max_gradient_kernel.get(a.device())(a.dy, lists_.by_input, a.saved[0], a.dx[0]);
    } else {
      list_mean_gradient_kernel.get(a.device())(a.dy, lists_, a.dx[0]);
    }
  }

 private:
  PoolLists lists_;
  PoolMode mode_;
};

}  // namespace

Variable pool_rows(const Variable& x, const PoolLists& lists, PoolMode mode) {
  return apply(std::make_unique<PoolRows>(lists, mode), {x});
}

Variable sparse_pool(const Variable& x, const SparseMap& map, PoolMode mode) {
  return pool_rows(x, pool_lists(map, x.device()), mode);
}

Variable sparse_global_pool(const Variable& x, const SparseSites& sites, PoolMode mode) {
  return pool_rows(x, sample_lists(sites, x.device()), mode);
}

SparsePool::SparsePool(PoolMode mode, SharedLevels levels, int to)
    : mode_(mode), levels_(std::move(levels)), to_(to) {}

std::string SparsePool::kind() const { return type_of(mode_); }

Variable SparsePool::forward(const Variable& x) {
  check_rows(type_of(mode_), *levels_, levels_->finer(to_), x.value());
  return sparse_pool(x, *levels_->strided(to_), mode_);
}

Shape SparsePool::output_shape(const Shape& input) const {
  check_shape_of_rows(type_of(mode_), *levels_, levels_->finer(to_), -1, input);
  return shape_of_rows(*levels_, to_, input[0], input[1]);
}

SparseGlobalPool::SparseGlobalPool(PoolMode mode, SharedLevels levels, int level)
    : mode_(mode), levels_(std::move(levels)), level_(level) {}

Variable SparseGlobalPool::forward(const Variable& x) {
  check_rows("sparse_global_pool", *levels_, level_, x.value());
  return sparse_global_pool(x, *levels_->sites(level_), mode_);
}

Shape SparseGlobalPool::output_shape(const Shape& input) const {
  check_shape_of_rows("sparse_global_pool", *levels_, level_, -1, input);
  return {input[0], input[1]};
}

namespace {

template <PoolMode kMode>
std::shared_ptr<Module> build_pool(const Options& options, const Shape& input,
                                   LayerContext& context) {
  expect_rows(type_of(kMode), input, context);
  RowsOfSites& rows = context.rows;
  SparseKernel kernel = kernel_of(options, rows.levels->rank(), type_of(kMode));
  if (!options.has("stride")) kernel.stride = kernel.size;
  const int to = rows.levels->coarser(rows.level, kernel);
  auto layer = std::make_shared<SparsePool>(kMode, rows.levels, to);
  rows.level = to;
  rows.steps.push_back({context.layer_name, to});
  return layer;
}

std::vector<OptionField> pool_fields() {
  std::vector<OptionField> out = kernel_fields(/*strided=*/true);
  for (OptionField& field : out) {
    if (field.name != "stride") continue;
    field.default_value = {};
    field.doc = "stride in grid cells: one number or one per axis (default kernel_size)";
  }
  return out;
}

}  // namespace

CONVSCOPE_REGISTER_LAYER("sparse_max_pool",
                         {.doc = "the maximum over the sites in each window that has any",
                          .fields = pool_fields(),
                          .build = build_pool<PoolMode::max>,
                          .takes_rows = true})
CONVSCOPE_REGISTER_LAYER("sparse_avg_pool",
                         {.doc = "the mean over the sites in each window that has any",
                          .fields = pool_fields(),
                          .build = build_pool<PoolMode::avg>,
                          .takes_rows = true})
CONVSCOPE_REGISTER_LAYER(
    "sparse_global_pool",
    {.doc = "one vector per sample: mean or maximum over its sites; 0 without sites",
     .fields = {{.name = "mode",
                 .type = OptionType::text,
                 .default_value = std::string("avg"),
                 .doc = "pooling: max or avg",
                 .choices = {"max", "avg"}}},
     .build = [](const Options& options, const Shape& input,
                 LayerContext& context) -> std::shared_ptr<Module> {
       expect_rows("sparse_global_pool", input, context);
       const PoolMode mode = options.text("mode") == "max" ? PoolMode::max : PoolMode::avg;
       auto layer =
           std::make_shared<SparseGlobalPool>(mode, context.rows.levels, context.rows.level);
       context.rows = {};
       return layer;
     },
     .takes_rows = true})

}  // namespace convscope
