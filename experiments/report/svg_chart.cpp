// SPDX-License-Identifier: Apache-2.0
// svg_chart.cpp: axes with round numbers, lines, legend.
#include "experiments/report/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace convscope {
namespace {

// Okabe and Ito's palette (2008): told apart by colour-blind readers too.
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#e69f00", "#56b4e9", "#000000"};
constexpr int kLeft = 68, kRight = 16, kTop = 34, kBottom = 46;  // margins in pixels
constexpr std::size_t kMarkedPoints = 40;  // up to so many points of a line get a dot each

// Ticks at multiples of 1, 2 or 5 times a power of ten.
double tick_step(double range, int wanted) {
  const double raw = range / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double rest = raw / power;
  return power * (rest <= 1.0 ? 1.0 : rest <= 2.0 ? 2.0 : rest <= 5.0 ? 5.0 : 10.0);
}

class Axis {
 public:
  Axis(double low, double high, bool log, int ticks, double from_pixel, double to_pixel)
      : log_(log), from_(from_pixel), to_(to_pixel) {
    if (!(high > low)) {  // one value, or none
      const double pad = low == 0 ? 1.0 : std::abs(low) * 0.1;
      high = low + pad;
      if (!log) low -= pad;
    }
    low_ = log ? std::floor(std::log10(low) * 2) / 2 : low;
    high_ = log ? std::ceil(std::log10(high) * 2) / 2 : high;
    if (log) {
      for (double decade = std::floor(low_); decade <= high_ + 1e-9; decade += 1) {
        for (double factor : {1.0, 2.0, 5.0}) {
          const double value = factor * std::pow(10.0, decade);
          const double at = std::log10(value);
          if (at >= low_ - 1e-9 && at <= high_ + 1e-9) ticks_.push_back(value);
        }
      }
      if (ticks_.size() > 9) {  // many decades: whole ones only
        std::erase_if(ticks_, [](double value) {
          const double at = std::log10(value);
          return std::abs(at - std::round(at)) > 1e-6;
        });
      }
    } else {
      const double step = tick_step(high_ - low_, ticks);
      low_ = std::floor(low_ / step + 1e-9) * step;
      high_ = std::ceil(high_ / step - 1e-9) * step;
      const auto count = static_cast<int>(std::lround((high_ - low_) / step));
      for (int i = 0; i <= count; ++i) {
        const double value = low_ + i * step;
        ticks_.push_back(std::abs(value) < step * 1e-6 ? 0.0 : value);
      }
    }
  }

  double pixel(double value) const {
    const double at = log_ ? std::log10(value) : value;
    return from_ + (at - low_) / (high_ - low_) * (to_ - from_);
  }
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  bool log_;
  double from_, to_, low_ = 0, high_ = 1;
  std::vector<double> ticks_;
};

struct Extent {
  double low = 0, high = 0;
  bool any = false;
  void add(double value) {
    low = any ? std::min(low, value) : value;
    high = any ? std::max(high, value) : value;
    any = true;
  }
};

void draw_series(std::string& svg, const ChartSeries& series, const char* color, const Axis& x_axis,
                 const Axis& y_axis, bool log_y) {
  auto out = std::back_inserter(svg);
  const std::size_t points = std::min(series.x.size(), series.y.size());
  bool pen_down = false;
  std::string path;
  std::string dots;
  for (std::size_t i = 0; i < points; ++i) {
    const double x = series.x[i];
    const double y = series.y[i];
    if (!std::isfinite(x) || !std::isfinite(y) || (log_y && y <= 0)) {
      pen_down = false;
      continue;
    }
    const double px = x_axis.pixel(x);
    const double py = y_axis.pixel(y);
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", pen_down ? "L" : "M", px, py);
    pen_down = true;
    if (points <= kMarkedPoints) {
      fmt::format_to(std::back_inserter(dots), "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>",
                     px, py);
    }
  }
  if (path.empty()) return;
  fmt::format_to(out,
                 "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" "
                 "stroke-linejoin=\"round\"/>\n",
                 path, color);
  if (!dots.empty()) fmt::format_to(out, "<g fill=\"{}\">{}</g>\n", color, dots);
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string to_svg(const LineChart& chart) {
  Extent x_extent, y_extent;
  bool all_positive = true;
  for (const ChartSeries& series : chart.series) {
    for (std::size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
      if (!std::isfinite(series.x[i]) || !std::isfinite(series.y[i])) continue;
      x_extent.add(series.x[i]);
      y_extent.add(series.y[i]);
      all_positive = all_positive && series.y[i] > 0;
    }
  }
  const bool log_y = chart.log_y && y_extent.any && all_positive;
  if (chart.y_from_zero && !log_y) y_extent.add(0.0);

  const int right = chart.width - kRight;
  const int bottom = chart.height - kBottom;
  const Axis x_axis(x_extent.low, x_extent.high, false, 8, kLeft, right);
  const Axis y_axis(y_extent.low, y_extent.high, log_y, 6, bottom, kTop);

  std::string svg;
  auto out = std::back_inserter(svg);
  fmt::format_to(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
                 "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"11\" "
                 "fill=\"#222\">\n",
                 chart.width, chart.height);
  fmt::format_to(out, "<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/>\n", chart.width,
                 chart.height);
  fmt::format_to(out, "<text x=\"{}\" y=\"18\" font-size=\"13\" font-weight=\"bold\">{}</text>\n",
                 kLeft, escape_markup(chart.title));
  for (double tick : y_axis.ticks()) {
    const double y = y_axis.pixel(tick);
    fmt::format_to(out, "<path d=\"M{} {:.1f}H{}\" stroke=\"#ddd\"/>", kLeft, y, right);
    fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g}</text>\n",
                   kLeft - 6, y + 4, tick);
  }
  for (double tick : x_axis.ticks()) {
    const double x = x_axis.pixel(tick);
    fmt::format_to(out, "<path d=\"M{:.1f} {}v5\" stroke=\"#222\"/>", x, bottom);
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.6g}</text>\n", x,
                   bottom + 18, tick);
  }
  fmt::format_to(out, "<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"#222\"/>\n", kLeft, kTop,
                 bottom, right);
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                 (kLeft + right) / 2, chart.height - 8, escape_markup(chart.x_label));
  fmt::format_to(out,
                 "<text x=\"14\" y=\"{0}\" text-anchor=\"middle\" "
                 "transform=\"rotate(-90 14 {0})\">{1}</text>\n",
                 (kTop + bottom) / 2, escape_markup(chart.y_label + (log_y ? ", log scale" : "")));
  if (!y_extent.any || !x_extent.any) {
    fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">no data</text>\n",
                   (kLeft + right) / 2, (kTop + bottom) / 2);
  }

  std::size_t color = 0;
  double legend_x = right;  // entries stand right of the title, from right to left
  std::string legend;
  for (auto it = chart.series.rbegin(); it != chart.series.rend(); ++it) {
    const std::size_t index = static_cast<std::size_t>(chart.series.rend() - it) - 1;
    const char* of_series = kColors[index % std::size(kColors)];
    legend_x -= 6.2 * static_cast<double>(it->name.size()) + 10;
    fmt::format_to(std::back_inserter(legend),
                   "<text x=\"{:.1f}\" y=\"18\">{}</text><path d=\"M{:.1f} 14h16\" stroke=\"{}\" "
                   "stroke-width=\"3\"/>\n",
                   legend_x, escape_markup(it->name), legend_x - 20, of_series);
    legend_x -= 28;
  }
  for (const ChartSeries& series : chart.series) {
    draw_series(svg, series, kColors[color++ % std::size(kColors)], x_axis, y_axis, log_y);
  }
  svg += legend;
  svg += "</svg>\n";
  return svg;
}

}  // namespace convscope
