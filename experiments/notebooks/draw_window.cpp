// SPDX-License-Identifier: Apache-2.0
// draw_window.cpp: draws what a convolution reads: a tile of outputs, and the pixels of one plane
// of x that it needs.
#include "experiments/notebooks/draw_window.h"

#include <algorithm>
#include <vector>

#include "experiments/notebooks/display.h"
#include "experiments/report/chart/svg_text.h"

namespace convscope {
namespace {

constexpr std::int64_t kMaxRows = 24, kMaxColumns = 32;
constexpr double kMargin = 14, kGap = 64, kWidth = 720, kTitle = 44, kFoot = 40;

std::string rect(double x, double y, double size, const char* look) {
  return cat("<rect x=\"", number_text(x, 5), "\" y=\"", number_text(y, 5), "\" width=\"",
             number_text(size, 4), "\" height=\"", number_text(size, 4), "\" ", look, "/>");
}
std::string text(double x, double y, const std::string& words, const std::string& look) {
  return cat("<text x=\"", number_text(x, 5), "\" y=\"", number_text(y, 5), "\" ", look, ">",
             escape_markup(words), "</text>\n");
}

// Returns a shade from light blue (one output of the tile reads the pixel) to dark blue (many do).
std::string color_of(std::int64_t reads, std::int64_t most) {
  const double at = static_cast<double>(reads) / static_cast<double>(most);
  const auto mix = [&](int light, int dark) {
    return std::to_string(static_cast<int>(light + at * (dark - light)));
  };
  return cat("rgb(", mix(205, 8), ",", mix(225, 63), ",", mix(242, 122), ")");
}

// Returns how often each pixel of the plane with its padding is read.
std::vector<std::int64_t> reads_of(const Conv2dProblem& z, const OutputTile& tile) {
  const std::int64_t width = z.pad_left + z.w + z.pad_right;
  std::vector<std::int64_t> reads(
      static_cast<std::size_t>((z.pad_top + z.h + z.pad_bottom) * width));
  for (std::int64_t p = tile.p; p < tile.p + tile.rows; ++p) {
    for (std::int64_t q = tile.q; q < tile.q + tile.columns; ++q) {
      for (std::int64_t r = 0; r < z.r; ++r) {
        for (std::int64_t s = 0; s < z.s; ++s) {
          const std::int64_t row = p * z.stride_h + r * z.dilation_h;
          ++reads[static_cast<std::size_t>(row * width + q * z.stride_w + s * z.dilation_w)];
        }
      }
    }
  }
  return reads;
}

// Returns the tap that multiplies this pixel in the single output of a tile: "0,2".
std::string tap_text(const Conv2dProblem& z, const OutputTile& tile, std::int64_t row,
                     std::int64_t column) {
  return cat((row - tile.p * z.stride_h) / z.dilation_h, ",",
             (column - tile.q * z.stride_w) / z.dilation_w);
}

void check_picture(const Conv2dProblem& z, const OutputTile& tile, const Tensor& x) {
  z.check();
  const std::int64_t rows = z.pad_top + z.h + z.pad_bottom,
                     columns = z.pad_left + z.w + z.pad_right;
  CONVSCOPE_CHECK(rows <= kMaxRows && columns <= kMaxColumns, "draw_window",
                  "expected a plane of at most ", kMaxRows, "x", kMaxColumns,
                  " pixels with its frame, because they are drawn one by one, got ", rows, "x",
                  columns);
  CONVSCOPE_CHECK(tile.p >= 0 && tile.q >= 0 && tile.rows > 0 && tile.columns > 0 &&
                      tile.p + tile.rows <= z.p() && tile.q + tile.columns <= z.q(),
                  "draw_window", "expected a tile inside of y, which is ", z.p(), "x", z.q(),
                  ", got ", tile.rows, "x", tile.columns, " from (", tile.p, ",", tile.q, ")");
  CONVSCOPE_CHECK(!x.defined() || (x.rank() >= 2 && x.dim(-2) == z.h && x.dim(-1) == z.w),
                  "draw_window", "expected x with planes of ", z.h, "x", z.w, ", got ",
                  x.defined() ? x.str() : std::string());
}

}  // namespace

std::string window_svg(const Conv2dProblem& z, const OutputTile& tile, const Tensor& x,
                       const std::string& title) {
  check_picture(z, tile, x);
  const std::int64_t rows = z.pad_top + z.h + z.pad_bottom,
                     columns = z.pad_left + z.w + z.pad_right;
  const std::vector<std::int64_t> reads = reads_of(z, tile);
  const std::int64_t most = *std::max_element(reads.begin(), reads.end());
  const double side =
      std::min(34.0, (kWidth - 2 * kMargin - kGap) /
                         static_cast<double>(columns + std::max<std::int64_t>(z.q(), 4)));
  const bool single = tile.rows == 1 && tile.columns == 1;
  const double number = std::clamp(side * 0.42, 7.0, 12.0);
  const std::string look =
      cat("text-anchor=\"middle\" font-size=\"", number_text(number, 3), "\" ");

  std::string svg;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const std::int64_t h = i / columns - z.pad_top, w = i % columns - z.pad_left;
    const bool frame = h < 0 || h >= z.h || w < 0 || w >= z.w;
    const std::int64_t count = reads[static_cast<std::size_t>(i)];
    const double left = kMargin + side * static_cast<double>(i % columns);
    const double top = kTitle + side * static_cast<double>(i / columns);
    const std::string fill = count > 0 ? color_of(count, most) : frame ? "#f1f1f1" : "#fff";
    svg += rect(left, top, side,
                cat("fill=\"", fill, "\" stroke=\"#888\"", frame ? " stroke-dasharray=\"2 2\"" : "")
                    .c_str());
    const std::string words =
        frame         ? "0"
        : x.defined() ? number_text(x.at(h * z.w + w), 3)
        : count > 0 ? (single ? tap_text(z, tile, i / columns, i % columns) : std::to_string(count))
                    : "";
    const bool dark = count > 0 && 2 * count > most;
    if (!words.empty()) {
      svg += text(left + side / 2, top + side / 2 + number * 0.36, words,
                  look + (dark    ? "fill=\"#fff\""
                          : frame ? "fill=\"#888\""
                                  : "fill=\"#222\""));
    }
  }
  const double right = kMargin + side * static_cast<double>(columns) + kGap;
  for (std::int64_t i = 0; i < z.p() * z.q(); ++i) {
    const std::int64_t p = i / z.q(), q = i % z.q();
    const bool inside =
        p >= tile.p && p < tile.p + tile.rows && q >= tile.q && q < tile.q + tile.columns;
    svg += rect(right + side * static_cast<double>(q), kTitle + side * static_cast<double>(p), side,
                inside ? "fill=\"#d55e00\" stroke=\"#888\"" : "fill=\"#fff\" stroke=\"#888\"");
  }
  const double arrow = kTitle + side * static_cast<double>(std::min(rows, z.p())) / 2;
  svg += cat("<path d=\"M", number_text(right - kGap + 10, 5), " ", number_text(arrow, 5),
             "h36m-9-6l9 6-9 6\" fill=\"none\" stroke=\"#222\" stroke-width=\"1.6\"/>\n");
  const double foot = kTitle + side * static_cast<double>(std::max(rows, z.p())) + 18;
  svg += text(kMargin, kTitle - 8,
              cat("x: one plane, ", z.h, "x", z.w,
                  rows * columns > z.h * z.w ? ", and its frame of zeros" : ""),
              "");
  svg += text(right, kTitle - 8, cat("y: ", z.p(), "x", z.q()), "");
  svg += text(
      kMargin, foot,
      cat("kernel ", z.r, "x", z.s, ", stride ", z.stride_h, "x", z.stride_w, ", dilation ",
          z.dilation_h, "x", z.dilation_w,
          most > 1 ? cat("; darker pixels are read by more outputs of the tile, up to ", most)
                   : std::string(x.defined() ? "; blue pixels are multiplied with the kernel"
                                             : "; r,s: the tap that a pixel is multiplied with")),
      "fill=\"#555\"");
  const std::string heading = title.empty()
                                  ? cat("Outputs ", tile.rows, "x", tile.columns, " from (", tile.p,
                                        ",", tile.q, "), and what they read")
                                  : title;
  const double needed = right + side * static_cast<double>(z.q()) + kMargin;
  const int width = static_cast<int>(std::max(needed, 560.0));
  const int height = static_cast<int>(foot + kFoot - 26);
  return cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
             "\" viewBox=\"0 0 ", width, " ", height, "\" role=\"img\" aria-label=\"",
             escape_markup(heading),
             "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\" fill=\"#222\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
             text(kMargin, 18, heading, "font-size=\"13\" font-weight=\"bold\""), svg, "</svg>\n");
}

void draw_window(const Conv2dProblem& problem, const OutputTile& tile, const Tensor& x,
                 const std::string& title) {
  show_svg(window_svg(problem, tile, x, title));
}

}  // namespace convscope
