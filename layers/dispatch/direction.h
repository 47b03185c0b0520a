// SPDX-License-Identifier: Apache-2.0
// direction.h: the three directions of an operator: forward, backward_data, backward_weight.
#pragma once

#include <string_view>

namespace convscope {

enum class Direction { forward, backward_data, backward_weight };
inline constexpr Direction kDirections[] = {Direction::forward, Direction::backward_data,
                                            Direction::backward_weight};
constexpr std::string_view name_of(Direction direction) {
  return direction == Direction::forward         ? "forward"
         : direction == Direction::backward_data ? "backward_data"
                                                 : "backward_weight";
}

}  // namespace convscope
