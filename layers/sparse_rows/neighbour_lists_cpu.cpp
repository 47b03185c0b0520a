// SPDX-License-Identifier: Apache-2.0
// neighbour_lists_cpu.cpp: the maximum and the mean of lists of rows, one row of the result after
// the other. Inner loops run along the channels.
#include <vector>

#include "framework/parallel.h"
#include "layers/sparse_rows/neighbour_lists.h"

namespace convscope {
namespace {

using Index = std::int64_t;
constexpr Index kRows = 64;  // that one thread writes at a time

template <class Body>
void with_type(const Tensor& x, const Body& body) {
  if (x.dtype() == DType::f64) return body(double{});
  body(float{});
}

// Calls body(row, first and end of its list) for each list.
template <class Body>
void for_lists(const NeighbourLists& lists, Index channels, const Body& body) {
  const auto* const begin = lists.begin.data<std::int32_t>();
  const auto* const at = lists.at.data<std::int32_t>();
  const ShortLoops here(2.0 * static_cast<double>((lists.at.dim(0) + lists.count()) * channels));
  // If there are few long lists (of samples), each gets a thread.
  const Index rows = lists.count() < 256 ? 1 : kRows;
  parallel_for(lists.count(), rows, [&](Index from, Index end) {
    for (Index row = from; row < end; ++row) body(row, at + begin[row], at + begin[row + 1]);
  });
}

void max_cpu(const Tensor& x, const NeighbourLists& by_output, const Tensor& y, const Tensor& arg) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    const Index channels = x.dim(1);
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    auto* const taken = arg.data<std::int32_t>();
    for_lists(by_output, channels, [=](Index row, const std::int32_t* it, const std::int32_t* end) {
      T* const best = to + row * channels;
      std::int32_t* const argmax = taken + row * channels;
      const std::int32_t first = it == end ? -1 : *it;
      for (Index c = 0; c < channels; ++c) {
        best[c] = first < 0 ? T{} : from[first * channels + c];
        argmax[c] = first;
      }
      for (; it != end; ++it) {
        const T* const v = from + *it * channels;
        for (Index c = 0; c < channels; ++c) {
          const bool larger = v[c] > best[c] || (v[c] != v[c] && best[c] == best[c]);
          best[c] = larger ? v[c] : best[c];
          argmax[c] = larger ? *it : argmax[c];
        }
      }
    });
  });
}

void mean_cpu(const Tensor& x, const NeighbourLists& by_output, const Tensor& y) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    const Index channels = x.dim(1);
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    for_lists(by_output, channels, [=](Index row, const std::int32_t* it, const std::int32_t* end) {
      std::vector<double> sum(static_cast<std::size_t>(channels), 0.0);
      const double share = it == end ? 0.0 : 1.0 / static_cast<double>(end - it);
      for (; it != end; ++it) {
        const T* const v = from + *it * channels;
        for (Index c = 0; c < channels; ++c) {
          sum[static_cast<std::size_t>(c)] += static_cast<double>(v[c]);
        }
      }
      for (Index c = 0; c < channels; ++c) {
        to[row * channels + c] = static_cast<T>(sum[static_cast<std::size_t>(c)] * share);
      }
    });
  });
}

// dx[row, c] = sum over the lists that hold the row of part(list, c), in double.
template <class T, class Part>
void gather(const NeighbourLists& by_input, const Tensor& dx, const Part& part) {
  const Index channels = dx.dim(1);
  T* const to = dx.data<T>();
  for_lists(by_input, channels, [=](Index row, const std::int32_t* it, const std::int32_t* end) {
    std::vector<double> sum(static_cast<std::size_t>(channels), 0.0);
    for (; it != end; ++it) {
      for (Index c = 0; c < channels; ++c) {
        sum[static_cast<std::size_t>(c)] += part(row, *it, c);
      }
    }
    for (Index c = 0; c < channels; ++c) {
      to[row * channels + c] = static_cast<T>(sum[static_cast<std::size_t>(c)]);
    }
  });
}

void max_gradient_cpu(const Tensor& dy, const NeighbourLists& by_input, const Tensor& arg,
                      const Tensor& dx) {
  with_type(dy, [&](auto zero) {
    using T = decltype(zero);
    const Index channels = dy.dim(1);
    const T* const from = dy.data<T>();
    const auto* const taken = arg.data<std::int32_t>();
    gather<T>(by_input, dx, [=](Index row, Index list, Index c) {
      const Index i = list * channels + c;
      return taken[i] == row ? static_cast<double>(from[i]) : 0.0;
    });
  });
}

void mean_gradient_cpu(const Tensor& dy, const PoolLists& lists, const Tensor& dx) {
  with_type(dy, [&](auto zero) {
    using T = decltype(zero);
    const Index channels = dy.dim(1);
    const T* const from = dy.data<T>();
    const auto* const begin = lists.by_output.begin.data<std::int32_t>();
    gather<T>(lists.by_input, dx, [=](Index, Index list, Index c) {
      return static_cast<double>(from[list * channels + c]) /
             static_cast<double>(begin[list + 1] - begin[list]);
    });
  });
}

}  // namespace

CONVSCOPE_KERNEL(list_max_kernel, cpu, max_cpu)
CONVSCOPE_KERNEL(list_mean_kernel, cpu, mean_cpu)
CONVSCOPE_KERNEL(list_max_gradient_kernel, cpu, max_gradient_cpu)
CONVSCOPE_KERNEL(list_mean_gradient_kernel, cpu, mean_gradient_cpu)

}  // namespace convscope
