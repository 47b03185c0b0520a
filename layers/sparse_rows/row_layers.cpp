// SPDX-License-Identifier: Apache-2.0
// row_layers.cpp: code that layers on rows of sites share while a network is built.
#include "layers/sparse_rows/row_layers.h"

#include "framework/graph/graph.h"

namespace convscope {

void expect_rows(const char* operation, const Shape& input, const LayerContext& context) {
  if (context.rows.levels != nullptr) return;
  fail(ErrorKind::kConfig, operation,
       cat("expected rows of sites, got ", input,
           input.rank() == 3
               ? ", a list of points; put 'sparse_points' before it"
               : "; put 'to_sparse' before it, which takes the places of an image that are not 0"));
}

Shape shape_of_rows(const SiteLevels& levels, int level, std::int64_t samples,
                    std::int64_t channels) {
  SiteGrid grid = levels.grid(level);
  grid.batch = samples;
  return grid.dense_shape(channels);
}

void check_shape_of_rows(const char* operation, const SiteLevels& levels, int level,
                         std::int64_t channels, const Shape& input) {
  const bool has_axes = input.rank() >= 2;
  const std::int64_t wanted = channels < 0 && has_axes ? input[1] : channels;
  CONVSCOPE_CHECK(has_axes && input == shape_of_rows(levels, level, input[0], wanted), operation,
                  "expected rows that represent an image ",
                  shape_of_rows(levels, level, has_axes ? input[0] : 1, wanted < 0 ? 1 : wanted),
                  ", got ", input);
}

void check_has_batch(const char* operation, const SiteLevels& levels) {
  CONVSCOPE_CHECK(levels.has_batch(), operation,
                  "expected the sites of a batch, got none yet: the layer that makes rows "
                  "('sparse_points', 'to_sparse') runs first, or SiteLevels::begin()");
}

void expect_eager(const Graph* graph) {
  if (graph == nullptr || graph->is_eager()) return;
  graph->refuse("its sites change from batch to batch");
}

void check_rows(const char* operation, SiteLevels& levels, int level, const Tensor& x) {
  check_has_batch(operation, levels);
  const std::int64_t count = levels.sites(level)->count();
  CONVSCOPE_CHECK(x.rank() == 2 && x.dim(0) == count, operation, "expected x [", count,
                  ",C], a row for each site of level ", level, " of the batch, got ", x.str());
}

namespace {

// Reads one number for all axes, or one for each axis. In 2-D, axis T keeps its default.
void read_axes(const Options& options, std::string_view name, int rank, const char* operation,
               std::array<std::int64_t, 3>& out) {
  if (!options.has(name)) return;
  const std::vector<std::int64_t>& v = options.integers(name);
  CONVSCOPE_CHECK(v.size() == 1 || v.size() == static_cast<std::size_t>(rank), operation,
                  "expected '", name, "' to be one number or ", rank, " (",
                  rank == 3 ? "[t, h, w]" : "[h, w]", "), got ", to_text(options.get(name)));
  for (int d = 0; d < rank; ++d) {
    out[static_cast<std::size_t>(3 - rank + d)] =
        v.size() == 1 ? v[0] : v[static_cast<std::size_t>(d)];
  }
}

}  // namespace

SparseKernel kernel_of(const Options& options, int rank, const char* operation) {
  SparseKernel out;
  read_axes(options, "kernel_size", rank, operation, out.size);
  read_axes(options, "dilation", rank, operation, out.dilation);
  read_axes(options, "padding", rank, operation, out.padding);
  read_axes(options, "stride", rank, operation, out.stride);
  return out;
}

std::vector<OptionField> kernel_fields(bool strided) {
  using Integers = std::vector<std::int64_t>;
  constexpr double kMax = 1 << 20;
  std::vector<OptionField> out = {{.name = "kernel_size",
                                   .type = OptionType::integers,
                                   .doc = "kernel size in grid cells: one number or one per axis",
                                   .required = true,
                                   .min = 1,
                                   .max = kMax}};
  if (strided) {
    out.push_back({.name = "stride",
                   .type = OptionType::integers,
                   .default_value = Integers{2},
                   .doc = "stride in grid cells: one number or one per axis",
                   .min = 1,
                   .max = kMax});
    out.push_back({.name = "padding",
                   .type = OptionType::integers,
                   .default_value = Integers{0},
                   .doc = "padding in grid cells: one number or one per axis",
                   .min = 0,
                   .max = kMax});
  }
  out.push_back({.name = "dilation",
                 .type = OptionType::integers,
                 .default_value = Integers{1},
                 .doc = "dilation in grid cells: one number or one per axis",
                 .min = 1,
                 .max = kMax});
  return out;
}

}  // namespace convscope
