// SPDX-License-Identifier: Apache-2.0
// view.h: how a lesson reaches its arrays: x(n, c, h, w), as on a blackboard, and no offsets.
//
//   const View<const float*> x(data, 2, 3, 8, 8);  // [N,C,H,W]
//   sum += x.or_zero(n, c, h, w) * k(c, r, s)      // 0 in the padding; an element
//
// Behind a view stands a pointer. A plain one makes plain loops: the compiler sees offsets only. A
// Watched<T> (watched.h) notes every read and write and the line that asked for it, for somebody
// who wants to watch.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace convscope {

// What a view needs to know of the pointer behind it.
template <class Pointer>
struct PointerTo;
template <class T>
struct PointerTo<T*> {
  using Value = std::remove_const_t<T>;  // what is read through it
  using First = std::int64_t;            // an index; a watched one knows the line that it stands in
  using Filling = Value;                 // a value; the same
  static constexpr First at(First /*first*/, std::int64_t offset) { return offset; }
  static constexpr void put(T* data, std::int64_t i, Filling value) { data[i] = value; }
};

// The number alone, without who watches it.
template <class T>
requires std::is_arithmetic_v<T>
constexpr T plain(T number) { return number; }

// Up to four axes, row-major, all in one piece.
template <class Pointer>
class View {
 public:
  using Index = std::int64_t;
  using Value = typename PointerTo<Pointer>::Value;
  using First = typename PointerTo<Pointer>::First;  // the index of the first axis

  constexpr View(Pointer data, Index a, Index b = 1, Index c = 1, Index d = 1)
      : data_(data), sizes_{a, b, c, d} {}

  // The element at one index for each axis; axes of size 1 at the end are left out.
  template <class... Rest>
  constexpr decltype(auto) operator()(First first, Rest... rest) const {
    return data_[PointerTo<Pointer>::at(first, offset(static_cast<Index>(first), rest...))];
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
  template <class... Rest>
  constexpr Value or_zero(First first, Rest... rest) const {
    return has(static_cast<Index>(first), rest...) ? Value((*this)(first, rest...)) : Value(0);
  }

  // The number itself, read once: what a loop keeps.
  template <class... Rest>
  constexpr Value value(First first, Rest... rest) const {
    return (*this)(first, rest...);
  }

  // The part at one index of the first axis: x[n] of x[N,C,H,W] is a view [C,H,W].
  constexpr View operator[](Index i) const {
    return View(data_ + i * sizes_[1] * sizes_[2] * sizes_[3], sizes_[1], sizes_[2], sizes_[3]);
  }

  // The same elements with other sizes: w[K,C,R,S] is a matrix [K, C R S] without moving a number.
  constexpr View as(Index a, Index b = 1, Index c = 1, Index d = 1) const {
    return View(data_, a, b, c, d);
  }

  constexpr void fill(typename PointerTo<Pointer>::Filling value) const {
    const Index elements = sizes_[0] * sizes_[1] * sizes_[2] * sizes_[3];
    for (Index i = 0; i < elements; ++i) PointerTo<Pointer>::put(data_, i, value);
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
