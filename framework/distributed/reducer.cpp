// SPDX-License-Identifier: Apache-2.0
// reducer.cpp: chooses how tensors on a device are summed over processes.
#include "framework/distributed/reducer.h"

#include "framework/distributed/mpi_reducer.h"
#include "framework/distributed/nccl_reducer.h"
#include "framework/distributed/staged_reducer.h"

namespace convscope {

Reducer::~Reducer() = default;

std::unique_ptr<Reducer> make_reducer(ProcessGroup& group, Device device, SumOrder order) {
  if (device.type == DeviceType::cpu) return std::make_unique<MpiReducer>(group, order);
  std::string why = "NCCL cannot sum in the fixed order of a tree";
  if (order != SumOrder::tree) {
    if (auto nccl = NcclReducer::make(group, device, &why)) return nccl;
  }
  return std::make_unique<StagedReducer>(group, device, order, why);
}

}  // namespace convscope
