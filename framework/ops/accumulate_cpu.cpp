// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/accumulate.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

template <class T>
void add_into(const Tensor& to, const Tensor& from) {
  T* const a = to.data<T>();
  const T* const b = from.data<T>();
  parallel_for(to.numel(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) a[i] += b[i];
  });
}

void accumulate_cpu(const Tensor& to, const Tensor& from) {
  switch (to.dtype()) {
    case DType::f32:
      return add_into<float>(to, from);
    case DType::f64:
      return add_into<double>(to, from);
    default:
      fail("accumulate", cat("expected f32 or f64, got ", to.str()));
  }
}

}  // namespace
CONVSCOPE_KERNEL(accumulate_kernel, cpu, accumulate_cpu)
}  // namespace convscope
