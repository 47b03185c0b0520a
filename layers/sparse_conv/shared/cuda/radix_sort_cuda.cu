// SPDX-License-Identifier: Apache-2.0
// radix_sort_cuda.cu: sorts with CUB, a library of the CUDA Toolkit. The CPU emulation sorts with
// the C++ standard library.
#include "layers/sparse_conv/shared/cuda/radix_sort.cuh"
#include "layers/sparse_conv/shared/cuda/tile_table.cuh"

#if defined(CONVSCOPE_CUDA_EMULATED)
#include <algorithm>
#include <numeric>
#include <vector>
#else
#include <cub/device/device_radix_sort.cuh>
#endif

namespace convscope::sparse_cuda {

void sort_by_key(const std::uint32_t* keys, std::uint32_t* sorted_keys, const std::int32_t* values,
                 std::int32_t* sorted_values, std::int64_t n, int bits) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const std::uint32_t mask = bits >= 32 ? ~0u : (1u << bits) - 1;
  std::ranges::stable_sort(order, {}, [&](std::int64_t i) { return keys[i] & mask; });
  for (std::int64_t i = 0; i < n; ++i) {
    sorted_keys[i] = keys[order[static_cast<std::size_t>(i)]];
    sorted_values[i] = values[order[static_cast<std::size_t>(i)]];
  }
#else
  const auto count = static_cast<int>(n);
  std::size_t bytes = 0;
  CONVSCOPE_CUDA(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted_keys, values,
                                                 sorted_values, count, 0, bits, cuda_stream()));
  const Tensor scratch =
      Tensor::empty({static_cast<std::int64_t>(bytes) + 1}, DType::u8, current_device());
  CONVSCOPE_CUDA(cub::DeviceRadixSort::SortPairs(scratch.raw_data(), bytes, keys, sorted_keys,
                                                 values, sorted_values, count, 0, bits,
                                                 cuda_stream()));
#endif
}

}  // namespace convscope::sparse_cuda
