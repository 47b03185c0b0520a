// SPDX-License-Identifier: Apache-2.0
// show_tensor.cpp: shows a tensor as a picture, as a table of its numbers, or as a heat map.
#include "experiments/notebooks/show_tensor.h"

#include <algorithm>
#include <cmath>

#include "experiments/look/look_data.h"
#include "experiments/notebooks/display.h"
#include "experiments/notebooks/png.h"
#include "experiments/report/chart/svg_text.h"
#include "framework/random.h"
#include "framework/registry.h"

namespace convscope {
namespace {

constexpr std::int64_t kMaxHeatCells = 64;  // of a side
constexpr double kSmallestSide = 112;       // pixels on the page; smaller planes are enlarged

void check_numbers(const Tensor& tensor, const char* operation, int least_rank) {
  CONVSCOPE_CHECK(tensor.defined(), operation, "expected a tensor with elements, got none");
  CONVSCOPE_CHECK(tensor.device().type == DeviceType::cpu, operation,
                  "expected a tensor on the CPU, got ", tensor.str(), "; .to(Device{}) copies it");
  CONVSCOPE_CHECK(tensor.rank() >= least_rank && tensor.numel() > 0, operation,
                  "expected at least ", least_rank, " axes and one element, got ", tensor.str());
}

struct Planes {
  std::int64_t count = 1, height = 1, width = 1;
};

Planes planes_of(const Tensor& tensor) {
  const std::int64_t width = tensor.dim(-1);
  const std::int64_t height = tensor.rank() > 1 ? tensor.dim(-2) : 1;
  return {tensor.numel() / (height * width), height, width};
}

// Returns 0 black to 255 white; NaN is black.
std::uint8_t shade_of(double value, double low, double high) {
  const double at = high > low ? (value - low) / (high - low) : 0.5;
  return static_cast<std::uint8_t>(
      std::lround(255 * std::clamp(std::isfinite(at) ? at : 0, 0., 1.)));
}

std::string image_html(const Pixels& pixels, const std::string& caption) {
  const double side = static_cast<double>(std::min(pixels.height, pixels.width));
  const auto scale = std::max(1.0, std::ceil(kSmallestSide / side));
  return cat("<figure style=\"display:inline-block;margin:4px\"><img alt=\"", caption,
             "\" style=\"image-rendering:pixelated;border:1px solid #bbb\" width=\"",
             static_cast<std::int64_t>(scale * static_cast<double>(pixels.width)), "\" height=\"",
             static_cast<std::int64_t>(scale * static_cast<double>(pixels.height)),
             "\" src=\"data:image/png;base64,", base64(to_png(pixels)), "\"><figcaption>", caption,
             "</figcaption></figure>");
}

std::string table_html(const std::vector<std::vector<std::string>>& rows, const std::string& title,
                       const std::string& below = "") {
  std::string out = "<div style=\"overflow-x:auto\"><table>";
  if (!title.empty()) {
    out += "<caption style=\"text-align:left;font-weight:bold\">" + escape_markup(title) +
           "</caption>";
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    out += r == 0 ? "<thead><tr>" : "<tr>";
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      const char* const tag = r == 0 || (c == 0 && rows[0][0].empty()) ? "th" : "td";
      out += cat("<", tag, ">", escape_markup(rows[r][c]), "</", tag, ">");
    }
    out += r == 0 ? "</tr></thead>" : "</tr>";
  }
  out += "</table>";
  if (!below.empty()) out += "<small>" + escape_markup(below) + "</small>";
  return out + "</div>";
}

std::string name_or_number(const std::vector<std::string>& names, std::int64_t i) {
  const auto at = static_cast<std::size_t>(i);
  return at < names.size() ? names[at] : std::to_string(i);
}

}  // namespace

View<float*> view_of(const Tensor& tensor) {
  CONVSCOPE_CHECK(tensor.defined() && tensor.rank() >= 1 && tensor.rank() <= 4 &&
                      tensor.dtype() == DType::f32 && tensor.device().type == DeviceType::cpu,
                  "view_of", "expected f32 of 1 to 4 axes on the CPU, got ",
                  tensor.defined() ? tensor.str() : std::string("no tensor"));
  std::int64_t sizes[4] = {1, 1, 1, 1};
  for (int axis = 0; axis < tensor.rank(); ++axis) sizes[axis] = tensor.dim(axis);
  return {tensor.data<float>(), sizes[0], sizes[1], sizes[2], sizes[3]};
}

Tensor normal_tensor(const Shape& shape, std::uint64_t seed) {
  const Tensor out = Tensor::empty(shape);
  Generator random(seed);
  for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = random.normal();
  return out;
}

Tensor counted_tensor(const Shape& shape) {
  const Tensor out = Tensor::empty(shape);
  for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = static_cast<float>(i);
  return out;
}

Tensor test_image(std::int64_t height, std::int64_t width) {
  CONVSCOPE_CHECK(height > 0 && width > 0, "test_image", "expected sides of at least 1, got ",
                  height, "x", width);
  const Tensor out = Tensor::empty({1, 1, height, width});
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const double y = (static_cast<double>(i / width) + 0.5) / static_cast<double>(height);
    const double x = (static_cast<double>(i % width) + 0.5) / static_cast<double>(width);
    const bool disc = std::hypot(x - 0.3, y - 0.3) < 0.2;
    const bool square = x > 0.6 && x < 0.9 && y > 0.12 && y < 0.45;
    const double stripes = y > 0.62 ? 0.5 + 0.5 * std::sin(60 * x * x) : 0.15;
    out.data<float>()[i] = static_cast<float>(disc ? 0.9 : square ? 0.7 : stripes);
  }
  return out;
}

void show_image(const Tensor& tensor, const ImageOptions& options) {
  check_numbers(tensor, "show_image", 2);
  const Planes planes = planes_of(tensor);
  CONVSCOPE_CHECK(!options.color || planes.count == 3, "show_image",
                  "expected three planes for red, green and blue, got ", tensor.str());
  double low = options.low, high = options.high;
  if (std::isnan(low) || std::isnan(high)) {
    Extent extent;
    for (std::int64_t i = 0; i < tensor.numel(); ++i) extent.add(tensor.at(i));
    if (std::isnan(low)) low = extent.low;
    if (std::isnan(high)) high = extent.high;
  }
  const std::int64_t pixels = planes.height * planes.width;
  const std::int64_t images =
      options.color ? 1 : std::min<std::int64_t>(planes.count, options.planes);
  const std::string name = options.title.empty() ? tensor.shape().str() : options.title;
  std::string html;
  for (std::int64_t image = 0; image < images; ++image) {
    Pixels out{.height = planes.height, .width = planes.width, .channels = options.color ? 3 : 1};
    for (std::int64_t i = 0; i < pixels; ++i) {
      for (std::int64_t c = 0; c < out.channels; ++c) {
        out.values.push_back(shade_of(tensor.at((image + c) * pixels + i), low, high));
      }
    }
    const std::string which = images > 1 ? cat(", plane ", image) : "";
    html += image_html(out, escape_markup(cat(name, which)));
  }
  const std::string more = planes.count > images && !options.color
                               ? cat("; ", planes.count - images, " planes more are not shown")
                               : "";
  show_html(cat("<div>", html, "<br><small>black ", number_text(low, 3), ", white ",
                number_text(high, 3), more, "</small></div>"));
}

void show_table(const Tensor& tensor, const TableOptions& options) {
  check_numbers(tensor, "show_table", 1);
  const Planes planes = planes_of(tensor);
  const std::int64_t rows = std::min<std::int64_t>(planes.height, options.rows);
  const std::int64_t columns = std::min<std::int64_t>(planes.width, options.columns);
  std::vector<std::vector<std::string>> cells(1, {""});
  for (std::int64_t c = 0; c < columns; ++c) cells[0].push_back(std::to_string(c));
  if (columns < planes.width) cells[0].emplace_back("\u2026");
  for (std::int64_t r = 0; r < rows; ++r) {
    cells.push_back({std::to_string(r)});
    for (std::int64_t c = 0; c < columns; ++c) {
      cells.back().push_back(number_text(tensor.at(r * planes.width + c), options.digits));
    }
    if (columns < planes.width) cells.back().emplace_back("\u2026");
  }
  const bool all = rows == planes.height && columns == planes.width && planes.count == 1;
  show_html(
      table_html(cells, options.title.empty() ? tensor.str() : options.title,
                 all ? "" : cat("the first ", rows, "x", columns, " of ", tensor.shape().str())));
}

void show_table(const std::vector<std::vector<std::string>>& rows, const std::string& title) {
  CONVSCOPE_CHECK(!rows.empty(), "show_table", "expected at least a row with the head, got none");
  show_html(table_html(rows, title));
}

void heat_map(const Tensor& matrix, const HeatMapOptions& options) {
  check_numbers(matrix, "heat_map", 1);
  const Planes planes = planes_of(matrix);
  CONVSCOPE_CHECK(planes.height <= kMaxHeatCells && planes.width <= kMaxHeatCells, "heat_map",
                  "expected at most ", kMaxHeatCells, " rows and columns, got ", matrix.str(),
                  "; show_image() takes larger ones");
  HeatPanel panel{.one_table = true};
  double largest = 0;
  bool negative = false;
  for (std::int64_t i = 0; i < planes.height * planes.width; ++i) {
    if (!std::isfinite(matrix.at(i))) continue;
    largest = std::max(largest, std::abs(matrix.at(i)));
    negative = negative || matrix.at(i) < 0;
  }
  if (largest > 0) {
    if (negative) panel.scale.emplace_back(-1, number_text(-largest, options.digits));
    panel.scale.emplace_back(0, "0");
    panel.scale.emplace_back(1, number_text(largest, options.digits));
  }
  for (std::int64_t c = 0; c < planes.width; ++c) {
    panel.columns.push_back(name_or_number(options.columns, c));
  }
  for (std::int64_t r = 0; r < planes.height; ++r) {
    panel.rows.push_back(name_or_number(options.rows, r));
    panel.cells.emplace_back();
    for (std::int64_t c = 0; c < planes.width; ++c) {
      const double value = matrix.at(r * planes.width + c);
      HeatCell cell{.text = number_text(value, options.digits)};
      cell.shade = std::isfinite(value) ? (largest > 0 ? value / largest : 0) : std::nan("");
      cell.title = cat(panel.rows.back(), ", ", panel.columns[static_cast<std::size_t>(c)], ": ",
                       number_text(value));
      panel.cells.back().push_back(std::move(cell));
    }
  }
  show(Figure{.title = options.title.empty() ? matrix.str() : options.title, .panels = {panel}});
}

void show_reads(const Recorder& recorder, const std::string& array, const std::string& title) {
  const auto& arrays = recorder.arrays();
  const auto found = std::find_if(arrays.begin(), arrays.end(),
                                  [&](const Recorder::Array& one) { return one.name == array; });
  if (found == arrays.end()) {
    std::vector<std::string> names;
    for (const Recorder::Array& one : arrays) names.push_back(one.name);
    fail("show_reads",
         cat("expected an array that the recorder knows (", join(names), "), got '", array, "'"));
  }
  // Trailing axes of size 1 are only padding.
  std::vector<std::int64_t> sizes = found->sizes;
  while (sizes.size() > 2 && sizes.back() == 1) sizes.pop_back();
  while (sizes.size() < 2) sizes.insert(sizes.begin(), 1);
  const std::int64_t height = sizes[sizes.size() - 2], width = sizes.back();
  const Tensor reads = Tensor::zeros({height, width});
  const auto which = static_cast<int>(found - arrays.begin());
  for (const Recorder::Event& event : recorder.events()) {
    if (event.kind != Recorder::Kind::read || event.which != which) continue;
    if (event.index < height * width) reads.data<float>()[event.index] += 1;
  }
  heat_map(reads, {.title = title.empty() ? cat("reads of ", array) : title});
}

}  // namespace convscope
