// SPDX-License-Identifier: Apache-2.0
// kept_choices.h: the basis of a run's algorithm choices, in choices.json of its folder: the
// answers of `measure`, and the measured peaks that `auto` uses. A resumed run then chooses the
// same algorithms, even if the measurements of the machine are missing or different.
#pragma once

#include <string>

#include "framework/device.h"
#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API KeptChoices {
 public:
  explicit KeptChoices(Device device) : device_(device) {}
  // Takes over the choices of a run's folder for this process, before the network is built; does
  // nothing without the file. Fails with kIo for a damaged file.
  static void take_over(const std::string& run);
  // Writes the present choices if there are more than in the file.
  void write(const std::string& run);

 private:
  Device device_;
  std::string written_;
};

}  // namespace convscope
