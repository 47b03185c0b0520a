// SPDX-License-Identifier: Apache-2.0
// tensor.h: a typed, shaped, contiguous (row-major) block of memory on a device.
//
// A Tensor is a handle: copying it shares the elements. Views exist only where the result stays
// contiguous: reshape, and slices along the leading dimension. There is no arithmetic here; that is
// framework/ops.
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
  Storage(Device device, std::size_t bytes, void* block);  // takes over an allocated block
  ~Storage() override;
  const Device device;
  const std::size_t bytes;
  void* const data;

 private:
  friend class Tensor;
  bool is_borrowed_ = false;  // the block is somebody else's, who frees it
};

class CONVSCOPE_API Tensor {
 public:
  Tensor() = default;  // undefined: no shape, no elements; defined() is false

  // Elements are not initialised.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32,
                     Device device = {});
  // Copies of host values, on the CPU.
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

  // Elements of somebody else, row-major, who keeps them while this tensor or a view of it lives:
  // nothing is copied, counted or freed. Aligned as their type asks for.
  static Tensor borrow(void* elements, const Shape& shape, DType dtype = DType::f32,
                       Device device = {});

  // A part of `storage`, from a byte on that suits the type; the caller sees to it that the part
  // lies inside whenever elements are touched.
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

  // First element. T must be the element type. A const Tensor still gives a mutable pointer, since
  // a Tensor is a handle.
  template <class T>
  T* data() const {
    CONVSCOPE_CHECK(dtype_of<T> == dtype_, "tensor", "expected elements of type ",
                    name_of(dtype_of<T>), ", got ", name_of(dtype_), " ", shape_);
    return static_cast<T*>(raw_data());
  }
  void* raw_data() const;

  // Same elements, other shape; one size may be -1 ("what is left").
  Tensor reshape(std::initializer_list<std::int64_t> sizes) const;
  Tensor reshape(const Shape& shape) const;
  // Rows [begin, begin + count) of the leading dimension; shares the elements.
  Tensor slice_rows(std::int64_t begin, std::int64_t count) const;

  Tensor clone() const;            // own copy, same device
  Tensor to(Device device) const;  // itself when it already lives there
  Tensor to(DType dtype) const;    // converted copy, same device; itself when nothing changes
  void copy_from(const Tensor& from) const;  // same shape and dtype, any devices
  void zero() const;
  void fill(double value) const;

  double item() const;                       // the value of a one-element tensor, any dtype
  double at(std::int64_t flat_index) const;  // one element as double; for tests, not loops
  std::string str() const;                   // "f32[2,3] cpu"

  // True when both handles share the same block of memory.
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
