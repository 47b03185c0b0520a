// SPDX-License-Identifier: Apache-2.0
// label_layout.h: finds positions for labels inside a panel's frame that overlap no mark and no
// other label.
#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace convscope {

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;  // pixels
};

// Position of a label along a line: its centre, and its angle clockwise from the right.
struct LabelPosition {
  double x = 0, y = 0, degrees = 0;
};

class LabelLayout {
 public:
  using Points = std::vector<std::pair<double, double>>;
  using Corners = std::array<std::pair<double, double>, 4>;  // corners of a rectangle, in order

  explicit LabelLayout(const Box& frame) : frame_(frame) {}
  void add_mark(double x, double y);
  void add_line(Points line);

  // Returns a free position and reserves it. A label of a mark gets the free position nearest to
  // the mark. A label of a line is next to a straight segment of its line, and nearer to this line
  // than to any other line.
  std::optional<Box> at_mark(double x, double y, double width, double height);
  std::optional<LabelPosition> at_line(const Points& line, double width, double height);

 private:
  bool free(const Corners& label) const;
  bool crossed(const Corners& label) const;
  Box frame_;
  std::vector<Corners> taken_;
  std::vector<Points> lines_;
};

}  // namespace convscope
