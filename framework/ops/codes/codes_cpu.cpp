// SPDX-License-Identifier: Apache-2.0
// codes_cpu.cpp: arrays of codes: what threads share out.
#include "framework/ops/codes/codes.h"
#include "framework/parallel.h"

namespace convscope {

constinit IsaTable<CodeKernels> code_kernels;

void max_pool_codes(const CodesPool& pool) {
  const CodeKernels kernels = code_kernels.get();
  parallel_for(pool.planes * pool.p, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      kernels.pool_row(pool, at / pool.p, at % pool.p);
    }
  });
}

}  // namespace convscope
