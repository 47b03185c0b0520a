// SPDX-License-Identifier: Apache-2.0
// tensor_map.h: the description of a tensor for TMA (sm_90): sizes and strides of an fp16/bf16 or
// f32 tensor, and the box that one instruction moves.
//
//   TensorMapShape shape{.sizes = {channels, w, 1, h, n}, .strides = {0, ...}, .box = {64, ...}};
//   const TensorMap map = encode_tensor_map(x, shape);   // then a __grid_constant__ parameter
//
// A tensor has five dimensions, innermost first; unused dimensions have size 1. In shared memory, a
// row of a box has 64, 32 or 16 fp16/bf16 elements, or 32, 16 or 8 f32 elements, which arrive
// rounded to tf32. A piece is 16 adjacent bytes of a row; the pieces of a row are swizzled
// (swizzled_place). Elements outside of the tensor arrive as zeros.
// Read next  tma.cuh: moves the boxes
#pragma once

#include <cstdint>

namespace convscope {

inline constexpr int kTensorMapRank = 5;
inline constexpr int kTensorMapRow = 64;  // elements at most

struct TensorMapShape {
  std::int64_t sizes[kTensorMapRank] = {1, 1, 1, 1, 1};
  // Strides in elements, each a multiple of 8. The stride of dimension 0 is 1 and is ignored.
  std::int64_t strides[kTensorMapRank] = {1, 8, 8, 8, 8};
  // Number of elements of the box per dimension. With the skipped elements between them (steps),
  // the box covers at most 256 elements of the tensor. A row has 128, 64 or 32 bytes.
  int box[kTensorMapRank] = {kTensorMapRow, 1, 1, 1, 1};
  int steps[kTensorMapRank] = {1, 1, 1, 1, 1};  // distance between elements of the box, 1..8
  bool f32 = false;                             // elements are f32 instead of fp16/bf16
};

// A tensor map in the format that the hardware reads. In the emulation, it contains a
// TensorMapShape and a pointer.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};
// Makes the map of a tensor. With a null tensor, kernels must not read the map.
TensorMap encode_tensor_map(const void* tensor, const TensorMapShape& shape);

// Returns the address at which the byte with the unswizzled address `address` is stored, for rows
// of 128, 64 or 32 bytes. The order of the 16-byte pieces changes every 128 bytes. So, when eight
// rows are read, their pieces of the same index are in different banks.
constexpr std::uint64_t swizzled_place(std::uint64_t address, int row_bytes) {
  const std::uint64_t pieces = static_cast<std::uint64_t>(row_bytes) / 16 - 1;  // 7, 3 or 1
  return address ^ (address >> 7 & pieces) << 4;
}

struct EmulatedTensorMap {
  const void* tensor;
  int sizes[kTensorMapRank];
  int box[kTensorMapRank];
  int steps[kTensorMapRank];
  int element_bytes;
  std::int64_t strides[kTensorMapRank];
};
static_assert(sizeof(EmulatedTensorMap) <= sizeof(TensorMap));

}  // namespace convscope
