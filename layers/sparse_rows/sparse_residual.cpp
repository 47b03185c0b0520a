// SPDX-License-Identifier: Apache-2.0
// sparse_residual.cpp: the basic block of a ResNet on rows of sites.
//
// Formula     y = relu(body(x) + shortcut(x)); body: two 3x3(x3) convolutions with batch norm
// Stride      with stride 1, both convolutions are submanifold. Otherwise the first convolution is
//             a strided step with padding 1. The shortcut is then the mean over the windows of the
//             same step, a convolution of size 1 and batch norm. Both paths lead to the same sites;
//             a strided convolution of size 1 would lead to other sites. ResNet-D (arXiv
//             1812.01187) also uses this mean
#include "layers/activation.h"
#include "layers/residual.h"
#include "layers/sparse_conv/sparse_conv.h"
#include "layers/sparse_rows/row_norm.h"
#include "layers/sparse_rows/sparse_pool.h"

namespace convscope {
namespace {

constexpr const char* kName = "sparse_residual";

SparseKernel cube(int rank, std::int64_t size, std::int64_t stride) {
  SparseKernel out;
  for (auto d = static_cast<std::size_t>(3 - rank); d < 3; ++d) {
    out.size[d] = size;
    out.stride[d] = stride;
    out.padding[d] = size / 2;
  }
  return out;
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, LayerContext& context) {
  expect_rows(kName, input, context);
  RowsOfSites& rows = context.rows;
  const SharedLevels levels = rows.levels;
  const std::int64_t in = input[1], out = options.integer("out_channels");
  const std::int64_t stride = options.integer("stride");
  const std::string& algorithm = options.text("algorithm");
  const int from = rows.level;
  const int to = stride == 1 ? from : levels->coarser(from, cube(levels->rank(), 3, stride));
  const auto conv = [&](const char* name, std::int64_t channels, std::int64_t size, int begin,
                        int end) {
    return std::make_shared<SparseConv>(
        SparseConvOptions{.kind = begin == end ? SparseKind::submanifold : SparseKind::strided,
                          .in_channels = channels,
                          .out_channels = out,
                          .kernel = cube(levels->rank(), size, 1),
                          .bias = false,
                          .init = "kaiming_normal",
                          .policy = {algorithm, algorithm, algorithm},
                          .name = cat(context.layer_name, ".", name)},
        levels, begin, end, context);
  };
  const auto norm = [&] {
    return std::make_shared<SparseBatchNorm>(out, BatchNormOptions{}, context);
  };
  const auto first = conv("conv1", in, 3, from, to);
  const auto second = conv("conv2", out, 3, to, to);
  std::shared_ptr<Sequential> shortcut;
  if (stride != 1 || in != out) {
    shortcut = std::make_shared<Sequential>();
    if (stride != 1) {
      shortcut->add("pool", std::make_shared<SparsePool>(PoolMode::avg, levels, to));
    }
    shortcut->add("conv", conv("downsample.conv", in, 1, to, to));
    shortcut->add("bn", norm());
  }
  rows.level = to;
  if (stride != 1) rows.steps.push_back({context.layer_name, to});
  return basic_block_of(first, second, norm, shortcut);
}

CONVSCOPE_REGISTER_LAYER(
    "sparse_residual",
    {.doc =
         "residual block: relu of the input plus two sparse convolutions of size 3 with batch norm",
     .fields = {{.name = "out_channels",
                 .type = OptionType::integer,
                 .doc = "number of kernels of both convolutions",
                 .required = true,
                 .min = 1,
                 .max = 1 << 20},
                {.name = "stride",
                 .type = OptionType::integer,
                 .default_value = std::int64_t{1},
                 .doc = "stride of the block, in grid cells",
                 .min = 1,
                 .max = 1 << 20},
                {.name = "algorithm",
                 .type = OptionType::text,
                 .default_value = std::string("auto"),
                 .doc = "algorithm of all its convolutions"}},
     .build = build,
     .takes_rows = true})

}  // namespace
}  // namespace convscope
