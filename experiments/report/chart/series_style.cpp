// SPDX-License-Identifier: Apache-2.0
// series_style.cpp: styles of series: colour, dashes and shape of marks together, so that
// colour-blind readers and black-and-white prints do not depend on the colour.
#include "experiments/report/chart/series_style.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "experiments/report/chart/svg_text.h"

namespace convscope {
namespace {

constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#aa4499",
                                   "#000000", "#c98500", "#3d9bd1", "#777777"};
constexpr const char* kDashes[] = {"",    "7 3", "2 2",  "9 3 2 3",
                                   "4 2", "1 3", "12 4", "6 2 2 2 2 2"};
constexpr int kShapes = 8;

// The first eight names have fixed colours. For any other name, a hash of the name selects one of
// the later styles.
constexpr std::string_view kAlgorithms[] = {"direct",
                                            "im2col_gemm",
                                            "winograd_f4x3",
                                            "fft",
                                            "depthwise",
                                            "direct_batch_lanes",
                                            "winograd_f2x3",
                                            "gemm_1x1",
                                            "winograd_f6x3",
                                            "im2col_gemm_eigen",
                                            "implicit_gemm",
                                            "lanes_chain",
                                            "direct_lesson",
                                            "im2col_gemm_lesson",
                                            "winograd_lesson",
                                            "fft_lesson",
                                            "depthwise_lesson",
                                            "gemm_1x1_lesson",
                                            "few_channel_chain",
                                            "implicit_gemm_lesson",
                                            "reference",
                                            "winograd",
                                            "batch_lanes",
                                            "block_sparse",
                                            "block_sparse_lesson",
                                            "int8_direct",
                                            "int8_block_sparse",
                                            "int8_depthwise",
                                            "int8_lesson",
                                            "fused",
                                            "fused_lesson",
                                            "depthwise_nhwc",
                                            "direct_nchw16c",
                                            "direct_small_groups",
                                            "direct_sample",
                                            "direct_any"};

// Returns the path of a unit shape around (0, 0), scaled by r.
std::string shape_path(int shape, double x, double y, double r) {
  const auto polygon = [&](std::initializer_list<std::pair<double, double>> corners) {
    std::string path;
    for (const auto& [dx, dy] : corners) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x + dx * r, y + dy * r);
    }
    return path + "Z";
  };
  switch (shape) {
    case 0:  // circle, as two arcs
      return fmt::format(
          "M{0:.1f} {1:.1f}a{2:.1f} {2:.1f} 0 1 0 {3:.1f} 0a{2:.1f} {2:.1f} 0 1 0 "
          "-{3:.1f} 0Z",
          x - r, y, r, 2 * r);
    case 1:  // square
      return polygon({{-.9, -.9}, {.9, -.9}, {.9, .9}, {-.9, .9}});
    case 2:  // triangle up
      return polygon({{0, -1.2}, {1.1, .9}, {-1.1, .9}});
    case 3:  // diamond
      return polygon({{0, -1.3}, {1.3, 0}, {0, 1.3}, {-1.3, 0}});
    case 4:  // triangle down
      return polygon({{0, 1.2}, {1.1, -.9}, {-1.1, -.9}});
    case 5:  // plus
      return polygon({{-.4, -1.2},
                      {.4, -1.2},
                      {.4, -.4},
                      {1.2, -.4},
                      {1.2, .4},
                      {.4, .4},
                      {.4, 1.2},
                      {-.4, 1.2},
                      {-.4, .4},
                      {-1.2, .4},
                      {-1.2, -.4},
                      {-.4, -.4}});
    case 6:  // cross
      return polygon({{-1.2, -.7},
                      {-.7, -1.2},
                      {0, -.5},
                      {.7, -1.2},
                      {1.2, -.7},
                      {.5, 0},
                      {1.2, .7},
                      {.7, 1.2},
                      {0, .5},
                      {-.7, 1.2},
                      {-1.2, .7},
                      {-.5, 0}});
    default:  // hourglass
      return polygon({{-1, -1.1}, {1, -1.1}, {-1, 1.1}, {1, 1.1}});
  }
}

}  // namespace

int algorithm_style(std::string_view name) {
  const auto* const known = std::find(std::begin(kAlgorithms), std::end(kAlgorithms), name);
  if (known != std::end(kAlgorithms)) return static_cast<int>(known - std::begin(kAlgorithms));
  constexpr auto kFirst = static_cast<std::uint32_t>(std::size(kAlgorithms));
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return static_cast<int>(kFirst + hash % (kStyles - kFirst));
}

const char* style_color(int style) {
  return kColors[static_cast<std::size_t>(style) % std::size(kColors)];
}

const char* style_dashes(int style) {
  return kDashes[static_cast<std::size_t>(style + style / 8) % std::size(kDashes)];
}

std::string style_mark(int style, double x, double y, double radius, bool hollow,
                       const std::string& title, const char* color) {
  if (color == nullptr) color = style_color(style);
  const int shape = (style + 3 * (style / kShapes)) % kShapes;
  std::string out = fmt::format("<path d=\"{}\" fill=\"{}\" stroke=\"{}\" stroke-width=\"1.2\"",
                                shape_path(shape, x, y, radius), hollow ? "#fff" : color, color);
  return title.empty() ? out + "/>" : out + "><title>" + escape_markup(title) + "</title></path>";
}

}  // namespace convscope
