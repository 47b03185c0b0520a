// SPDX-License-Identifier: Apache-2.0
// tensor.h: a typed, shaped, contiguous (row-major) block of memory on a device.
//
// A Tensor is a handle: copies share the elements. Views exist only where the result stays
// contiguous: reshape, and slices along the leading dimension. Arithmetic is in framework/ops.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "framework/check.h"
#include "framework/device.h"
#include "framework/dtype.h"
#include "framework/ref.h"
#include "framework/shape.h"

namespace convscope {

// One block of device memory, shared by the tensors that view it.
class CONVSCOPE_API Storage : public RefCounted {
 public:
  Storage(Device device, std::size_t bytes);
  Storage(Device device, std::size_t bytes, void* block);  // takes ownership of an allocated block
  ~Storage() override;
  const Device device;
  const std::size_t bytes;
  void* const data;

 private:
  friend class Tensor;
  bool is_borrowed_ = false;  // somebody else owns and frees the block
};

class CONVSCOPE_API Tensor {
 public:
  Tensor() = default;  // undefined: no shape, no elements; defined() is false

  // Allocates a tensor without initialising its elements.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32,
                     Device device = {});
  // Copies host values to a new CPU tensor.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape) {
    CONVSCOPE_CHECK(static_cast<std::int64_t>(values.size()) == shape.numel(), "tensor",
                    "expected as many values as ", shape, " holds, got ", values.size());
    Tensor out = empty(shape, dtype_of<T>);
    T* to = out.data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = values[i];
    return out;
  }
  static Tensor from(std::initializer_list<float> values, const Shape& shape) {
    return from(std::span<const float>(values.begin(), values.size()), shape);
  }

  // Wraps foreign row-major memory without copying, counting or freeing it. The memory must outlive
  // this tensor and its views, and must be aligned for the element type.
  static Tensor borrow(void* elements, const Shape& shape, DType dtype = DType::f32,
                       Device device = {});

  // Views the bytes of `storage` that begin at an offset suitably aligned for the type. The caller
  // must ensure that the view is inside the storage whenever elements are accessed.
  static Tensor view(Ref<Storage> storage, std::size_t offset_bytes, const Shape& shape,
                     DType dtype);

  bool defined() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  std::int64_t dim(int axis) const { return shape_.at(axis); }
  std::int64_t numel() const { return numel_; }
  DType dtype() const { return dtype_; }
  Device device() const;
  std::int64_t size_bytes() const { return numel_ * static_cast<std::int64_t>(size_of(dtype_)); }

  // Returns a pointer to the first element. T must be the element type. The pointer of a const
  // Tensor is mutable too, because a Tensor is a handle.
  template <class T>
  T* data() const {
    CONVSCOPE_CHECK(dtype_of<T> == dtype_, "tensor", "expected elements of type ",
                    name_of(dtype_of<T>), ", got ", name_of(dtype_), " ", shape_);
    return static_cast<T*>(raw_data());
  }
  void* raw_data() const;

  // Returns a view with another shape. One size may be -1: it is computed from the others.
  Tensor reshape(std::initializer_list<std::int64_t> sizes) const;
  Tensor reshape(const Shape& shape) const;
  // Returns rows [begin, begin + count) of the leading dimension. The result shares the elements.
  Tensor slice_rows(std::int64_t begin, std::int64_t count) const;

  Tensor clone() const;                      // a deep copy, same device
  Tensor to(Device device) const;            // itself when it is already on `device`
  Tensor to(DType dtype) const;              // a copy on the same device; *this if dtype is equal
  void copy_from(const Tensor& from) const;  // same shape and dtype, any devices
  void zero() const;
  void fill(double value) const;

  double item() const;                       // value of a one-element tensor, any dtype
  double at(std::int64_t flat_index) const;  // one element as double; for tests, not loops
  std::string str() const;                   // "f32[2,3] cpu"

  // Returns true when both handles share one block of memory.
  bool shares_memory_with(const Tensor& other) const { return storage_ == other.storage_; }

 private:
  Ref<Storage> storage_;
  std::int64_t offset_bytes_ = 0;
  std::int64_t numel_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
};

struct NamedTensor {
  std::string name;  // "bn1.running_mean"
  Tensor tensor;
};

}  // namespace convscope
