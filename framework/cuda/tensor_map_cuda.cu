// SPDX-License-Identifier: Apache-2.0
// tensor_map_cuda.cu: makes TMA descriptions of tensors with a function of the driver. The function
// is looked up by name, so that nothing links against the driver.
#include <cstring>

#include "framework/check.h"
#include "framework/cuda/launch.cuh"
#include "framework/cuda/tensor_map.h"

#if !defined(CONVSCOPE_CUDA_EMULATED)
#include <cudaTypedefs.h>
#endif

namespace convscope {
namespace {

int element_bytes(const TensorMapShape& shape) { return shape.f32 ? 4 : 2; }
int row_bytes(const TensorMapShape& shape) { return shape.box[0] * element_bytes(shape); }

}  // namespace

#if defined(CONVSCOPE_CUDA_EMULATED)

TensorMap encode_tensor_map(const void* tensor, const TensorMapShape& shape) {
  CONVSCOPE_CHECK(
      reinterpret_cast<std::uintptr_t>(tensor) % 16 == 0 &&
          (row_bytes(shape) == 128 || row_bytes(shape) == 64 || row_bytes(shape) == 32) &&
          shape.steps[0] == 1,
      "tensor map", "expected an address that is a multiple of 16 and rows of 128, 64 or 32 ",
      "bytes, got rows of ", row_bytes(shape));
  EmulatedTensorMap map{};
  map.tensor = tensor;
  map.element_bytes = element_bytes(shape);
  for (int i = 0; i < kTensorMapRank; ++i) {
    CONVSCOPE_CHECK(shape.box[i] >= 1 && shape.steps[i] >= 1 && shape.steps[i] <= 8 &&
                        (shape.box[i] - 1) * shape.steps[i] < 256 &&
                        (i == 0 || shape.strides[i] % 8 == 0),
                    "tensor map", "expected a box of at most 256 elements, steps of 1 to 8 and ",
                    "strides of whole 16 bytes, got a box of ", shape.box[i], ", steps of ",
                    shape.steps[i], " and a stride of ", shape.strides[i], " in dimension ", i);
    map.sizes[i] = static_cast<int>(shape.sizes[i]);
    map.box[i] = shape.box[i];
    map.steps[i] = shape.steps[i];
    map.strides[i] = i == 0 ? 1 : shape.strides[i];
  }
  TensorMap out{};
  std::memcpy(out.bytes, &map, sizeof(map));
  return out;
}

#else

namespace {

PFN_cuTensorMapEncodeTiled_v12000 find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  CONVSCOPE_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                  cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    fail(ErrorKind::kUnavailable, "cuda",
         "expected a driver that knows tensor maps (cuTensorMapEncodeTiled), got an older one");
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

}  // namespace

TensorMap encode_tensor_map(const void* tensor, const TensorMapShape& shape) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encode();
  cuuint64_t sizes[kTensorMapRank];
  cuuint64_t strides[kTensorMapRank - 1];  // in bytes
  cuuint32_t box[kTensorMapRank];
  cuuint32_t steps[kTensorMapRank];
  for (int i = 0; i < kTensorMapRank; ++i) {
    sizes[i] = static_cast<cuuint64_t>(shape.sizes[i]);
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(shape.strides[i] * element_bytes(shape));
    // CUDA expects the number of elements from the first to the last of the box, including the
    // elements that the steps skip.
    box[i] = static_cast<cuuint32_t>((shape.box[i] - 1) * shape.steps[i] + 1);
    steps[i] = static_cast<cuuint32_t>(shape.steps[i]);
  }
  const CUtensorMapSwizzle swizzle = row_bytes(shape) == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : row_bytes(shape) == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                              : CU_TENSOR_MAP_SWIZZLE_32B;
  CUtensorMap map;
  const CUresult result =
      encode(&map, shape.f32 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16,
             kTensorMapRank, const_cast<void*>(tensor), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    fail(ErrorKind::kRun, "cuda",
         cat("expected a tensor that TMA can read, got sizes ", sizes[0], ",", sizes[1],
             ",", sizes[2], ",", sizes[3], ",", sizes[4], " with a box of ", box[0], ",", box[1],
             ",", box[2], ",", box[3], ",", box[4], " (error ", static_cast<int>(result), ")"));
  }
  TensorMap out;
  static_assert(sizeof(map) == sizeof(out));
  std::memcpy(out.bytes, &map, sizeof(out));
  return out;
}

#endif

}  // namespace convscope
