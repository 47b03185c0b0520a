// SPDX-License-Identifier: Apache-2.0
// watched.h: the pointers and numbers of recorded lessons. A Watched pointer records reads and
// writes, and a WatchedNumber records multiplications and sums. (Belongs to recorder.h; include
// that header.)
#pragma once

#include <type_traits>

#include "framework/watch/recorder.h"

namespace convscope {

// A number that was read, or that was computed from such numbers. A number without a recorder is a
// constant.
template <class T>
class WatchedNumber {
 public:
  constexpr WatchedNumber() = default;
  template <class N>
  requires std::is_arithmetic_v<N>
  constexpr WatchedNumber(N value)  // NOLINT(google-explicit-constructor): acts as the number
      : value_(static_cast<T>(value)) {}
  constexpr WatchedNumber(T value, Recorder* recorder) : value_(value), recorder_(recorder) {}
  template <class N>
  constexpr explicit WatchedNumber(const WatchedNumber<N>& other)
      : value_(static_cast<T>(other.value())), recorder_(other.recorder()) {}

  constexpr T value() const { return value_; }
  constexpr Recorder* recorder() const { return recorder_; }

  constexpr WatchedNumber operator-() const { return {-value_, recorder_}; }
  template <class N>
  WatchedNumber& operator+=(const N& other);
  template <class N>
  WatchedNumber& operator-=(const N& other);

 private:
  T value_ = 0;
  Recorder* recorder_ = nullptr;
};

template <class T>
constexpr T plain(const WatchedNumber<T>& number) {
  return number.value();
}

// An index, or a value to fill an array with, together with the source line that passes it.
template <class N>
struct WithLine {
  template <class Given>
  constexpr WithLine(  // NOLINT(google-explicit-constructor): acts as the number
      const Given& given, const std::source_location& line = std::source_location::current())
      : number(static_cast<N>(given)), at(line) {}
  constexpr explicit operator N() const { return number; }
  N number;
  std::source_location at;
};

// The result of pointer[i]. It records a read when converted to a number, and a write when assigned
// to.
template <class T>
class WatchedElement {
 public:
  using Value = WatchedNumber<std::remove_const_t<T>>;
  WatchedElement(Recorder* recorder, int array, std::int64_t index, T* data,
                 const std::source_location& at)
      : recorder_(recorder), array_(array), index_(index), data_(data), at_(at) {
    recorder_->check_index(array_, index_);
  }
  WatchedElement(const WatchedElement&) = default;
  operator Value() const {  // NOLINT(google-explicit-constructor): acts as the number
    const std::remove_const_t<T> value = data_[index_];
    recorder_->note(Recorder::Kind::read, array_, index_, static_cast<double>(value), at_);
    return {value, recorder_};
  }
  const WatchedElement& operator=(Value value) const {  // NOLINT(*-assign-operator)
    recorder_->note(Recorder::Kind::write, array_, index_, static_cast<double>(value.value()), at_);
    data_[index_] = value.value();
    return *this;
  }
  const WatchedElement& operator=(const WatchedElement& other) const {  // NOLINT(*-assign-operator)
    return *this = static_cast<Value>(other);
  }
  const WatchedElement& operator+=(Value value) const {
    return *this = Value(static_cast<Value>(*this) + value);
  }

 private:
  Recorder* recorder_;
  int array_;
  std::int64_t index_;
  T* data_;
  std::source_location at_;
};

// A pointer that reports reads and writes through it to a recorder.
template <class T>
class Watched {
 public:
  using First = WithLine<std::int64_t>;
  Watched(Recorder& recorder, int array, T* data)
      : recorder_(&recorder), array_(array), data_(data) {}
  WatchedElement<T> operator[](const First& i) const {
    return {recorder_, array_, first_ + i.number, data_, i.at};
  }
  Watched operator+(std::int64_t elements) const {
    Watched out = *this;
    out.first_ += elements;
    return out;
  }

 private:
  Recorder* recorder_;
  int array_;
  T* data_;
  std::int64_t first_ = 0;  // the element at which this pointer points
};

template <class T>
struct PointerTo<Watched<T>> {
  using Value = WatchedNumber<std::remove_const_t<T>>;
  using First = WithLine<std::int64_t>;
  using Filling = WithLine<Value>;
  static First at(const First& first, std::int64_t offset) { return {offset, first.at}; }
  static void put(const Watched<T>& data, std::int64_t i, const Filling& value) {
    data[First(i, value.at)] = value.number;
  }
};

// ---- arithmetic of watched numbers, of elements that are read for it, and of constants ----------

namespace watching {

template <class T>
constexpr bool kWatched = false;
template <class T>
constexpr bool kWatched<WatchedNumber<T>> = true;
template <class T>
constexpr bool kWatched<WatchedElement<T>> = true;

template <class T>
constexpr WatchedNumber<T> number(const WatchedNumber<T>& number) {
  return number;
}
template <class T>
WatchedNumber<std::remove_const_t<T>> number(const WatchedElement<T>& element) {
  return element;
}
template <class T>
requires std::is_arithmetic_v<T>
constexpr WatchedNumber<T> number(T constant) { return constant; }

template <class A, class B>
concept OneWatched = (kWatched<A> && (kWatched<B> || std::is_arithmetic_v<B>)) ||
                     (std::is_arithmetic_v<A> && kWatched<B>);

// Returns a number of the type that C++ gives the operation; for two bytes, the type is int.
template <class A, class B, class Operation>
auto result(const WatchedNumber<A>& a, const WatchedNumber<B>& b, Operation operation) {
  const auto value = operation(a.value(), b.value());
  Recorder* const recorder = a.recorder() != nullptr ? a.recorder() : b.recorder();
  return WatchedNumber<std::remove_const_t<decltype(value)>>(value, recorder);
}

}  // namespace watching

template <class A, class B>
requires watching::OneWatched<A, B>
auto operator*(const A& a, const B& b) {
  const auto left = watching::number(a);
  const auto right = watching::number(b);
  if (left.recorder() != nullptr && right.recorder() != nullptr) {
    left.recorder()->note_product();
  } else if (left.recorder() != nullptr) {
    left.recorder()->note_scaling();
  } else if (right.recorder() != nullptr) {
    right.recorder()->note_scaling();
  }
  return watching::result(left, right, [](auto x, auto y) { return x * y; });
}
template <class A, class B>
requires watching::OneWatched<A, B>
auto operator+(const A& a, const B& b) {
  const auto left = watching::number(a);
  const auto right = watching::number(b);
  return watching::result(left, right, [](auto x, auto y) { return x + y; });
}
template <class A, class B>
requires watching::OneWatched<A, B>
auto operator-(const A& a, const B& b) {
  const auto left = watching::number(a);
  const auto right = watching::number(b);
  return watching::result(left, right, [](auto x, auto y) { return x - y; });
}
// Divides two constants of the program. No lesson divides numbers that were read.
template <class A, class T>
requires std::is_arithmetic_v<A>
constexpr WatchedNumber<T> operator/(A a, const WatchedNumber<T>& b) {
  return static_cast<T>(a) / b.value();
}

template <class T>
template <class N>
WatchedNumber<T>& WatchedNumber<T>::operator+=(const N& other) {
  *this = WatchedNumber(*this + other);
  if (recorder_ != nullptr) recorder_->note_sum(static_cast<double>(value_));
  return *this;
}
template <class T>
template <class N>
WatchedNumber<T>& WatchedNumber<T>::operator-=(const N& other) {
  return *this = WatchedNumber(*this - other);
}

}  // namespace convscope
