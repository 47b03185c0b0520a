// SPDX-License-Identifier: Apache-2.0
// network_drawing.cpp: draws the layers of a network as boxes with arrows.
//
// A box is one row below the lowest box that it reads, and below its first input if this place is
// free, so that a branch is a column. An arrow that passes other rows has a separate lane at the
// right of the boxes.
#include <algorithm>
#include <map>
#include <set>

#include "experiments/explain/network_graph.h"
#include "experiments/explain/text_layout.h"
#include "experiments/report/chart/svg_text.h"

namespace convscope {
namespace {

constexpr int kBoxWidth = 210, kBoxHeight = 46, kColumn = 230, kRow = 70, kMargin = 20, kTop = 50,
              kLane = 12;
constexpr double kFont = 11;

struct Place {
  int row = 0, column = 0;
  int x() const { return kMargin + column * kColumn; }
  int y() const { return kTop + row * kRow; }
};

std::vector<Place> places_of(const std::vector<GraphNode>& nodes) {
  std::vector<Place> out;
  std::map<int, std::set<int>> taken;  // columns of each row
  for (const GraphNode& node : nodes) {
    Place place;
    for (const std::size_t input : node.inputs) place.row = std::max(place.row, out[input].row + 1);
    if (!node.inputs.empty()) place.column = out[node.inputs[0]].column;
    while (!taken[place.row].insert(place.column).second) ++place.column;
    out.push_back(place);
  }
  return out;
}

std::string text_at(int x, int y, const std::string& text, const char* more = "") {
  return cat("<text x=\"", x, "\" y=\"", y, "\"", more, ">",
             escape_markup(elide(text, kFont, kBoxWidth - 12)), "</text>\n");
}

std::string box(const GraphNode& node, const Place& at) {
  const bool has_algorithm = !node.algorithm.empty();
  std::string work = node.mflop > 0 ? cat(number_text("%.4g", node.mflop), " MFLOP") : "";
  if (has_algorithm) work += cat(work.empty() ? "" : ", ", node.algorithm);
  std::string out = cat("<g><title>",
                        escape_markup(cat(node.name, ": ", node.kind, " ", node.shape,
                                          work.empty() ? "" : ", ", work)),
                        "</title>\n<rect x=\"", at.x(), "\" y=\"", at.y(), "\" width=\"", kBoxWidth,
                        "\" height=\"", kBoxHeight, "\" rx=\"4\" fill=\"",
                        has_algorithm ? "#dbe9f6" : "#f3f3f3", "\" stroke=\"#555\"/>\n");
  out += text_at(at.x() + 6, at.y() + 13, cat(node.name, "  ", node.kind), " font-weight=\"bold\"");
  out += text_at(at.x() + 6, at.y() + 27, node.shape);
  return out + text_at(at.x() + 6, at.y() + 41, work) + "</g>\n";
}

std::string arrow(const Place& from, const Place& to, int lane_x) {
  const int x0 = from.x() + kBoxWidth / 2, y0 = from.y() + kBoxHeight;
  const int x1 = to.x() + kBoxWidth / 2, y1 = to.y() - 2;
  std::string path = cat("M", x0, " ", y0);
  if (to.row > from.row + 1) {
    path += cat(" V", y0 + 8, " H", lane_x, " V", y1 - 12, " H", x1);
  } else if (x0 != x1) {
    path += cat(" V", y0 + 10, " H", x1);
  }
  return cat("<path d=\"", path, " V", y1,
             "\" fill=\"none\" stroke=\"#555\" marker-end=\"url(#head)\"/>\n");
}

}  // namespace

std::string graph_svg(const std::string& title, const std::vector<GraphNode>& nodes) {
  const std::vector<Place> places = places_of(nodes);
  int rows = 0, columns = 0, lanes = 0;
  for (const Place& place : places) {
    rows = std::max(rows, place.row + 1);
    columns = std::max(columns, place.column + 1);
  }
  const int right = kMargin + columns * kColumn;
  std::string body;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::size_t input : nodes[i].inputs) {
      const bool passes = places[i].row > places[input].row + 1;
      body += arrow(places[input], places[i], passes ? right + kLane * lanes++ : 0);
    }
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) body += box(nodes[i], places[i]);
  const int width = right + kLane * lanes + kMargin, height = kTop + rows * kRow;
  return cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
             "\" viewBox=\"0 0 ", width, " ", height,
             "\" font-family=\"sans-serif\" font-size=\"11\">\n<defs><marker id=\"head\" "
             "viewBox=\"0 0 6 6\" refX=\"5\" refY=\"3\" markerWidth=\"6\" markerHeight=\"6\" "
             "orient=\"auto\"><path d=\"M0 0 L6 3 L0 6 z\" fill=\"#555\"/></marker></defs>\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"",
             kMargin, "\" y=\"24\" font-size=\"14\" font-weight=\"bold\">", escape_markup(title),
             "</text>\n", body, "</svg>\n");
}

}  // namespace convscope
