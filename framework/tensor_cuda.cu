// SPDX-License-Identifier: Apache-2.0
// tensor_cuda.cu: fills tensors and converts element types. A kernel reads its source type as
// double, which represents every element type exactly, and selects the destination type at run
// time. So there is one kernel per source type.
#include <type_traits>

#include "framework/cuda/launch.cuh"
#include "framework/tensor_kernels.h"

namespace convscope {
namespace {

template <class T>
__device__ double widened(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <class T>
__device__ T saturated(double value, double low, double high) {
  if (!(value == value)) return T{0};
  return static_cast<T>(value < low ? low : value > high ? high : value);
}

__device__ void put(void* to, DType dtype, std::int64_t i, double value) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(to)[i] = static_cast<float>(value);
      return;
    case DType::f64:
      static_cast<double*>(to)[i] = value;
      return;
    case DType::f16:
      static_cast<Float16*>(to)[i] = Float16(static_cast<float>(value));
      return;
    case DType::bf16:
      static_cast<BFloat16*>(to)[i] = BFloat16(static_cast<float>(value));
      return;
    case DType::i32:
      static_cast<std::int32_t*>(to)[i] =
          saturated<std::int32_t>(value, -2147483648.0, 2147483647.0);
      return;
    case DType::i8:
      static_cast<std::int8_t*>(to)[i] = saturated<std::int8_t>(value, -128.0, 127.0);
      return;
    case DType::u8:
      static_cast<std::uint8_t*>(to)[i] = saturated<std::uint8_t>(value, 0.0, 255.0);
      return;
  }
}

__global__ void fill_elements(void* to, DType dtype, std::int64_t count, double value) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) put(to, dtype, i, value);
}

void fill_cuda(const Tensor& to, double value) {
  launch(fill_elements, grid_for(to.numel()), to.raw_data(), to.dtype(), to.numel(), value);
}

template <class From>
__global__ void convert_elements(const From* from, void* to, DType dtype, std::int64_t count) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    put(to, dtype, i, widened(from[i]));
  }
}

template <class From>
void convert_from(const Tensor& from, const Tensor& to) {
  launch(convert_elements<From>, grid_for(from.numel()), from.data<From>(), to.raw_data(),
         to.dtype(), from.numel());
}

void convert_cuda(const Tensor& from, const Tensor& to) {
  switch (from.dtype()) {
    case DType::f32:
      return convert_from<float>(from, to);
    case DType::f64:
      return convert_from<double>(from, to);
    case DType::f16:
      return convert_from<Float16>(from, to);
    case DType::bf16:
      return convert_from<BFloat16>(from, to);
    case DType::i32:
      return convert_from<std::int32_t>(from, to);
    case DType::i8:
      return convert_from<std::int8_t>(from, to);
    case DType::u8:
      return convert_from<std::uint8_t>(from, to);
  }
}

}  // namespace
CONVSCOPE_KERNEL(fill_kernel, cuda, fill_cuda)
CONVSCOPE_KERNEL(convert_kernel, cuda, convert_cuda)
}  // namespace convscope
