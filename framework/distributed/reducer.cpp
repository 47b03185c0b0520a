// SPDX-License-Identifier: Apache-2.0
// reducer.cpp: which sums over processes a device gets.
#include "framework/distributed/reducer.h"

#include "framework/distributed/mpi_reducer.h"

namespace convscope {

Reducer::~Reducer() = default;

std::unique_ptr<Reducer> make_reducer(ProcessGroup& group, Device device, SumOrder order) {
  if (device.type == DeviceType::cpu) return std::make_unique<MpiReducer>(group, order);
  return std::make_unique<MpiReducer>(group, order);
}

}  // namespace convscope
