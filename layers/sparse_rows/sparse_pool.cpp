// SPDX-License-Identifier: Apache-2.0
// sparse_pool.cpp: pools over the existing sites.
#include "layers/sparse_rows/sparse_pool.h"

#include "layers/sparse_conv/levels.h"

namespace convscope {
namespace {

constexpr const char* kName = "sparse_pool";

const char* type_of(PoolMode mode) {
  return mode == PoolMode::max ? "sparse_max_pool" : "sparse_avg_pool";
}

}  // namespace

Variable pool_rows(const Variable& x, const PoolLists& lists, PoolMode mode) {
  const Tensor& from = x.value();
  CONVSCOPE_CHECK(from.rank() == 2 && from.dim(0) == lists.by_input.count() &&
                      (from.dtype() == DType::f32 || from.dtype() == DType::f64),
                  kName, "expected rows x [", lists.by_input.count(),
                  ",C] of type f32 or f64, got ", from.str());
  const Device device = from.device();
  const Shape y_shape{lists.by_output.count(), from.dim(1)};
  const Tensor y = Tensor::empty(y_shape, from.dtype(), device);
  const Tensor arg = mode == PoolMode::max ? Tensor::empty(y_shape, DType::i32, device) : Tensor();
  if (y.numel() > 0) {
    if (mode == PoolMode::max) {
      list_max_kernel.get(device)(from, lists.by_output, y, arg);
    } else {
      list_mean_kernel.get(device)(from, lists.by_output, y);
    }
  }
  return record(kName, y, {x},
                [lists, arg, mode, shape = from.shape()](const Tensor& dy, GradientSink& out) {
                  const Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
                  if (dx.numel() > 0 && dy.numel() > 0) {
                    if (mode == PoolMode::max) {
                      list_max_gradient_kernel.get(dy.device())(dy, lists.by_input, arg, dx);
                    } else {
                      list_mean_gradient_kernel.get(dy.device())(dy, lists, dx);
                    }
                  } else {
                    dx.zero();
                  }
                  out.add(0, dx);
                });
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
