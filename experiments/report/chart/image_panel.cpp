// SPDX-License-Identifier: Apache-2.0
// image_panel.cpp: a grey image with dots. Pixels of one shade form one path, so that an image
// needs few kilobytes and stays sharp in any size.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "experiments/report/chart/panel.h"
#include "experiments/report/chart/series_style.h"

namespace convscope {
namespace {

constexpr double kBorder = 2;  // pixels around the image, for dots outside of it
constexpr double kLargest = 260;
constexpr int kShades = 16;

double pixel_size(const ImagePanel& panel, double width) {
  return std::min(width, kLargest) / (panel.columns + 2 * kBorder);
}

// The darkest shade is not black, so that dots are visible.
std::string color_of(int shade) {
  const int grey = 255 - 170 * shade / (kShades - 1);
  return fmt::format("#{0:02x}{0:02x}{0:02x}", grey);
}

}  // namespace

double height_of(const ImagePanel& panel, double width) {
  return pixel_size(panel, width) * (panel.rows + 2 * kBorder) + 6;
}

void draw(std::string& svg, const ImagePanel& panel, const Cell& cell) {
  draw_title(svg, panel.title, cell.x, cell);
  auto out = std::back_inserter(svg);
  const double size = pixel_size(panel, cell.width);
  const double left = cell.x + kBorder * size;
  const double top = cell.y + cell.title_height + kBorder * size;
  fmt::format_to(out, "<g transform=\"translate({:.1f} {:.1f}) scale({:.4f})\" ", left, top, size);
  svg += "shape-rendering=\"crispEdges\">\n";
  const auto shade_of = [&](int row, int column) {
    const double shade = panel.shades[static_cast<std::size_t>(row * panel.columns + column)];
    return static_cast<int>(std::lround(std::clamp(shade, 0.0, 1.0) * (kShades - 1)));
  };
  for (int shade = 1; shade < kShades; ++shade) {
    std::string path;
    for (int row = 0; row < panel.rows; ++row) {
      for (int column = 0; column < panel.columns; ++column) {
        const int first = column;
        while (column < panel.columns && shade_of(row, column) == shade) ++column;
        if (column == first) continue;
        path += fmt::format("M{} {}h{}v1h-{}z", first, row, column - first, column - first);
      }
    }
    if (!path.empty()) fmt::format_to(out, "<path fill=\"{}\" d=\"{}\"/>\n", color_of(shade), path);
  }
  fmt::format_to(out,
                 "</g>\n<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                 "fill=\"none\" stroke=\"#999\"/>\n",
                 left, top, size * panel.columns, size * panel.rows);

  // Converts a position to pixels of the figure. Positions beyond the border of the image are moved
  // to it.
  const auto x_of = [&](double x) {
    return left + size * std::clamp(x + 0.5, -kBorder, panel.columns + kBorder);
  };
  const auto y_of = [&](double y) {
    return top + size * std::clamp(y + 0.5, -kBorder, panel.rows + kBorder);
  };
  for (const ImagePanel::Dot& dot : panel.dots) {
    fmt::format_to(
        out, "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"{}\" stroke-width=\"1\"/>\n",
        x_of(dot.from_x), y_of(dot.from_y), x_of(dot.x), y_of(dot.y), style_color(panel.style));
  }
  for (const ImagePanel::Dot& dot : panel.dots) {
    svg += style_mark(panel.style, x_of(dot.from_x), y_of(dot.from_y), 1.8, true, "") + "\n";
  }
  for (const ImagePanel::Dot& dot : panel.dots) {
    const double radius = 1 + 4 * std::sqrt(std::clamp(dot.area, 0.0, 1.0));
    svg += style_mark(panel.style, x_of(dot.x), y_of(dot.y), radius, false, dot.title) + "\n";
  }
}

}  // namespace convscope
