// SPDX-License-Identifier: Apache-2.0
// arguments.h: the arguments that convolutions of Python share, and the choice of an algorithm.
#pragma once

#include <initializer_list>
#include <mutex>
#include <string>
#include <vector>

#include "experiments/python/arrays.h"
#include "layers/conv2d/conv2d.h"
#include "layers/dispatch/choice_cache.h"

namespace convscope::python {

// As Python gives them: whole numbers, or pairs (h, w); padding may be (top, bottom, left, right).
struct ConvWords {
  nb::handle stride, padding, dilation;
  std::int64_t groups = 1;
  std::string precision = "f32";
};
Conv2dParams params_of(const ConvWords& words, const char* operation);
ComputePrecision precision_of(const std::string& word, const char* operation);

// One number, or as many as one of `counts` says.
std::vector<std::int64_t> whole_numbers(nb::handle given, const char* operation, const char* name,
                                        std::initializer_list<std::size_t> counts);

// Where the work is done, and how: the device's name, or none for that of x.
Device device_of(const nb::object& device, const Array& x);

// An error where the device has no units for such factors.
void check_device(DType dtype, ComputePrecision precision, Device device, const char* operation);

// An error where x has no type that is multiplied, or another one than f32 beside a precision: f32
// arrays may be multiplied in a shorter type, others are multiplied in their own.
void check_type(const Array& x, ComputePrecision precision, const char* operation);

// Another input of the same call: an error unless it is of the type and on the device of x.
void check_beside(const Array& array, const Array& x, const char* operation, const char* name);
void check_shape(const Array& array, const Shape& expected, const std::string& because,
                 const char* operation, const char* name);

// Measures the machine before the first `auto` of the process, as the command line does. Without
// Python's lock.
void measure_before(const std::string& algorithm);

// A GPU has one queue and scratch memory for all, so calls of several threads follow each other.
class DeviceTurn {
 public:
  explicit DeviceTurn(Device device) : device_(device) {
    if (device.type != DeviceType::cpu) lock_ = std::unique_lock(mutex());
    wait_for_others(device);
  }
  // What was computed is there when others read it.
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

// What this word chose for this problem, remembered for each thread: a choice asks every card for
// its costs, which takes longer than a small convolution.
template <class Problem>
const Choice<Problem>& chosen(const std::string& algorithm, const Problem& problem,
                              Direction direction, Device device) {
  constexpr std::size_t kMostWords = 64;
  thread_local std::map<std::string, Ref<ChoiceCache<Problem>>, std::less<>> caches;
  auto at = caches.find(algorithm);
  if (at == caches.end()) {
    check_policy(HeavyLayer<Problem>::kOperation, algorithm, device,
                 HeavyLayer<Problem>::algorithms(device.type).names());
    if (caches.size() == kMostWords) caches.clear();
    const AlgorithmPolicy policy{
        .forward = algorithm, .backward_data = algorithm, .backward_weight = algorithm};
    at = caches.emplace(algorithm, make_ref<ChoiceCache<Problem>>(policy)).first;
  }
  return at->second->get(problem, direction, device, WeightUse::once);
}

// Which gradients are asked for: "dx", "dw", ...; an error names an unknown one.
bool wants(const nb::object& needs, const char* name);
void check_needs(const nb::object& needs, const std::vector<std::string>& known,
                 const char* operation);

}  // namespace convscope::python
