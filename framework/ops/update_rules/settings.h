// SPDX-License-Identifier: Apache-2.0
// settings.h: describes the settings of update rules.
#pragma once

#include "framework/options.h"

namespace convscope {

inline constexpr double kBelowOne = 1 - 0x1p-53;  // the largest double below 1

inline OptionField number_setting(const char* name, double value, const char* doc, double min,
                                  double max) {
  return {.name = name,
          .type = OptionType::number,
          .default_value = value,
          .doc = doc,
          .min = min,
          .max = max};
}

}  // namespace convscope
