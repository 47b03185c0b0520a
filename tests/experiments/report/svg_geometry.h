// SPDX-License-Identifier: Apache-2.0
// svg_geometry.h: positions of marks, labels and lines of a drawn chart.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "experiments/report/chart/svg_text.h"

namespace convscope::testing {

struct SvgPoint {
  double x = 0, y = 0;
};

struct SvgBox {
  std::string text;
  double left = 0, top = 0, right = 0, bottom = 0;
};

inline std::vector<SvgPoint> points_of_path(const std::string& path) {
  std::vector<SvgPoint> out;
  const std::regex point(R"([ML](-?[0-9.]+) (-?[0-9.]+))");
  for (std::sregex_iterator at(path.begin(), path.end(), point), end; at != end; ++at) {
    out.push_back({std::stod((*at)[1]), std::stod((*at)[2])});
  }
  return out;
}

// Returns the centre of each mark. A mark is a path with the stroke that style_mark draws. The
// centre of a circle is computed from its arcs.
inline std::vector<SvgPoint> marks_in(const std::string& svg) {
  std::vector<SvgPoint> out;
  const std::regex mark(
      R"x(<path d="([^"]*)" fill="#[0-9a-f]+" stroke="#[0-9a-f]+" stroke-width="1.2")x");
  const std::regex circle(R"(M(-?[0-9.]+) (-?[0-9.]+)a([0-9.]+) )");
  for (std::sregex_iterator at(svg.begin(), svg.end(), mark), end; at != end; ++at) {
    const std::string path = (*at)[1];
    std::smatch arc;
    if (std::regex_search(path, arc, circle)) {
      out.push_back({std::stod(arc[1]) + std::stod(arc[3]), std::stod(arc[2])});
      continue;
    }
    double left = 1e9, right = -1e9, top = 1e9, bottom = -1e9;
    for (const SvgPoint& corner : points_of_path(path)) {
      left = std::min(left, corner.x);
      right = std::max(right, corner.x);
      top = std::min(top, corner.y);
      bottom = std::max(bottom, corner.y);
    }
    out.push_back({(left + right) / 2, (top + bottom) / 2});
  }
  return out;
}

// Returns the labels inside a panel: those with a white edge.
inline std::vector<SvgBox> labels_in(const std::string& svg) {
  std::vector<SvgBox> out;
  const std::regex label(
      R"x(<text x="([-0-9.]+)" y="([-0-9.]+)"[^>]*paint-order="stroke">([^<]*)<)x");
  for (std::sregex_iterator at(svg.begin(), svg.end(), label), end; at != end; ++at) {
    const double x = std::stod((*at)[1]), y = std::stod((*at)[2]);
    out.push_back({(*at)[3], x, y - 8, x + text_width((*at)[3].str(), 11), y + 2});
  }
  return out;
}

// A text in a picture. The corners are those of its bounding box, which is rotated with the text.
struct SvgText {
  std::string text;
  bool label = false;  // inside a panel: with a white edge
  std::array<SvgPoint, 4> corners = {};
  SvgPoint middle() const {
    return {(corners[0].x + corners[2].x) / 2, (corners[0].y + corners[2].y) / 2};
  }
};

inline std::string attribute_of(const std::string& element, const std::string& name) {
  const std::size_t at = element.find(" " + name + "=\"");
  if (at == std::string::npos) return "";
  const std::size_t from = at + name.size() + 3;
  return element.substr(from, element.find('"', from) - from);
}

// Returns all texts of a picture. Their boxes are slightly narrower than text_width, because it
// overestimates widths.
inline std::vector<SvgText> texts_in(const std::string& svg) {
  std::vector<SvgText> out;
  const std::regex text(R"x(<text( [^>]*)>(?:<title>[^<]*</title>)?([^<]*)</text>)x");
  for (std::sregex_iterator found(svg.begin(), svg.end(), text), end; found != end; ++found) {
    const std::string element = (*found)[1];
    SvgText one{.text = (*found)[2], .label = element.find("paint-order") != std::string::npos};
    std::string plain = one.text;
    for (const auto& [entity, letter] :
         {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&#39;", "'"}, {"&amp;", "&"}}) {
      for (std::size_t at = plain.find(entity); at != std::string::npos; at = plain.find(entity)) {
        plain.replace(at, std::string(entity).size(), letter);
      }
    }
    const std::string size_text = attribute_of(element, "font-size");
    const double size = size_text.empty() ? 11 : std::stod(size_text);
    const double bold = attribute_of(element, "font-weight") == "bold" ? 1.14 : 1;
    const double width = 0.95 * text_width(plain, size) * bold;
    const double x = std::stod(attribute_of(element, "x")),
                 y = std::stod(attribute_of(element, "y"));
    const std::string anchor = attribute_of(element, "text-anchor");
    const double left = anchor == "end" ? -width : anchor == "middle" ? -width / 2 : 0;
    std::smatch rotated;
    const std::string transform = attribute_of(element, "transform");
    const bool turns = std::regex_search(transform, rotated, std::regex(R"(rotate\((-?[0-9.]+) )"));
    const double angle = turns ? std::stod(rotated[1]) * std::numbers::pi / 180 : 0;
    const auto corner = [&](double right, double down) {
      return SvgPoint{x + right * std::cos(angle) - down * std::sin(angle),
                      y + right * std::sin(angle) + down * std::cos(angle)};
    };
    const double top = -0.7 * size, bottom = 0.1 * size;
    one.corners = {corner(left, top), corner(left + width, top), corner(left + width, bottom),
                   corner(left, bottom)};
    out.push_back(one);
  }
  return out;
}

// Returns whether the boxes of two texts intersect, which is so if no edge of a box separates them.
inline bool overlap(const SvgText& a, const SvgText& b) {
  for (const SvgText* edges : {&a, &b}) {
    for (std::size_t i = 0; i < 4; ++i) {
      const SvgPoint from = edges->corners[i], to = edges->corners[(i + 1) % 4];
      const auto extent = [&](const SvgText& text) {
        double low = 1e18, high = -1e18;
        for (const SvgPoint& at : text.corners) {
          const double along =
              (at.x - from.x) * (to.y - from.y) - (at.y - from.y) * (to.x - from.x);
          low = std::min(low, along);
          high = std::max(high, along);
        }
        return std::pair(low, high);
      };
      const auto [a_low, a_high] = extent(a);
      const auto [b_low, b_high] = extent(b);
      if (a_high <= b_low || b_high <= a_low) return false;
    }
  }
  return true;
}

// Returns the distance between a point and the segment from the first to the last point of a path.
inline double distance_to_line(SvgPoint at, const std::string& path) {
  const std::vector<SvgPoint> points = points_of_path(path);
  const double dx = points.back().x - points.front().x, dy = points.back().y - points.front().y;
  const double part =
      ((at.x - points.front().x) * dx + (at.y - points.front().y) * dy) / (dx * dx + dy * dy);
  const double on_it = std::clamp(part, 0.0, 1.0);
  return std::hypot(at.x - points.front().x - on_it * dx, at.y - points.front().y - on_it * dy);
}

// Returns the path of each line named `name`.
inline std::vector<std::string> lines_called(const std::string& svg, const std::string& name) {
  std::vector<std::string> out;
  const std::string title = "><title>" + name + "</title></path>";
  for (std::size_t at = svg.find(title); at != std::string::npos; at = svg.find(title, at + 1)) {
    const std::size_t path = svg.rfind("<path d=\"", at) + 9;
    out.push_back(svg.substr(path, svg.find('"', path) - path));
  }
  return out;
}

}  // namespace convscope::testing
