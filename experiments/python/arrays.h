// SPDX-License-Identifier: Apache-2.0
// arrays.h: converts Python's arrays to tensors, and tensors to Python's arrays.
//
// If an input is row-major and aligned, kernels read the array's own memory. Any other input is
// copied, and `why_copied` has the reason. An output is an array of the same library as the input;
// it uses the memory of the result tensor and keeps this memory alive.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <string>

#include "framework/tensor.h"

namespace convscope::python {

namespace nb = nanobind;

// The library that an array comes from. Results are arrays of the same library as the input.
enum class ArrayLibrary { numpy, pytorch, other };

// An array argument. `tensor` may use the memory of the Python object, so `held` keeps that object
// alive.
struct Array {
  nb::ndarray<nb::ro> held;
  ArrayLibrary library = ArrayLibrary::numpy;
  Device device;  // of the elements
  DType dtype = DType::f32;
  Shape shape;
  std::string why_copied;  // "": not copied, `tensor` refers to the elements
  Tensor tensor;           // row-major, on `device`
};

// Words for the error message about an element type that no tensor has (int64, bool).
struct AskedTypes {
  const char* names = "f32, f64, f16 or bf16";
  const char* example = "float32";  // a name in NumPy and PyTorch
};

// Converts an array. Throws a TypeError in Python that names `name` when it is not an array.
Array array_of(nb::handle object, const char* operation, const char* name,
               const AskedTypes& asked = {});
// Converts an array; returns no value for None.
std::optional<Array> array_or_none(nb::handle object, const char* operation, const char* name);

// Returns the sizes of an array, or of a sequence of integers.
Shape shape_of(nb::handle object, const char* operation, const char* name);

// Returns an array over the tensor's memory.
nb::object to_python(const Tensor& tensor, ArrayLibrary library);

// Waits until the other libraries of this process have finished the work that they queued on the
// device. Call it before reading their elements; a CPU has no queue.
void wait_for_others(Device device);

}  // namespace convscope::python
