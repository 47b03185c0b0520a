// SPDX-License-Identifier: Apache-2.0
// arrays.cpp: converts Python's arrays to tensors, and tensors to Python's arrays.
#include "experiments/python/arrays.h"

#include <dlfcn.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstring>

#include "experiments/python/errors.h"

namespace convscope::python {
namespace {

std::string class_name(nb::handle object) {
  return nb::cast<std::string>(
      nb::str(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))).attr("__name__")));
}

struct ArrayClass {
  PyTypeObject* type = nullptr;
  ArrayLibrary library = ArrayLibrary::other;
  bool has_mask = false;
};

ArrayClass class_of(nb::handle object) {
  ArrayClass out{.type = Py_TYPE(object.ptr())};
  const nb::object module =
      nb::getattr(nb::handle(reinterpret_cast<PyObject*>(out.type)), "__module__", nb::str(""));
  // "numpy", "torch", "torch.nn.parameter"
  const std::string name = nb::isinstance<nb::str>(module) ? nb::cast<std::string>(module) : "";
  out.has_mask = name.starts_with("numpy.ma") && class_name(object) == "MaskedArray";
  // An object that offers only its bytes (memoryview) is first wrapped in a NumPy array.
  if (name == "numpy" || name.starts_with("numpy.") || !nb::hasattr(object, "__dlpack__")) {
    out.library = ArrayLibrary::numpy;
  } else if (name == "torch" || name.starts_with("torch.")) {
    out.library = ArrayLibrary::pytorch;
  }
  return out;
}

// Returns the array class of an object. The first four classes that occur are cached; the cache
// keeps these Python classes alive. The caller must hold Python's lock.
ArrayClass known_class_of(nb::handle object) {
  static std::array<ArrayClass, 4> known;
  PyTypeObject* const type = Py_TYPE(object.ptr());
  for (ArrayClass& one : known) {
    if (one.type == type) return one;
    if (one.type != nullptr) continue;
    one = class_of(object);
    Py_INCREF(type);
    return one;
  }
  return class_of(object);
}

std::string text_of(nb::dlpack::dtype type) {
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  const char* const kind = code == nb::dlpack::dtype_code::Int      ? "int"
                           : code == nb::dlpack::dtype_code::UInt   ? "uint"
                           : code == nb::dlpack::dtype_code::Float  ? "float"
                           : code == nb::dlpack::dtype_code::Bfloat ? "bfloat"
                           : code == nb::dlpack::dtype_code::Bool   ? "bool"
                           : code == nb::dlpack::dtype_code::Complex
                               ? "complex"
                               : "another kind of numbers, bits: ";
  return cat(kind, static_cast<int>(type.bits));
}

std::optional<DType> dtype_of_array(nb::dlpack::dtype type) {
  if (type.lanes != 1) return std::nullopt;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto code = dtype == DType::bf16 ? nb::dlpack::dtype_code::Bfloat
                      : is_floating(dtype) ? nb::dlpack::dtype_code::Float
                      : dtype == DType::u8 ? nb::dlpack::dtype_code::UInt
                                           : nb::dlpack::dtype_code::Int;
    if (type.code == static_cast<std::uint8_t>(code) && type.bits == 8 * size_of(dtype)) {
      return dtype;
    }
  }
  return std::nullopt;
}

nb::dlpack::dtype dlpack_type(DType dtype) {
  const auto code = dtype == DType::bf16 ? nb::dlpack::dtype_code::Bfloat
                    : is_floating(dtype) ? nb::dlpack::dtype_code::Float
                    : dtype == DType::u8 ? nb::dlpack::dtype_code::UInt
                                         : nb::dlpack::dtype_code::Int;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * size_of(dtype)), 1};
}

bool is_row_major(const nb::ndarray<nb::ro>& array) {
  std::int64_t expected = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    const auto size = static_cast<std::int64_t>(array.shape(i));
    if (size == 0) return true;
    if (size != 1 && array.stride(i) != expected) return false;
    expected *= size;
  }
  return true;
}

// DLPack's strides count elements.
void copy_strided(const nb::ndarray<nb::ro>& from, std::size_t axis, const std::byte* source,
                  std::size_t bytes, std::byte*& to) {
  const std::size_t size = from.shape(axis);
  const std::int64_t step = from.stride(axis) * static_cast<std::int64_t>(bytes);
  const bool is_last = axis + 1 == from.ndim();
  if (is_last && from.stride(axis) == 1) {
    std::memcpy(to, source, size * bytes);
    to += size * bytes;
    return;
  }
  for (std::size_t i = 0; i < size; ++i, source += step) {
    if (!is_last) {
      copy_strided(from, axis + 1, source, bytes, to);
      continue;
    }
    std::memcpy(to, source, bytes);
    to += bytes;
  }
}

// PyTorch does not export tensors that require gradients, so the call refuses them.
void refuse_history(nb::handle object, const char* operation, const char* name) {
  const nb::object wants = nb::getattr(object, "requires_grad", nb::bool_(false));
  if (!nb::isinstance<nb::bool_>(wants) || !nb::cast<bool>(wants)) return;
  fail(operation,
       cat("expected ", name,
           " without requires_grad because PyTorch would not know of this operation, got "
           "a tensor with it; use the functions of convscope.torch, which PyTorch "
           "differentiates, or ",
           name, ".detach()"));
}

Device device_of(const nb::ndarray<nb::ro>& array, const char* operation, const char* name) {
  switch (array.device_type()) {
    case nb::device::cpu::value:
    case nb::device::cuda_host::value:
      return {};
    case nb::device::cuda::value:
      return {DeviceType::cuda, static_cast<std::uint8_t>(array.device_id())};
    default:
      fail(operation, cat("expected ", name,
                          " on the CPU or on a CUDA device, got one on another "
                          "device (DLPack's device type ",
                          array.device_type(), "); copy it to the CPU first"));
  }
}

}  // namespace

Array array_of(nb::handle object, const char* operation, const char* name,
               const AskedTypes& asked) {
  Array out;
  const auto no_array = [&](const std::string& got) {
    fail_type(cat("[", operation, "] expected ", name,
                  " as an array (of NumPy, PyTorch, or any that has __dlpack__), got ", got));
  };
  const ArrayClass of = known_class_of(object);
  out.library = of.library;
  if (of.has_mask) {
    no_array("one with a mask, which would be ignored; fill it first: .filled(0)");
  }
  if (!nb::ndarray_check(object)) no_array(cat("an object of type ", class_name(object)));
  if (out.library == ArrayLibrary::pytorch) refuse_history(object, operation, name);
  if (!nb::try_cast<nb::ndarray<nb::ro>>(object, out.held, /*convert=*/false)) {
    PyErr_Clear();
    const nb::object type = nb::getattr(object, "dtype", nb::none());
    no_array(type.is_none() ? cat("a ", class_name(object), " that it does not hand out")
                            : cat("elements of type ", nb::cast<std::string>(nb::str(type))));
  }
  out.device = device_of(out.held, operation, name);
  const std::optional<DType> dtype = dtype_of_array(out.held.dtype());
  if (!dtype) {
    fail(operation, cat("expected ", name, " of type ", asked.names, ", got ",
                        text_of(out.held.dtype()), "; convert it, e.g. to ", asked.example));
  }
  out.dtype = *dtype;
  if (out.held.ndim() > Shape::kMaxRank) {
    fail(operation,
         cat("expected ", name, " with at most ", Shape::kMaxRank, " axes, got ", out.held.ndim()));
  }
  for (std::size_t i = 0; i < out.held.ndim(); ++i) {
    out.shape.push_back(static_cast<std::int64_t>(out.held.shape(i)));
  }
  const bool row_major = is_row_major(out.held);
  const std::size_t bytes = size_of(out.dtype);
  const auto address = reinterpret_cast<std::uintptr_t>(out.held.data());
  if (row_major && (address % bytes == 0 || out.shape.numel() == 0)) {
    out.tensor =
        Tensor::borrow(const_cast<void*>(out.held.data()), out.shape, out.dtype, out.device);
    return out;
  }
  out.why_copied =
      row_major ? "its elements are not aligned" : "it is not row-major (C-contiguous)";
  if (out.device.type != DeviceType::cpu) {
    fail(operation,
         cat("expected ", name, " that is row-major on ", out.device.str(),
             " because kernels read it in place, got other strides; call .contiguous() on it"));
  }
  out.tensor = Tensor::empty(out.shape, out.dtype);
  auto* to = static_cast<std::byte*>(out.tensor.raw_data());
  if (out.held.ndim() == 0) {
    std::memcpy(to, out.held.data(), bytes);
  } else if (out.shape.numel() > 0) {
    copy_strided(out.held, 0, static_cast<const std::byte*>(out.held.data()), bytes, to);
  }
  return out;
}

std::optional<Array> array_or_none(nb::handle object, const char* operation, const char* name) {
  if (object.is_none()) return std::nullopt;
  return array_of(object, operation, name);
}

Shape shape_of(nb::handle object, const char* operation, const char* name) {
  Shape out;
  const auto add = [&](nb::handle size) {
    std::int64_t value = 0;
    if (!nb::try_cast<std::int64_t>(size, value, /*convert=*/false)) {
      fail_type(cat("[", operation, "] expected ", name,
                    " as an array or as its sizes, whole numbers, got a size of type ",
                    class_name(size)));
    }
    out.push_back(value);
  };
  const nb::object shape = nb::getattr(object, "shape", nb::borrow(object));
  if (PySequence_Check(shape.ptr()) == 0 || PyUnicode_Check(shape.ptr()) != 0) {
    fail_type(cat("[", operation, "] expected ", name,
                  " as an array or as its sizes, got an object of "
                  "type ",
                  class_name(object)));
  }
  for (const nb::handle size : shape) add(size);
  return out;
}

nb::object to_python(const Tensor& tensor, ArrayLibrary library) {
  std::array<std::size_t, Shape::kMaxRank> sizes{};
  const auto rank = static_cast<std::size_t>(tensor.rank());
  for (std::size_t i = 0; i < rank; ++i)
    sizes[i] = static_cast<std::size_t>(tensor.shape()[static_cast<int>(i)]);
  const nb::capsule owner(new Tensor(tensor),
                          [](void* kept) noexcept { delete static_cast<Tensor*>(kept); });
  const Device device = tensor.device();
  const int device_type =
      device.type == DeviceType::cpu ? nb::device::cpu::value : nb::device::cuda::value;
  const auto as = [&](auto array) { return nb::cast(array, nb::rv_policy::automatic); };
  void* const data = tensor.raw_data();
  const nb::dlpack::dtype type = dlpack_type(tensor.dtype());
  if (library == ArrayLibrary::numpy) {
    return as(nb::ndarray<nb::numpy>(data, rank, sizes.data(), owner, nullptr, type, device_type,
                                     device.index));
  }
  if (library == ArrayLibrary::pytorch) {
    return as(nb::ndarray<nb::pytorch>(data, rank, sizes.data(), owner, nullptr, type, device_type,
                                       device.index));
  }
  return as(nb::ndarray<nb::array_api>(data, rank, sizes.data(), owner, nullptr, type, device_type,
                                       device.index));
}

void wait_for_others(Device device) {
  if (device.type == DeviceType::cpu) return;
  backend_of(device).synchronize(device.index);  // makes the device's context that of this thread
  // Other libraries use streams that are not known here, so wait for the whole CUDA context.
  // libcuda.so.1 is already loaded, because the device exists.
  using Wait = int (*)();
  static const Wait wait = [] {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver == nullptr ? nullptr : reinterpret_cast<Wait>(dlsym(driver, "cuCtxSynchronize"));
  }();
  if (wait != nullptr) wait();
}

}  // namespace convscope::python
