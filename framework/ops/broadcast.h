// SPDX-License-Identifier: Apache-2.0
// broadcast.h: iterates over an output shape row by row, with the offsets of two operands that are
// broadcast along some axes. Adjacent axes with the same broadcasting are merged, so equal shapes
// are one long row, and a bias needs few rows.
#pragma once

#include <cstdint>

#include "framework/shape.h"

namespace convscope {

struct BroadcastWalk {
  int rank = 0;
  std::int64_t size[Shape::kMaxRank] = {};
  std::int64_t stride_a[Shape::kMaxRank] = {};  // 0 where a is repeated
  std::int64_t stride_b[Shape::kMaxRank] = {};

  BroadcastWalk(const Shape& a, const Shape& b, const Shape& y) {
    for (int axis = 0; axis < y.rank(); ++axis) {
      if (y[axis] == 1) continue;
      push(y[axis], stride_of(a, axis - (y.rank() - a.rank())),
           stride_of(b, axis - (y.rank() - b.rank())));
    }
    if (rank == 0) push(1, 0, 0);
  }

  std::int64_t row_length() const { return size[rank - 1]; }

  // Cuts elements [begin, end) of y into ranges that end at row ends, and calls body(offset_a,
  // offset_b, offset_y, length) for each range.
  template <class Body>
  void run(std::int64_t begin, std::int64_t end, Body&& body) const {
    const int inner = rank - 1;
    std::int64_t index[Shape::kMaxRank] = {};
    std::int64_t rest = begin;
    std::int64_t a = 0;
    std::int64_t b = 0;
    for (int axis = inner; axis >= 0; --axis) {
      index[axis] = rest % size[axis];
      rest /= size[axis];
      if (axis != inner) {
        a += index[axis] * stride_a[axis];
        b += index[axis] * stride_b[axis];
      }
    }
    std::int64_t column = index[inner];
    while (begin < end) {
      const std::int64_t left = size[inner] - column;
      const std::int64_t length = left < end - begin ? left : end - begin;
      body(a + column * stride_a[inner], b + column * stride_b[inner], begin, length);
      begin += length;
      column = 0;
      for (int axis = inner - 1; axis >= 0; --axis) {  // next row
        a += stride_a[axis];
        b += stride_b[axis];
        if (++index[axis] < size[axis]) break;
        a -= index[axis] * stride_a[axis];
        b -= index[axis] * stride_b[axis];
        index[axis] = 0;
      }
    }
  }

 private:
  static std::int64_t stride_of(const Shape& shape, int axis) {
    return axis < 0 || shape[axis] == 1 ? 0 : shape.stride(axis);
  }
  void push(std::int64_t n, std::int64_t a, std::int64_t b) {
    if (rank > 0 && stride_a[rank - 1] == a * n && stride_b[rank - 1] == b * n) {
      size[rank - 1] *= n;
      stride_a[rank - 1] = a;
      stride_b[rank - 1] = b;
      return;
    }
    size[rank] = n;
    stride_a[rank] = a;
    stride_b[rank] = b;
    ++rank;
  }
};

}  // namespace convscope
