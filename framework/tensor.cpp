// SPDX-License-Identifier: Apache-2.0
// tensor.cpp: a typed, shaped, contiguous (row-major) block of memory on a device.
#include "framework/tensor.h"

#include <limits>

#include "framework/memory/unbacked.h"
#include "framework/tensor_kernels.h"

namespace convscope {

Storage::Storage(Device device_in, std::size_t bytes_in)
    : device(device_in), bytes(bytes_in), data(allocate(device_in, bytes_in)) {}

Storage::Storage(Device device_in, std::size_t bytes_in, void* block)
    : device(device_in), bytes(bytes_in), data(block) {}

Storage::~Storage() {
  if (!is_borrowed_) deallocate(device, data, bytes);
}

namespace {

// Calls f with a pointer to the tensor's elements, of their C++ type. CPU only.
template <class F>
void visit_elements(const Tensor& tensor, F&& f) {
  CONVSCOPE_CHECK(tensor.device().type == DeviceType::cpu, "tensor",
                  "expected a tensor on the cpu, got ", tensor.str());
  switch (tensor.dtype()) {
    case DType::f32:
      return f(tensor.data<float>());
    case DType::f64:
      return f(tensor.data<double>());
    case DType::f16:
      return f(tensor.data<Float16>());
    case DType::bf16:
      return f(tensor.data<BFloat16>());
    case DType::i32:
      return f(tensor.data<std::int32_t>());
    case DType::i8:
      return f(tensor.data<std::int8_t>());
    case DType::u8:
      return f(tensor.data<std::uint8_t>());
  }
}

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <class To, class From>
To convert(From value) {
  if constexpr (kIsHalf<From>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (kIsHalf<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<To>) {
    // In C++, converting NaN, or a number outside of the range of the integer type, is undefined.
    // So saturate, and map NaN to 0.
    if (!(value == value)) return To{0};
    constexpr auto kLow = static_cast<double>(std::numeric_limits<To>::min());
    constexpr auto kHigh = static_cast<double>(std::numeric_limits<To>::max());
    const double wide = static_cast<double>(value);
    return static_cast<To>(wide < kLow ? kLow : wide > kHigh ? kHigh : wide);
  } else {
    return static_cast<To>(value);
  }
}

void fill_cpu(const Tensor& tensor, double value) {
  visit_elements(tensor, [&](auto* to) {
    using To = std::remove_pointer_t<decltype(to)>;
    const To element = convert<To>(value);
    for (std::int64_t i = 0; i < tensor.numel(); ++i) to[i] = element;
  });
}

void convert_cpu(const Tensor& from, const Tensor& into) {
  visit_elements(from, [&](const auto* source) {
    visit_elements(into, [&](auto* to) {
      using To = std::remove_pointer_t<decltype(to)>;
      for (std::int64_t i = 0; i < from.numel(); ++i) to[i] = convert<To>(source[i]);
    });
  });
}

}  // namespace

constinit KernelSlot<void(const Tensor&, double)> fill_kernel{"fill"};
constinit KernelSlot<void(const Tensor&, const Tensor&)> convert_kernel{"convert"};
CONVSCOPE_KERNEL(fill_kernel, cpu, fill_cpu)
CONVSCOPE_KERNEL(convert_kernel, cpu, convert_cpu)

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor out;
  out.shape_ = shape;
  out.numel_ = shape.numel();
  out.dtype_ = dtype;
  CONVSCOPE_CHECK(out.numel_ <= std::numeric_limits<std::int64_t>::max() / 16, "tensor",
                  "expected fewer than 2^59 elements, got ", shape);
  const auto bytes = static_cast<std::size_t>(out.size_bytes());
  void* const block = try_allocate(device, bytes);
  if (block == nullptr && bytes > 0) {
    fail_out_of_memory(device, bytes, cat("a tensor ", name_of(dtype), shape));
  }
  out.storage_ = make_ref<Storage>(device, bytes, block);
  return out;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor out = empty(shape, dtype, device);
  out.zero();
  return out;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor out = empty(shape, dtype, device);
  out.fill(value);
  return out;
}

Tensor Tensor::borrow(void* elements, const Shape& shape, DType dtype, Device device) {
  const auto bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  CONVSCOPE_CHECK(elements != nullptr || bytes == 0, "tensor", "expected elements of ", shape,
                  " to borrow, got a null pointer");
  const Ref<Storage> storage = make_ref<Storage>(device, bytes, elements);
  storage->is_borrowed_ = true;
  return view(storage, 0, shape, dtype);
}

Tensor Tensor::view(Ref<Storage> storage, std::size_t offset_bytes, const Shape& shape,
                    DType dtype) {
  Tensor out;
  out.storage_ = std::move(storage);
  out.offset_bytes_ = static_cast<std::int64_t>(offset_bytes);
  out.numel_ = shape.numel();
  out.shape_ = shape;
  out.dtype_ = dtype;
  return out;
}

Device Tensor::device() const {
  CONVSCOPE_CHECK(defined(), "tensor", "expected a defined tensor, got an empty handle");
  return storage_->device;
}

void* Tensor::raw_data() const {
  CONVSCOPE_CHECK(defined(), "tensor", "expected a defined tensor, got an empty handle");
  return static_cast<std::byte*>(storage_->data) + offset_bytes_;
}

Tensor Tensor::reshape(std::initializer_list<std::int64_t> sizes) const {
  Shape shape;
  int open_axis = -1;
  std::int64_t known = 1;
  for (std::int64_t size : sizes) {
    if (size == -1) {
      CONVSCOPE_CHECK(open_axis < 0, "reshape", "expected at most one size of -1");
      open_axis = shape.rank();
      shape.push_back(1);
    } else {
      shape.push_back(size);
      known *= size;
    }
  }
  if (open_axis >= 0) {
    CONVSCOPE_CHECK(known > 0 && numel_ % known == 0, "reshape",
                    "expected the given sizes to divide the ", numel_, " elements of ", shape_,
                    ", got ", known);
    shape.set(open_axis, numel_ / known);
  }
  return reshape(shape);
}

Tensor Tensor::reshape(const Shape& shape) const {
  CONVSCOPE_CHECK(shape.numel() == numel_, "reshape", "expected a shape of ", numel_,
                  " elements because x is ", shape_, ", got ", shape);
  Tensor out = *this;
  out.shape_ = shape;
  return out;
}

Tensor Tensor::slice_rows(std::int64_t begin, std::int64_t count) const {
  CONVSCOPE_CHECK(rank() >= 1, "slice_rows", "expected a tensor with a leading dimension, got ",
                  shape_);
  CONVSCOPE_CHECK(begin >= 0 && count >= 0 && begin <= shape_[0] && count <= shape_[0] - begin,
                  "slice_rows", "expected rows within [0,", shape_[0], "), got [", begin, ",",
                  begin, "+", count, ")");
  Tensor out = *this;
  const std::int64_t row = shape_.stride(0);
  out.shape_.set(0, count);
  out.numel_ = count * row;
  out.offset_bytes_ += begin * row * static_cast<std::int64_t>(size_of(dtype_));
  return out;
}

Tensor Tensor::clone() const {
  Tensor out = empty(shape_, dtype_, device());
  out.copy_from(*this);
  return out;
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  Tensor out = empty(shape_, dtype_, device);
  out.copy_from(*this);
  return out;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor out = empty(shape_, dtype, device());
  convert_kernel.get(device())(*this, out);
  return out;
}

void Tensor::copy_from(const Tensor& from) const {
  CONVSCOPE_CHECK(from.shape_ == shape_ && from.dtype_ == dtype_, "copy", "expected ", str(),
                  ", got ", from.str());
  if (numel_ == 0) return;
  const auto bytes = static_cast<std::size_t>(size_bytes());
  const Device here = device();
  const Device there = from.device();
  if (!is_filled(here, bytes) || !is_filled(there, bytes)) return;
  if (here == there) {
    backend_of(here).copy_within(here.index, raw_data(), from.raw_data(), bytes);
  } else if (here.type == DeviceType::cpu) {
    backend_of(there).copy_to_host(there.index, raw_data(), from.raw_data(), bytes);
  } else if (there.type == DeviceType::cpu) {
    backend_of(here).copy_from_host(here.index, raw_data(), from.raw_data(), bytes);
  } else {
    copy_from(from.to(Device{}));
  }
}

void Tensor::zero() const {
  if (numel_ == 0 || !is_filled(device(), static_cast<std::size_t>(size_bytes()))) return;
  backend_of(device()).fill_bytes(device().index, raw_data(), 0,
                                  static_cast<std::size_t>(size_bytes()));
}

void Tensor::fill(double value) const {
  if (numel_ == 0 || !is_filled(device(), static_cast<std::size_t>(size_bytes()))) return;
  fill_kernel.get(device())(*this, value);
}

double Tensor::item() const {
  CONVSCOPE_CHECK(numel_ == 1, "item", "expected a tensor of one element, got ", str());
  return at(0);
}

double Tensor::at(std::int64_t flat_index) const {
  CONVSCOPE_CHECK(flat_index >= 0 && flat_index < numel_, "at", "expected an index below ", numel_,
                  ", got ", flat_index);
  if (device().type != DeviceType::cpu) {
    return reshape({numel_}).slice_rows(flat_index, 1).to(Device{}).at(0);
  }
  double value = 0;
  visit_elements(*this, [&](const auto* from) { value = convert<double>(from[flat_index]); });
  return value;
}

std::string Tensor::str() const {
  if (!defined()) return "undefined tensor";
  return cat(name_of(dtype_), shape_, " ", device().str());
}

}  // namespace convscope
