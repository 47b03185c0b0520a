// SPDX-License-Identifier: Apache-2.0
// favoured_kernel.h: makes kernels of the cost model many times as fast as others on a GPU, so
// that the search for a schedule takes them where they can run.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "layers/dispatch/cost/device_table.h"

namespace convscope::testing {

class FavouredKernel {
 public:
  // Changes nothing without schedules.
  // If `term` is given, other terms hardly count, so that other tilings are the cheapest.
  FavouredKernel(const CostKey& key, const std::vector<std::string>& schedules, int term = -1)
      : FavouredKernel(std::vector<CostKey>{key}, schedules, term) {}
  FavouredKernel(const std::vector<CostKey>& keys, const std::vector<std::string>& schedules,
                 int term = -1) {
    if (schedules.empty()) return;
    Coefficients coefficients = default_coefficients(DeviceType::cuda);
    for (double& one : coefficients) one *= term < 0 ? 1e-4 : 1e-8;
    if (term >= 0) coefficients[static_cast<std::size_t>(term)] *= 1e4;
    DeviceTable table;
    table.device = "test";
    table.gpus = {"test"};
    for (const CostKey& key : keys) {
      for (const std::string& one : schedules) {
        table.by_isa["cuda"][kernel_of(key, one.c_str())] = coefficients;
      }
    }
    use_device_table(device_table_text(table), DeviceType::cuda);
  }
  ~FavouredKernel() { use_device_table("", DeviceType::cuda); }
  FavouredKernel(const FavouredKernel&) = delete;
  FavouredKernel& operator=(const FavouredKernel&) = delete;
};

}  // namespace convscope::testing
