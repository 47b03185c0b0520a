// SPDX-License-Identifier: Apache-2.0
// svg_geometry.h: where the marks, the labels and the lines of a drawn chart stand.
#pragma once

#include <algorithm>
#include <regex>
#include <string>
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

// The corners' middle of each mark (a path with the edge of style_mark); circles from their arcs.
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

// Labels inside a panel: those with a white edge.
inline std::vector<SvgBox> labels_in(const std::string& svg) {
  std::vector<SvgBox> out;
  const std::regex label(
      R"x(<text x="([-0-9.]+)" y="([-0-9.]+)"[^>]*paint-order="stroke">([^<]*)<)x");
  for (std::sregex_iterator at(svg.begin(), svg.end(), label), end; at != end; ++at) {
    const double x = std::stod((*at)[1]), y = std::stod((*at)[2]);
    out.push_back({(*at)[3], x, y - 8, x + text_width((*at)[3].str(), 10), y + 2});
  }
  return out;
}

// The path of each line that is called `name`.
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
