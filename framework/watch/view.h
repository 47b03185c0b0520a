// SPDX-License-Identifier: Apache-2.0
// view.h: how a lesson reaches its arrays: x(n, c, h, w), as on a blackboard, and no offsets.
//
//   const View<const float*> x(data, 2, 3, 8, 8);  // [N,C,H,W]
//   sum += x.or_zero(n, c, h, w) * k(c, r, s)      // 0 in the padding; an element
//
// Behind a view stands a pointer. A plain one makes plain loops: the compiler sees offsets only. A
// Watched<T> (recorder.h) notes every read and write, for somebody who wants to watch.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace convscope {

template <class Pointer>
struct PointerTo;  // Value: what is read through the pointer, without const
template <class T>
struct PointerTo<T*> {
  using Value = std::remove_const_t<T>;
};

// Up to four axes, row-major, all in one piece.
template <class Pointer>
class View {
 public:
  using Index = std::int64_t;
  using Value = typename PointerTo<Pointer>::Value;

  constexpr View(Pointer data, Index a, Index b = 1, Index c = 1, Index d = 1)
      : data_(data), sizes_{a, b, c, d} {}

  // The element at one index for each axis; axes of size 1 at the end are left out.
  template <class... Indices>
  constexpr decltype(auto) operator()(Indices... indices) const {
    return data_[offset(indices...)];
  }

  // Is there such an element? A convolution asks this at the border of the image.
  template <class... Indices>
  constexpr bool has(Indices... indices) const {
    int axis = 0;
    bool inside = true;
    ((inside = inside && indices >= 0 && indices < sizes_[axis++]), ...);
    return inside;
  }

  // The element, or 0 where there is none: x with its padding.
  template <class... Indices>
  constexpr Value or_zero(Indices... indices) const {
    return has(indices...) ? Value((*this)(indices...)) : Value(0);
  }

  // The part at one index of the first axis: x[n] of x[N,C,H,W] is a view [C,H,W].
  constexpr View operator[](Index i) const {
    return View(data_ + i * sizes_[1] * sizes_[2] * sizes_[3], sizes_[1], sizes_[2], sizes_[3]);
  }

  // The same elements with other sizes: w[K,C,R,S] is a matrix [K, C R S] without moving a number.
  constexpr View as(Index a, Index b = 1, Index c = 1, Index d = 1) const {
    return View(data_, a, b, c, d);
  }

  constexpr void fill(Value value) const {
    for (Index i = 0; i < sizes_[0] * sizes_[1] * sizes_[2] * sizes_[3]; ++i) data_[i] = value;
  }

  // Where a sum of the view's type begins.
  static constexpr Value zero() { return Value(0); }
  constexpr Index size(int axis) const { return sizes_[axis]; }

 private:
  // ((i * size of axis 1 + j) * size of axis 2 + k) * ...
  template <class... Indices>
  constexpr Index offset(Indices... indices) const {
    int axis = 0;
    Index at = 0;
    ((at = at * sizes_[axis++] + static_cast<Index>(indices)), ...);
    return at;
  }

  Pointer data_;
  Index sizes_[4];
};

}  // namespace convscope
