// SPDX-License-Identifier: Apache-2.0
// radix_sort.cuh: sorts numbers of 32 bits, and what belongs to each, in the memory of the GPU. Two
// that are equal keep their order, so the result is the same on each run.
#pragma once

#include <cstdint>

namespace convscope::sparse_cuda {

// `bits`: how many of the lowest bits a key has. Does not wait; n below 2^31.
void sort_by_key(const std::uint32_t* keys, std::uint32_t* sorted_keys, const std::int32_t* values,
                 std::int32_t* sorted_values, std::int64_t n, int bits);

}  // namespace convscope::sparse_cuda
