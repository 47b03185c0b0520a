// SPDX-License-Identifier: Apache-2.0
// radix_sort.cuh: sorts 32-bit keys with their values in GPU memory. The sort is stable, so the
// result is the same on each run.
#pragma once

#include <cstdint>

namespace convscope::sparse_cuda {

// Sorts by key. All keys must be below 2^bits, and n below 2^31. Does not wait for the GPU.
void sort_by_key(const std::uint32_t* keys, std::uint32_t* sorted_keys, const std::int32_t* values,
                 std::int32_t* sorted_values, std::int64_t n, int bits);

}  // namespace convscope::sparse_cuda
