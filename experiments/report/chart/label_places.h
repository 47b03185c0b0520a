// SPDX-License-Identifier: Apache-2.0
// label_places.h: where a label fits in a panel: on no mark, on no other label, inside the frame.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace convscope {

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;  // pixels
};

class LabelPlaces {
 public:
  using Points = std::vector<std::pair<double, double>>;

  explicit LabelPlaces(const Box& frame) : frame_(frame) {}
  void add_mark(double x, double y);
  void add_line(Points line);

  // Each takes the place that it finds. Beside a mark: the nearest one; beside a line: first where
  // no line crosses it.
  std::optional<Box> at_mark(double x, double y, double width, double height);
  std::optional<Box> at_line(const Points& line, double width, double height);

 private:
  bool free(const Box& box) const;
  bool crossed(const Box& box) const;
  Box frame_;
  std::vector<Box> taken_;
  std::vector<Points> lines_;
};

}  // namespace convscope
