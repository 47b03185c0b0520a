// SPDX-License-Identifier: Apache-2.0
// view.h: the arrays of a lesson, accessed by indices: x(n, c, h, w), as on a blackboard, without
// offsets.
//
//   const View<const float*> x(data, 2, 3, 8, 8);  // [N,C,H,W]
//   sum += x.or_zero(n, c, h, w) * k(c, r, s)      // 0 in the padding; an element
//
// A view contains a pointer. If it is a plain pointer, the compiler sees plain loops with offsets.
// If it is a Watched<T> (watched.h), every read and write is recorded with the source line that
// made it.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace convscope {

// The types of values and indices in a view that contains a pointer of type Pointer.
template <class Pointer>
struct PointerTo;
template <class T>
struct PointerTo<T*> {
  using Value = std::remove_const_t<T>;  // the type of elements
  using First = std::int64_t;            // an index; a watched one also has the source line
  using Filling = Value;                 // a value; likewise
  static constexpr First at(First /*first*/, std::int64_t offset) { return offset; }
  static constexpr void put(T* data, std::int64_t i, Filling value) { data[i] = value; }
};

// Returns the value of an element, without its recorder.
template <class T>
requires std::is_arithmetic_v<T>
constexpr T plain(T number) { return number; }

// Up to four axes, row-major, contiguous.
template <class Pointer>
class View {
 public:
  using Index = std::int64_t;
  using Value = typename PointerTo<Pointer>::Value;
  using First = typename PointerTo<Pointer>::First;  // the index of the first axis

  constexpr View(Pointer data, Index a, Index b = 1, Index c = 1, Index d = 1)
      : data_(data), sizes_{a, b, c, d} {}

  // Returns the element at one index per axis; trailing axes of size 1 may be omitted.
  template <class... Rest>
  constexpr decltype(auto) operator()(First first, Rest... rest) const {
    return data_[PointerTo<Pointer>::at(first, offset(static_cast<Index>(first), rest...))];
  }

  // Returns true if the element exists. A convolution checks this at the border of the image.
  template <class... Indices>
  constexpr bool has(Indices... indices) const {
    int axis = 0;
    bool inside = true;
    ((inside = inside && indices >= 0 && indices < sizes_[axis++]), ...);
    return inside;
  }

  // Returns the element, or 0 outside of the array: x with its padding.
  template <class... Rest>
  constexpr Value or_zero(First first, Rest... rest) const {
    return has(static_cast<Index>(first), rest...) ? Value((*this)(first, rest...)) : Value(0);
  }

  // Reads the element once and returns its value, which a loop can keep.
  template <class... Rest>
  constexpr Value value(First first, Rest... rest) const {
    return (*this)(first, rest...);
  }

  // Returns the view at one index of the first axis: x[n] of x[N,C,H,W] is a view [C,H,W].
  constexpr View operator[](Index i) const {
    return View(data_ + i * sizes_[1] * sizes_[2] * sizes_[3], sizes_[1], sizes_[2], sizes_[3]);
  }

  // Returns a view with other sizes: w[K,C,R,S] is a matrix [K, C R S] without moving an element.
  constexpr View as(Index a, Index b = 1, Index c = 1, Index d = 1) const {
    return View(data_, a, b, c, d);
  }

  constexpr void fill(typename PointerTo<Pointer>::Filling value) const {
    const Index elements = sizes_[0] * sizes_[1] * sizes_[2] * sizes_[3];
    for (Index i = 0; i < elements; ++i) PointerTo<Pointer>::put(data_, i, value);
  }

  // Returns the initial value of a sum of the view's type.
  static constexpr Value zero() { return Value(0); }
  constexpr Index size(int axis) const { return sizes_[axis]; }

 private:
  // Returns ((i * size of axis 1 + j) * size of axis 2 + k) * ...
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
