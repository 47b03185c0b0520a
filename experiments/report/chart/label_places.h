// SPDX-License-Identifier: Apache-2.0
// label_places.h: finds places of labels in a panel: not on a mark or another label, inside the
// frame.
#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace convscope {

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;  // pixels
};

// Place of a label along a line: its centre, and its direction clockwise from the right.
struct TurnedPlace {
  double x = 0, y = 0, degrees = 0;
};

class LabelPlaces {
 public:
  using Points = std::vector<std::pair<double, double>>;
  using Corners = std::array<std::pair<double, double>, 4>;  // corners of a rectangle, in order

  explicit LabelPlaces(const Box& frame) : frame_(frame) {}
  void add_mark(double x, double y);
  void add_line(Points line);

  // Returns a free place and reserves it. At a mark: the nearest one. Along a line: next to one of
  // its straight pieces, nearer to this line than to any other.
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
