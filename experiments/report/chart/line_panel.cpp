// SPDX-License-Identifier: Apache-2.0
// line_panel.cpp: lines with bands, marks with error bars, names at the ends of lines.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "experiments/report/chart/label_layout.h"
#include "experiments/report/chart/panel.h"
#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"

namespace convscope {
namespace {

constexpr double kLeast = 56, kBottom = 42;    // margins
constexpr double kOneTitle = kTitleLine + 11;  // the part of LinePanel::height above the frame
constexpr double kMarkRoom = 7;                // distance from a mark to the frame
constexpr double kNarrowRight = 12;
constexpr double kWidestLabel = 170;
constexpr double kMarksOnLine = 11;  // about this many marks on a line with many points
constexpr const char* kMutedColor = "#c8c8c8";

struct Frame {
  Axis x, y;
  double left, right, top, bottom;
  double label_x;  // of the vertical label
};

std::size_t points_of(const Series& s) { return std::min(s.x.size(), s.y.size()); }

bool shown(const Frame& frame, const Series& s, std::size_t i) {
  return frame.x.can_show(s.x[i]) && frame.y.can_show(s.y[i]);
}

// Returns the y pixel of a value. A band may extend below 0, which a logarithmic axis cannot show;
// such a value is drawn at the lower end of the axis.
double y_pixel(const Frame& frame, double value) {
  return frame.y.pixel(frame.y.can_show(value) ? value : frame.y.low());
}

void add_point(std::string& path, bool pen_down, double x, double y) {
  fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", pen_down ? "L" : "M", x, y);
}

void draw_band(std::string& svg, const Frame& frame, const Series& s) {
  std::string path;
  std::string back;  // the lower edge, from right to left
  const auto close = [&] {
    if (!path.empty()) {
      fmt::format_to(std::back_inserter(svg),
                     "<path d=\"{}{}Z\" fill=\"{}\" fill-opacity=\"0.18\"/>\n", path, back,
                     style_color(s.style));
    }
    path.clear();
    back.clear();
  };
  for (std::size_t i = 0; i < points_of(s); ++i) {
    if (!shown(frame, s, i) || !std::isfinite(s.low[i]) || !std::isfinite(s.high[i])) {
      close();
      continue;
    }
    const double x = frame.x.pixel(s.x[i]);
    add_point(path, !path.empty(), x, y_pixel(frame, s.high[i]));
    back = fmt::format("L{:.1f} {:.1f}", x, y_pixel(frame, s.low[i])) + back;
  }
  close();
}

void draw_line(std::string& svg, const Frame& frame, const Series& s) {
  std::string path;
  bool pen_down = false;
  for (std::size_t i = 0; i < points_of(s); ++i) {
    if (!shown(frame, s, i)) {
      pen_down = false;
      continue;
    }
    const double x = frame.x.pixel(s.x[i]);
    const double y = frame.y.pixel(s.y[i]);
    if (s.stairs && pen_down) fmt::format_to(std::back_inserter(path), "H{:.1f}V{:.1f}", x, y);
    if (!s.stairs || !pen_down) add_point(path, pen_down, x, y);
    pen_down = true;
  }
  if (path.empty()) return;
  fmt::format_to(std::back_inserter(svg),
                 "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
                 "stroke-linejoin=\"round\" stroke-dasharray=\"{}\"><title>{}</title></path>\n",
                 path, s.muted ? kMutedColor : style_color(s.style), s.muted ? "1" : "1.7",
                 s.muted ? "" : style_dashes(s.style), escape_markup(s.name));
}

void draw_error_bars(std::string& svg, const Frame& frame, const Series& s, std::size_t i) {
  const double x = frame.x.pixel(s.x[i]);
  const double y = frame.y.pixel(s.y[i]);
  std::string path;
  auto out = std::back_inserter(path);
  if (i < s.low.size() && std::isfinite(s.low[i]) && s.high[i] > s.low[i]) {
    fmt::format_to(out, "M{0:.1f} {1:.1f}h6m-3 0V{2:.1f}m-3 0h6", x - 3, y_pixel(frame, s.low[i]),
                   y_pixel(frame, s.high[i]));
  }
  if (i < s.x_low.size() && std::isfinite(s.x_low[i]) && s.x_high[i] > s.x_low[i]) {
    const double low = frame.x.can_show(s.x_low[i]) ? s.x_low[i] : frame.x.low();
    fmt::format_to(out, "M{0:.1f} {1:.1f}v6m0 -3H{2:.1f}m0 -3v6", frame.x.pixel(low), y - 3,
                   frame.x.pixel(s.x_high[i]));
  }
  if (path.empty()) return;
  fmt::format_to(std::back_inserter(svg),
                 "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1\"/>\n", path,
                 style_color(s.style));
}

// A white edge keeps text readable on a line.
void draw_label(std::string& svg, const std::string& text, double x, double y, double degrees = 0) {
  const std::string rotated =
      degrees == 0 ? "" : fmt::format("transform=\"rotate({:.2f} {:.1f} {:.1f})\" ", degrees, x, y);
  fmt::format_to(std::back_inserter(svg),
                 "<text x=\"{:.1f}\" y=\"{:.1f}\" {}font-weight=\"bold\" "
                 "stroke=\"#fff\" stroke-width=\"2.5\" paint-order=\"stroke\">{}</text>\n",
                 x, y, rotated, escape_markup(text));
}

// Draws numbers next to marks and names along lines, away from marks.
void draw_labels(std::string& svg, const LinePanel& panel, const Frame& frame) {
  constexpr double kHeight = 12;
  const auto width = [](const std::string& text) { return text_width(text, kLetter * kBold) + 2; };
  LabelLayout label_layout({frame.left + 3, frame.top, frame.right, frame.bottom - 3});
  std::vector<LabelLayout::Points> lines(panel.series.size());
  for (std::size_t k = 0; k < panel.series.size(); ++k) {
    const Series& s = panel.series[k];
    for (std::size_t i = 0; i < points_of(s); ++i) {
      if (!shown(frame, s, i)) continue;
      lines[k].emplace_back(frame.x.pixel(s.x[i]), frame.y.pixel(s.y[i]));
      if (s.marks && !s.muted) label_layout.add_mark(lines[k].back().first, lines[k].back().second);
    }
    if (s.line) label_layout.add_line(lines[k]);
  }
  for (const Series& s : panel.series) {
    for (std::size_t i = 0; i < std::min(points_of(s), s.tags.size()); ++i) {
      if (s.tags[i].empty() || !shown(frame, s, i)) continue;
      const double x = frame.x.pixel(s.x[i]), y = frame.y.pixel(s.y[i]);
      const auto box = label_layout.at_mark(x, y, width(s.tags[i]), kHeight);
      if (!box) continue;
      const double to_x = std::clamp(x, box->left, box->right);
      const double to_y = std::clamp(y, box->top, box->bottom);
      if (std::hypot(to_x - x, to_y - y) > 18) {  // too far from its line
        fmt::format_to(std::back_inserter(svg),
                       "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"#999\" "
                       "stroke-width=\"0.7\"/>",
                       x, y, to_x, to_y);
      }
      draw_label(svg, s.tags[i], box->left + 1, box->bottom - 2);
    }
  }
  for (std::size_t k = 0; k < panel.series.size(); ++k) {
    const std::string& label = panel.series[k].label;
    if (label.empty()) continue;
    for (const std::string& text : {label, label.substr(0, label.find(' '))}) {
      const auto place = label_layout.at_line(lines[k], width(text), kHeight);
      if (!place) continue;
      // Vector from the middle of the text to the left end of its baseline, before rotation.
      const double turn = place->degrees * std::numbers::pi / 180;
      const double right = -width(text) / 2 + 1, down = kHeight / 2 - 2.5;
      draw_label(svg, text, place->x + right * std::cos(turn) - down * std::sin(turn),
                 place->y + right * std::sin(turn) + down * std::cos(turn), place->degrees);
      break;
    }
  }
}

void draw_marks(std::string& svg, const Frame& frame, const Series& s) {
  const std::size_t points = points_of(s);
  // A series without a line has a mark at each point. A line has marks only at some points. The
  // style decides at which points, so that the marks of neighbouring lines do not coincide.
  const bool all = !s.line || static_cast<double>(points) <= kMarksOnLine * 2;
  const std::size_t stride =
      all ? 1 : static_cast<std::size_t>(static_cast<double>(points) / kMarksOnLine);
  const std::size_t from = all ? 0 : (static_cast<std::size_t>(s.style) * stride / 4) % stride;
  for (std::size_t i = from; i < points; i += stride) {
    if (!shown(frame, s, i)) continue;
    if (!s.line) draw_error_bars(svg, frame, s, i);
    const double x = frame.x.pixel(s.x[i]);
    const double y = frame.y.pixel(s.y[i]);
    svg += style_mark(s.style, x, y, s.line ? 3 : 4.2, s.hollow,
                      i < s.titles.size() ? s.titles[i] : "");
    svg += "\n";
  }
}

void draw_axes(std::string& svg, const LinePanel& panel, const Frame& f, const Cell& cell) {
  auto out = std::back_inserter(svg);
  double free_below = 1e9;  // numbers must not overlap
  for (std::size_t i = 0; i < f.y.ticks().size(); ++i) {
    const double y = f.y.pixel(f.y.ticks()[i]);
    fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#e2e2e2\"/>", f.left, y,
                   f.right);
    if (y > free_below) continue;
    draw_text(svg, f.y.texts()[i], f.left - 6, y + 4, 2 * kLeast, "text-anchor=\"end\"");
    free_below = y - kLetter;
  }
  double free_from = -1e9;
  for (std::size_t i = 0; i < f.x.ticks().size(); ++i) {
    const double x = f.x.pixel(f.x.ticks()[i]);
    const double half = text_width(f.x.texts()[i], kLetter) / 2;
    fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}v4\" stroke=\"#222\"/>", x, f.bottom);
    if (x - half < free_from) continue;
    draw_text(svg, f.x.texts()[i], x, f.bottom + 16, 80, "text-anchor=\"middle\"");
    free_from = x + half + 4;
  }
  fmt::format_to(out,
                 "<path d=\"M{0:.1f} {1:.1f}V{2:.1f}H{3:.1f}\" fill=\"none\" "
                 "stroke=\"#222\"/>\n",
                 f.left, f.top, f.bottom, f.right);
  draw_x_label(svg, panel.x, f.x.log(), (f.left + f.right) / 2, f.bottom + 33, cell);
  const double middle = (f.top + f.bottom) / 2;
  const std::string rotated = fmt::format(
      "text-anchor=\"middle\" transform=\"rotate(-90 {:.1f} {:.1f})\"", f.label_x, middle);
  draw_text(svg, panel.y.label + (f.y.log() ? ", log scale" : ""), f.label_x, middle,
            f.bottom - f.top + 40, rotated.c_str());
}

// Draws names next to the last points, moved apart where lines end close together.
void draw_end_labels(std::string& svg, const LinePanel& panel, const Frame& f, double room) {
  struct Label {
    const Series* series;
    double end, y;
  };
  std::vector<Label> labels;
  for (const Series& s : panel.series) {
    if (s.muted || s.name.empty()) continue;
    for (std::size_t i = points_of(s); i-- > 0;) {
      if (!shown(f, s, i)) continue;
      labels.push_back({&s, f.y.pixel(s.y[i]), f.y.pixel(s.y[i])});
      break;
    }
  }
  constexpr double kLine = 13;
  std::stable_sort(labels.begin(), labels.end(),
                   [](const Label& a, const Label& b) { return a.y < b.y; });
  for (std::size_t i = 1; i < labels.size(); ++i) {
    labels[i].y = std::max(labels[i].y, labels[i - 1].y + kLine);
  }
  double most = f.bottom + 4;
  for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
    label->y = std::min(label->y, most);
    most = label->y - kLine;
  }
  for (const Label& label : labels) {
    fmt::format_to(std::back_inserter(svg),
                   "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"#999\" "
                   "stroke-width=\"0.7\"/>",
                   f.right + 2, label.end, f.right + 10, label.y);
    svg += style_mark(label.series->style, f.right + 15, label.y, 3.2, label.series->hollow, "");
    draw_text(svg, label.series->name, f.right + 22, label.y + 4, room - 22);
  }
}

}  // namespace

namespace {

// Finds the ends of the axes that need a margin because the frame would cut a mark near them.
struct Ends {
  bool left = false, right = false, top = false, bottom = false;
};

Ends ends_with_marks(const LinePanel& panel, const Frame& f) {
  Ends ends;
  for (const Series& s : panel.series) {
    if (s.muted || !s.marks) continue;
    for (std::size_t i = 0; i < points_of(s); ++i) {
      if (!shown(f, s, i)) continue;
      const double x = f.x.pixel(s.x[i]), y = f.y.pixel(s.y[i]);
      ends.left = ends.left || x < f.left + kMarkRoom;
      ends.right = ends.right || x > f.right - kMarkRoom;
      ends.top = ends.top || y < f.top + kMarkRoom;
      ends.bottom = ends.bottom || y > f.bottom - kMarkRoom;
    }
  }
  return ends;
}

}  // namespace

double height_of(const LinePanel& panel, double width) {
  return panel.height - kOneTitle + more_label_lines(panel.x, width);
}

void draw(std::string& svg, const LinePanel& panel, const Cell& cell) {
  Extent x_extent, y_extent;
  for (double value : panel.x.include) x_extent.add(value);
  for (double value : panel.y.include) y_extent.add(value);
  for (const Series& s : panel.series) {
    for (std::size_t i = 0; i < points_of(s); ++i) {
      if (!std::isfinite(s.x[i]) || !std::isfinite(s.y[i])) continue;
      x_extent.add(s.x[i]);
      y_extent.add(s.y[i]);
      // Error bars widen the axis, but a bar that extends below 0 must not prevent a logarithmic
      // axis.
      const auto add = [i](Extent& extent, const std::vector<double>& edge, bool log) {
        if (i < edge.size() && (!log || edge[i] > 0)) extent.add(edge[i]);
      };
      add(y_extent, s.low, panel.y.log);
      add(y_extent, s.high, panel.y.log);
      add(x_extent, s.x_low, panel.x.log);
      add(x_extent, s.x_high, panel.x.log);
    }
  }
  double room = 0;  // for names at the ends
  if (panel.end_labels) {
    for (const Series& s : panel.series) {
      if (!s.muted) room = std::max(room, text_width(s.name, kLetter) + 23);
    }
    room = std::min({room, kWidestLabel, cell.width * 0.4});
  }
  double right = cell.x + cell.width - std::max(kNarrowRight, room);
  const double top = cell.y + cell.title_height;
  const double bottom = top + panel.height - kOneTitle - kBottom;
  const int y_ticks = std::max(2, static_cast<int>((bottom - top) / 38));
  const Axis y_axis(panel.y, y_extent, y_ticks, bottom, top);
  double margin = kLeast;  // at the left: the label, the ticks' numbers
  for (const std::string& text : y_axis.texts()) {
    margin = std::max(margin, text_width(text, kLetter) + 28);
  }
  const double left = cell.x + margin;
  const int x_ticks = std::max(2, static_cast<int>((right - left) / 60));
  // The last number extends beyond the frame by half of its width.
  const Axis first_try(panel.x, x_extent, x_ticks, left, right);
  if (!first_try.texts().empty()) {
    const double half = text_width(first_try.texts().back(), kLetter) / 2;
    right = std::min(right, cell.x + cell.width - half);
  }
  Frame frame{
      Axis(panel.x, x_extent, x_ticks, left, right), y_axis, left, right, top, bottom, cell.x + 12};
  const Ends ends = ends_with_marks(panel, frame);
  frame.x = Axis(panel.x, x_extent, x_ticks, left + (ends.left ? kMarkRoom : 0),
                 right - (ends.right ? kMarkRoom : 0));
  frame.y = Axis(panel.y, y_extent, y_ticks, bottom - (ends.bottom ? kMarkRoom : 0),
                 top + (ends.top ? kMarkRoom : 0));

  draw_title(svg, panel.title, left, cell);
  draw_axes(svg, panel, frame, cell);
  if (!x_extent.any || !y_extent.any) {
    draw_text(svg, "no data", (left + right) / 2, (top + bottom) / 2, right - left,
              "text-anchor=\"middle\" fill=\"#777\"");
  }
  for (const Series& s : panel.series) {
    if (s.muted) draw_line(svg, frame, s);
  }
  for (const Series& s : panel.series) {
    if (!s.muted && s.line && s.low.size() >= points_of(s) && s.high.size() >= points_of(s)) {
      draw_band(svg, frame, s);
    }
  }
  for (const Series& s : panel.series) {
    if (s.muted) continue;
    if (s.line) draw_line(svg, frame, s);
    if (s.marks) draw_marks(svg, frame, s);
  }
  draw_labels(svg, panel, frame);
  if (panel.end_labels) draw_end_labels(svg, panel, frame, room);
}

}  // namespace convscope
