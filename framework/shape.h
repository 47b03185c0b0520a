// SPDX-License-Identifier: Apache-2.0
// shape.h: the sizes of a row-major tensor: at most kMaxRank axes, stored without an allocation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "framework/check.h"

namespace convscope {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;  // rank 0: a scalar, one element
  Shape(std::initializer_list<std::int64_t> sizes) {
    for (std::int64_t size : sizes) push_back(size);
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return sizes_[static_cast<std::size_t>(axis)]; }

  // Returns the size along an axis; negative axes count from the end.
  std::int64_t at(int axis) const {
    const int from_start = axis < 0 ? axis + rank_ : axis;
    CONVSCOPE_CHECK(from_start >= 0 && from_start < rank_, "shape", "expected an axis in [-", rank_,
                    ",", rank_, ") of ", str(), ", got ", axis);
    return sizes_[static_cast<std::size_t>(from_start)];
  }

  void set(int axis, std::int64_t size) { sizes_[static_cast<std::size_t>(axis)] = size; }

  void push_back(std::int64_t size) {
    CONVSCOPE_CHECK(rank_ < kMaxRank, "shape", "expected at most ", kMaxRank, " axes");
    CONVSCOPE_CHECK(size >= 0, "shape", "expected sizes of at least 0, got ", size);
    sizes_[static_cast<std::size_t>(rank_++)] = size;
  }

  // Returns the number of elements. Throws when it does not fit 63 bits.
  std::int64_t numel() const {
    std::int64_t count = 1;
    for (int i = 0; i < rank_; ++i) {
      CONVSCOPE_CHECK(!__builtin_mul_overflow(count, sizes_[static_cast<std::size_t>(i)], &count),
                      "shape", "expected fewer than 2^63 elements, got ", str());
    }
    return count;
  }

  // Returns the distance in elements between neighbours along `axis` of a contiguous tensor.
  std::int64_t stride(int axis) const {
    std::int64_t step = 1;
    for (int i = axis + 1; i < rank_; ++i) step *= sizes_[static_cast<std::size_t>(i)];
    return step;
  }

  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i) {
      if ((*this)[i] != other[i]) return false;
    }
    return true;
  }

  const std::int64_t* begin() const { return sizes_.data(); }
  const std::int64_t* end() const { return sizes_.data() + rank_; }

  std::string str() const {  // "[64,1,28,28]"
    std::string text = "[";
    for (int i = 0; i < rank_; ++i) {
      if (i > 0) text += ',';
      text += std::to_string((*this)[i]);
    }
    return text + ']';
  }

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

}  // namespace convscope
