// SPDX-License-Identifier: Apache-2.0
// kernel_slot.h: a slot is a table with one function pointer per kind of device. The public
// function of an operation checks the arguments once and calls slot.get(device). `<op>_cpu.cpp`
// fills the cpu entry; `<op>_cuda.cu` fills the cuda entry when the CUDA library is opened. A new
// kind of device changes no caller.
#pragma once

#include "framework/check.h"
#include "framework/device.h"

namespace convscope {

template <class Signature>
class KernelSlot {
 public:
  constexpr explicit KernelSlot(const char* name) : name_(name) {}
  bool add(DeviceType type, Signature* kernel) {
    kernels_[static_cast<int>(type)] = kernel;
    return true;
  }
  Signature* get(Device device) const {
    Signature* kernel = kernels_[static_cast<int>(device.type)];
    if (kernel == nullptr) {
      fail(ErrorKind::kUnavailable, name_,
           cat("expected a kernel for device ", device.str(), ", none is registered"));
    }
    return kernel;
  }

 private:
  const char* name_;
  Signature* kernels_[kDeviceTypeCount]{};
};

}  // namespace convscope

// Usage, at the end of <op>_cpu.cpp: CONVSCOPE_KERNEL(relu_kernel, cpu, relu_cpu);
#define CONVSCOPE_KERNEL(slot, device_type, function)             \
  namespace {                                                     \
  [[maybe_unused]] const bool registered_##slot##_##device_type = \
      (slot).add(::convscope::DeviceType::device_type, function); \
  }
