// SPDX-License-Identifier: Apache-2.0
// kept_choices.h: stores, in choices.json of a run's folder, the measurements on which its choices
// of algorithms depend: the results of the policy `measure`, and the peaks and the table of
// coefficients that `auto` uses. A resumed run then chooses the same algorithms, even if the
// machine has no measurements or different ones.
#pragma once

#include <string>

#include "framework/device.h"
#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API KeptChoices {
 public:
  explicit KeptChoices(Device device) : device_(device) {}
  // Uses the choices in a run's folder for this process. Must be called before the network is
  // built. Does nothing without the file. Fails with kIo for a damaged file.
  static void take_over(const std::string& run);
  // Writes the present choices if the file has fewer.
  void write(const std::string& run);

 private:
  Device device_;
  std::string written_;
};

}  // namespace convscope
