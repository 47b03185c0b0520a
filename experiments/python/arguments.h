// SPDX-License-Identifier: Apache-2.0
// arguments.h: the arguments that Python's convolutions share.
#pragma once

#include <initializer_list>
#include <mutex>
#include <string>
#include <vector>

#include "experiments/python/arrays.h"
#include "layers/conv2d/conv2d.h"
#include "layers/conv_transpose2d/conv_transpose2d.h"

namespace convscope::python {

// Arguments as passed in Python: an integer, or a pair (h, w); padding may be (top, bottom, left,
// right).
struct ConvWords {
  nb::handle stride, padding, dilation;
  std::int64_t groups = 1;
  std::string precision = "f32";
};
Conv2dParams params_of(const ConvWords& words, const char* operation);
ConvTranspose2dParams transposed_params_of(const ConvWords& words,
                                           const nb::object& output_padding);
ComputePrecision precision_of(const std::string& word, const char* operation);

// Converts an integer or a sequence of integers. The length of a sequence must be in `counts`.
std::vector<std::int64_t> whole_numbers(nb::handle given, const char* operation, const char* name,
                                        std::initializer_list<std::size_t> counts);

// Returns the device of the computation: the named one, or by default that of x.
Device device_of(const nb::object& device, const Array& x);

// Throws an error unless the device supports operands of this type.
void check_device(DType dtype, ComputePrecision precision, Device device, const char* operation);

// Throws an error unless x has a supported type. With a precision other than f32, x must be f32,
// because only f32 arrays may be rounded to a shorter type.
void check_type(const Array& x, ComputePrecision precision, const char* operation);

// Throws an error unless `array`, another input of the call, has the type and the device of x.
void check_beside(const Array& array, const Array& x, const char* operation, const char* name);
void check_shape(const Array& array, const Shape& expected, const std::string& because,
                 const char* operation, const char* name);

// Measures the machine before the first `auto` of the process, as the command line does. The caller
// must not hold Python's lock.
void measure_before(const std::string& algorithm);

// Serialises the calls of several threads, which share the queue and the workspace of a GPU.
class DeviceTurn {
 public:
  explicit DeviceTurn(Device device) : device_(device) {
    if (device.type != DeviceType::cpu) lock_ = std::unique_lock(mutex());
    wait_for_others(device);
  }
  // Waits until the results are complete, so that other libraries can read them.
  void finish() const {
    if (device_.type != DeviceType::cpu) backend_of(device_).synchronize(device_.index);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex only;
    return only;
  }
  Device device_;
  std::unique_lock<std::mutex> lock_;
};

// Returns whether a gradient is requested: "dx", "dw", ...; throws for an unknown name.
bool wants(const nb::object& needs, const char* name);
void check_needs(const nb::object& needs, const std::vector<std::string>& known,
                 const char* operation);

}  // namespace convscope::python
