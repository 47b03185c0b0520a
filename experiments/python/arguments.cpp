// SPDX-License-Identifier: Apache-2.0
// arguments.cpp: the arguments that Python's convolutions share.
#include "experiments/python/arguments.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <vector>

#include "experiments/cli/measure_once.h"
#include "experiments/python/errors.h"

namespace convscope::python {
namespace {

// Returns whether `given` is an integer of Python or NumPy; bool is not one.
bool is_whole(nb::handle given, std::int64_t& value) {
  if (PyIndex_Check(given.ptr()) == 0 || PyBool_Check(given.ptr()) != 0) return false;
  const nb::object number = nb::steal(PyNumber_Index(given.ptr()));
  if (!number.is_valid()) {
    PyErr_Clear();
    return false;
  }
  return nb::try_cast<std::int64_t>(number, value, /*convert=*/false);
}

}  // namespace

std::vector<std::int64_t> whole_numbers(nb::handle given, const char* operation, const char* name,
                                        std::initializer_list<std::size_t> counts) {
  const auto refuse = [&] {
    std::string text = "a whole number";
    for (const std::size_t count : counts) text += cat(" or ", count, " of them");
    fail_type(cat("[", operation, "] expected ", name, " as ", text, ", got ",
                  nb::cast<std::string>(nb::repr(given))));
  };
  std::vector<std::int64_t> out(1);
  if (is_whole(given, out[0])) return out;
  if (PySequence_Check(given.ptr()) == 0 || PyUnicode_Check(given.ptr()) != 0) refuse();
  out.clear();
  for (const nb::handle one : given) {
    std::int64_t value = 0;
    if (!is_whole(one, value)) refuse();
    out.push_back(value);
  }
  if (std::ranges::find(counts, out.size()) == counts.end()) refuse();
  return out;
}

Conv2dParams params_of(const ConvWords& words, const char* operation) {
  Conv2dParams out;
  const auto stride = whole_numbers(words.stride, operation, "stride", {2});
  out.stride_h = stride.front();
  out.stride_w = stride.back();
  const auto dilation = whole_numbers(words.dilation, operation, "dilation", {2});
  out.dilation_h = dilation.front();
  out.dilation_w = dilation.back();
  const auto padding = whole_numbers(words.padding, operation, "padding", {2, 4});
  out.padding = padding.size() == 4
                    ? Padding2d{padding[0], padding[1], padding[2], padding[3]}
                    : Padding2d{padding.front(), padding.front(), padding.back(), padding.back()};
  out.groups = words.groups;
  out.precision = precision_of(words.precision, operation);
  return out;
}

ConvTranspose2dParams transposed_params_of(const ConvWords& words,
                                           const nb::object& output_padding) {
  const auto more = whole_numbers(output_padding, "conv_transpose2d", "output_padding", {2});
  return {params_of(words, "conv_transpose2d"), more.front(), more.back()};
}

ComputePrecision precision_of(const std::string& word, const char* operation) {
  for (const ComputePrecision precision : kComputePrecisions) {
    if (name_of(precision) == word) return precision;
  }
  fail(operation, cat("expected precision f32, tf32, bf16 or f16, got '", word, "'"));
}

Device device_of(const nb::object& device, const Array& x) {
  if (device.is_none()) return x.device;
  const Device out = Device::parse(nb::cast<std::string>(nb::str(device)));
  backend_of(out);  // throws if it is missing
  return out;
}

void check_device(DType dtype, ComputePrecision precision, Device device, const char* operation) {
  if (device.type != DeviceType::cpu) return;
  const bool half = is_half(dtype);
  if (!half && precision == ComputePrecision::f32) return;
  fail(ErrorKind::kUnavailable, operation,
       cat("expected arrays of type f32 or f64 with precision f32 on the CPU, which has no units "
           "for ",
           half ? name_of(dtype) : name_of(precision), "; ",
           half ? "convert them to float32, or compute on device=\"cuda\""
                : "leave precision out, or compute on device=\"cuda\""));
}

void check_type(const Array& x, ComputePrecision precision, const char* operation) {
  if (!is_floating(x.dtype)) {
    fail(operation, cat("expected x of type f32, f64, f16 or bf16, got ", x.tensor.str()));
  }
  if (precision != ComputePrecision::f32 && x.dtype != DType::f32) {
    fail(operation, cat("expected precision f32 because x is ", x.tensor.str(), ", got ",
                        name_of(precision), "; it is for arrays of type f32"));
  }
}

void check_beside(const Array& array, const Array& x, const char* operation, const char* name) {
  if (array.dtype == x.dtype && array.device == x.device) return;
  fail(operation, cat("expected x and ", name, " of one type on one device, got x ", x.tensor.str(),
                      " and ", name, " ", array.tensor.str()));
}

void check_shape(const Array& array, const Shape& expected, const std::string& because,
                 const char* operation, const char* name) {
  if (array.shape == expected) return;
  fail(operation,
       cat("expected ", name, " ", expected, " because ", because, ", got ", array.shape));
}

void measure_before(const std::string& algorithm) {
  if (algorithm.find("auto") == std::string::npos) return;
  static const bool once = [] {
    measure_this_machine_once();
    return true;
  }();
  (void)once;
}

bool wants(const nb::object& needs, const char* name) {
  return needs.is_none() || nb::cast<bool>(needs.attr("__contains__")(name));
}

void check_needs(const nb::object& needs, const std::vector<std::string>& known,
                 const char* operation) {
  if (needs.is_none()) return;
  if (PySequence_Check(needs.ptr()) == 0 || PyUnicode_Check(needs.ptr()) != 0) {
    fail_type(cat("[", operation, "] expected needs as a tuple of ", join(known), ", got ",
                  nb::cast<std::string>(nb::repr(needs))));
  }
  for (const nb::handle one : needs) {
    const std::string name = nb::cast<std::string>(nb::str(one));
    if (std::ranges::count(known, name) > 0) continue;
    fail(operation, cat("expected needs with some of ", join(known), ", got '", name, "'"));
  }
}

}  // namespace convscope::python
