// SPDX-License-Identifier: Apache-2.0
// label_places.h: where a label fits in a panel: on no mark, on no other label, inside the frame.
#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace convscope {

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;  // pixels
};

// Of a label along a line: its middle, and its direction, clockwise from the right.
struct TurnedPlace {
  double x = 0, y = 0, degrees = 0;
};

class LabelPlaces {
 public:
  using Points = std::vector<std::pair<double, double>>;
  using Corners = std::array<std::pair<double, double>, 4>;  // of a rectangle, in order

  explicit LabelPlaces(const Box& frame) : frame_(frame) {}
  void add_mark(double x, double y);
  void add_line(Points line);

  // Each takes the place that it finds. Beside a mark: the nearest one. Along a line: beside one of
  // its straight pieces, nearer to it than to any other line.
  std::optional<Box> at_mark(double x, double y, double width, double height);
  std::optional<TurnedPlace> at_line(const Points& line, double width, double height);

 private:
  bool free(const Corners& label) const;
  bool crossed(const Corners& label) const;
  Box frame_;
  std::vector<Corners> taken_;
  std::vector<Points> lines_;
};

}  // namespace convscope
