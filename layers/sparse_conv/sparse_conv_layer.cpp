// SPDX-License-Identifier: Apache-2.0
// sparse_conv_layer.cpp: the layers, and their keys in a config.
#include "layers/dispatch/operator_use.h"
#include "layers/init.h"
#include "layers/sparse_conv/sparse_conv.h"
#include "layers/sparse_rows/row_layers.h"

namespace convscope {
namespace {

const char* layer_name_of(SparseKind kind) {
  switch (kind) {
    case SparseKind::submanifold:
      return "submanifold_conv";
    case SparseKind::strided:
      return "sparse_conv";
    case SparseKind::inverse:
      return "sparse_inverse_conv";
  }
  return "";
}

// Returns a centred kernel; throws Error unless its size is odd.
SparseKernel centred_kernel(const Options& options, const SiteLevels& levels, int level) {
  const SparseKernel given = kernel_of(options, levels.rank(), "submanifold_conv");
  const auto none =
      std::make_shared<const SparseSites>(std::vector<std::uint64_t>(), levels.grid(level));
  return SparseMap::submanifold(none, given)->kernel();
}

// Returns the level that the inverse leads back to.
int level_to_undo(const Options& options, const RowsOfSites& rows) {
  constexpr const char* kName = "sparse_inverse_conv";
  std::vector<std::string> known, here;
  for (const RowsOfSites::Step& step : rows.steps) {
    known.push_back(step.layer);
    if (step.level == rows.level) here.push_back(step.layer);
  }
  if (rows.levels->finer(rows.level) < 0) {
    fail(ErrorKind::kConfig, kName,
         cat("expected a strided step to undo, got rows on the sites that '", rows.made_by,
             "' makes; a 'sparse_conv' or a pool before it is such a step",
             known.empty() ? "" : cat(" (undone already: ", join(known), ")")));
  }
  if (!options.has("undo")) return rows.levels->finer(rows.level);
  const std::string& name = options.text("undo");
  for (const std::string& layer : here) {
    if (layer == name) return rows.levels->finer(rows.level);
  }
  const std::string near = nearest_word(name, here);
  fail(
      ErrorKind::kConfig, kName,
      cat("expected 'undo' to name the layer that led to the sites which arrive here, ", join(here),
          ", got '", name, "'", near.empty() ? "" : cat("; did you mean '", near, "'?")));
}

std::vector<OptionField> fields(SparseKind kind) {
  using enum OptionType;
  std::vector<OptionField> out = {{.name = "out_channels",
                                   .type = integer,
                                   .doc = "number of kernels, K",
                                   .required = true,
                                   .min = 1,
                                   .max = 1 << 20}};
  if (kind == SparseKind::inverse) {
    out.push_back({.name = "undo",
                   .type = text,
                   .doc = "strided layer to invert, with its kernel (default: the last one)"});
  } else {
    for (OptionField& field : kernel_fields(kind == SparseKind::strided)) {
      out.push_back(std::move(field));
    }
  }
  out.push_back({.name = "bias", .type = boolean, .default_value = true, .doc = "add a bias"});
  out.push_back({.name = "algorithm",
                 .type = text,
                 .default_value = std::string("auto"),
                 .doc = "algorithm: auto, measure, check:<a>,<b>, a name, or a list 'a,b,auto'"});
  for (const char* direction : {"backward_data", "backward_weight"}) {
    out.push_back({.name = direction,
                   .type = text,
                   .doc = cat("the algorithm of ", direction, "; default: that of 'algorithm'")});
  }
  out.push_back(init_field());
  return out;
}

AlgorithmPolicy policy_of(const Options& options) {
  const std::string& all = options.text("algorithm");
  const auto own = [&](const char* direction) {
    return options.has(direction) ? options.text(direction) : all;
  };
  return {all, own("backward_data"), own("backward_weight")};
}

template <SparseKind kKind>
std::shared_ptr<Module> build(const Options& options, const Shape& input, LayerContext& context) {
  const char* const operation = layer_name_of(kKind);
  expect_rows(operation, input, context);
  RowsOfSites& rows = context.rows;
  SparseConvOptions own{.kind = kKind,
                        .in_channels = input[1],
                        .out_channels = options.integer("out_channels"),
                        .bias = options.flag("bias"),
                        .init = options.text("init"),
                        .policy = policy_of(options),
                        .name = context.layer_name};
  const int from = rows.level;
  int to = from;
  if constexpr (kKind == SparseKind::submanifold) {
    own.kernel = centred_kernel(options, *rows.levels, from);
  } else if constexpr (kKind == SparseKind::strided) {
    to = rows.levels->coarser(from, kernel_of(options, rows.levels->rank(), operation));
  } else {
    to = level_to_undo(options, rows);
  }
  auto layer = std::make_shared<SparseConv>(own, rows.levels, from, to, context);
  rows.level = to;
  if constexpr (kKind == SparseKind::strided) rows.steps.push_back({context.layer_name, to});
  return layer;
}

}  // namespace

SparseConv::SparseConv(const SparseConvOptions& options, SharedLevels levels, int from, int to,
                       LayerContext& context)
    : options_(options), levels_(std::move(levels)), from_(from), to_(to) {
  const char* const operation = layer_name_of(options_.kind);
  if (options_.kind == SparseKind::strided) options_.kernel = levels_->step(to);
  if (options_.kind == SparseKind::inverse) options_.kernel = levels_->step(from);
  const bool fits = options_.kind == SparseKind::submanifold ? from == to
                    : options_.kind == SparseKind::strided   ? levels_->finer(to) == from
                                                             : levels_->finer(from) == to;
  CONVSCOPE_CHECK(fits, operation, "expected levels with a step between them, got ", from, " and ",
                  to);
  CONVSCOPE_CHECK(options_.in_channels >= 1 && options_.out_channels >= 1, operation,
                  "expected at least one channel, got ", options_.in_channels, " and ",
                  options_.out_channels);
  for (const Direction direction : kDirections) {
    check_policy(operation, options_.policy.of(direction), context.device,
                 sparse_conv_algorithms(context.device.type).names());
  }
  params_ = {.precision = context.precision, .policy = options_.policy, .layer = options_.name};
  Shape shape{options_.out_channels, options_.in_channels};
  for (int axis = 3 - levels_->rank(); axis < 3; ++axis) {
    shape.push_back(options_.kernel.size[static_cast<std::size_t>(axis)]);
  }
  const std::int64_t fan_in = options_.in_channels * options_.kernel.taps();
  weight_ = add_parameter("weight", initial_weight(options_.init, shape, fan_in, context));
  if (options_.bias) {
    bias_ = add_parameter("bias",
                          initial_bias(options_.init, {options_.out_channels}, fan_in, context));
  }
}

std::string SparseConv::kind() const { return layer_name_of(options_.kind); }

SharedMap SparseConv::map() const {
  switch (options_.kind) {
    case SparseKind::submanifold:
      return levels_->submanifold(from_, options_.kernel);
    case SparseKind::strided:
      return levels_->strided(to_);
    case SparseKind::inverse:
      return levels_->inverse(from_);
  }
  return nullptr;
}

Variable SparseConv::forward(const Variable& x) {
  const char* const operation = layer_name_of(options_.kind);
  check_rows(operation, *levels_, from_, x.value());
  return sparse_conv(transformed_input(x), transformed_weight(weight_), bias_, map(), params_);
}

Shape SparseConv::output_shape(const Shape& input) const {
  check_shape_of_rows(layer_name_of(options_.kind), *levels_, from_, options_.in_channels, input);
  return shape_of_rows(*levels_, to_, input[0], options_.out_channels);
}

std::unique_ptr<OperatorUse> SparseConv::operator_use(const Shape& input) const {
  output_shape(input);  // throws Error when it does not fit
  const SharedMap batch_map = map();
  return operator_use_of(
      sparse_conv_problem(batch_map, {batch_map->in_sites()->count(), options_.in_channels},
                          weight_.shape(), params_.precision),
      options_.policy, options_.name);
}

}  // namespace convscope

CONVSCOPE_REGISTER_LAYER(
    "submanifold_conv",
    {.doc = "a convolution only at the sites of its input: the rest of the grid stays empty",
     .fields = convscope::fields(convscope::SparseKind::submanifold),
     .build = convscope::build<convscope::SparseKind::submanifold>,
     .takes_rows = true})
CONVSCOPE_REGISTER_LAYER(
    "sparse_conv", {.doc = "a strided convolution with outputs wherever its kernel covers a site",
                    .fields = convscope::fields(convscope::SparseKind::strided),
                    .build = convscope::build<convscope::SparseKind::strided>,
                    .takes_rows = true})
CONVSCOPE_REGISTER_LAYER("sparse_inverse_conv",
                         {.doc = "an inverse convolution: from coarse sites back to the finer "
                                 "input sites of a strided layer",
                          .fields = convscope::fields(convscope::SparseKind::inverse),
                          .build = convscope::build<convscope::SparseKind::inverse>,
                          .takes_rows = true})
