// SPDX-License-Identifier: Apache-2.0
// arrays.h: arrays of Python as tensors, and tensors as arrays of Python.
//
// What comes in is borrowed where a kernel can read it as it lies: row-major and aligned. All else
// is copied, and `why_copied` says why. What goes out is the tensor's own memory, kept by an array
// of the library that the input came from.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <string>

#include "framework/tensor.h"

namespace convscope::python {

namespace nb = nanobind;

// Whose arrays they are: an answer comes as an array of the same library.
enum class ArrayLibrary { numpy, pytorch, other };

// An argument that is an array. It keeps the elements that `tensor` may borrow.
struct Array {
  nb::ndarray<nb::ro> held;
  ArrayLibrary library = ArrayLibrary::numpy;
  Device device;  // where the elements lie
  DType dtype = DType::f32;
  Shape shape;
  std::string why_copied;  // "": `tensor` looks at the elements themselves
  Tensor tensor;           // row-major, on `device`
};

// Which elements a sentence asks for where an array has such as no tensor has (int64, bool).
struct AskedTypes {
  const char* names = "f32, f64, f16 or bf16";
  const char* example = "float32";  // as NumPy and PyTorch call one of them
};

// An error, of type TypeError in Python, names `name` when the object is no array.
Array array_of(nb::handle object, const char* operation, const char* name,
               const AskedTypes& asked = {});
// None gives none.
std::optional<Array> array_or_none(nb::handle object, const char* operation, const char* name);

// Sizes of an array, or of a sequence of whole numbers.
Shape shape_of(nb::handle object, const char* operation, const char* name);

// An array over the tensor's memory.
nb::object to_python(const Tensor& tensor, ArrayLibrary library);

// Waits until the other libraries of this process have done what they queued on the device. Before
// our own work starts on elements of theirs; a CPU has nothing queued.
void wait_for_others(Device device);

}  // namespace convscope::python
