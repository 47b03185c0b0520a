// SPDX-License-Identifier: Apache-2.0
// kept_choices.h: by what a run chose its algorithms, in choices.json of its folder, so that it
// goes on with the same ones where the measurements of the machine are gone or are others: what
// `measure` answered, and the ceilings by which `auto` orders.
#pragma once

#include <string>

#include "framework/device.h"
#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API KeptChoices {
 public:
  explicit KeptChoices(Device device) : device_(device) {}
  // Takes over what stands in a run's folder, for this process; nothing when there is no such file.
  // Before the network is built. A file that is damaged is an error of kind kIo.
  static void take_over(const std::string& run);
  // Writes what holds now, when it is more than was written before.
  void write(const std::string& run);

 private:
  Device device_;
  std::string written_;
};

}  // namespace convscope
