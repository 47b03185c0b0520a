// SPDX-License-Identifier: Apache-2.0
// recorder.h: what somebody sees who watches a lesson: each step by name, each read and each write.
//
//   Recorder recorder;
//   watch_conv2d("winograd_lesson", problem, Direction::forward, x, w, recorder);
//   recorder.reads("x");                                  // how often an element of x was read
//   for (const auto& event : recorder.events()) ...       // in the order in which it happened
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/export.h"
#include "framework/watch/view.h"

namespace convscope {

template <class T>
class Watched;

class CONVSCOPE_API Recorder {
 public:
  enum class Kind : std::uint8_t { step, read, write };
  struct Array {
    std::string name;                 // "columns"
    std::vector<std::int64_t> sizes;  // of its axes
  };
  struct Event {
    Kind kind;
    int which;           // read, write: of arrays(); step: of steps()
    std::int64_t index;  // of the element, row-major; step: how often it was begun before
    double value;        // read or written
  };

  // Each event is kept, so a problem that makes more is refused with a sentence.
  explicit Recorder(std::int64_t most_events = 10'000'000) : most_events_(most_events) {}

  // ---- for who watches
  const std::vector<Array>& arrays() const { return arrays_; }
  const std::vector<std::string>& steps() const { return steps_; }
  const std::vector<Event>& events() const { return events_; }
  // How many reads and writes of an array there were; 0 for a name that is not there.
  std::int64_t reads(std::string_view array) const { return count(Kind::read, array); }
  std::int64_t writes(std::string_view array) const { return count(Kind::write, array); }
  // The same inside one step, all its turns together.
  std::int64_t reads(std::string_view array, std::string_view step) const {
    return count(Kind::read, array, step);
  }
  std::int64_t writes(std::string_view array, std::string_view step) const {
    return count(Kind::write, array, step);
  }

  // ---- for who is watched
  void step(std::string_view name);
  // A view of `data` whose reads and writes are noted under `name`.
  template <class T, class... Sizes>
  View<Watched<T>> view(const char* name, T* data, Sizes... sizes) {
    return {Watched<T>(*this, add_array(name, {static_cast<std::int64_t>(sizes)...}), data),
            static_cast<std::int64_t>(sizes)...};
  }
  // Throws when the array has no such element.
  void note(Kind kind, int array, std::int64_t index, double value);
  void check_index(int array, std::int64_t index) const;

 private:
  int add_array(const char* name, std::vector<std::int64_t> sizes);
  std::int64_t count(Kind kind, std::string_view array, std::string_view step = {}) const;

  const std::int64_t most_events_;
  std::vector<Array> arrays_;
  std::vector<std::string> steps_;
  std::vector<std::int64_t> turns_;  // of each step
  std::vector<Event> events_;
};

// In place of a recorder when nobody watches: views are of plain pointers, and a step is nothing.
struct Unwatched {
  static void step(std::string_view) {}
  template <class T, class... Sizes>
  static View<T*> view(const char*, T* data, Sizes... sizes) {
    return {data, sizes...};
  }
};

// A pointer that tells a recorder what is read and written through it.
template <class T>
class Watched {
 public:
  using Value = std::remove_const_t<T>;

  // What stands behind pointer[i]: gives the number when read, takes one when assigned to.
  class Element {
   public:
    Element(Recorder* recorder, int array, std::int64_t index, T* data)
        : recorder_(recorder), array_(array), index_(index), data_(data) {
      recorder_->check_index(array_, index_);
    }
    Element(const Element&) = default;
    operator Value() const {  // NOLINT(google-explicit-constructor): it stands for the number
      const Value value = data_[index_];
      recorder_->note(Recorder::Kind::read, array_, index_, static_cast<double>(value));
      return value;
    }
    const Element& operator=(Value value) const {  // NOLINT(misc-unconventional-assign-operator)
      recorder_->note(Recorder::Kind::write, array_, index_, static_cast<double>(value));
      data_[index_] = value;
      return *this;
    }
    const Element& operator=(const Element& other) const {  // NOLINT(*-assign-operator)
      return *this = static_cast<Value>(other);
    }
    const Element& operator+=(Value value) const {
      return *this = static_cast<Value>(*this) + value;
    }

   private:
    Recorder* recorder_;
    int array_;
    std::int64_t index_;
    T* data_;
  };

  Watched(Recorder& recorder, int array, T* data)
      : recorder_(&recorder), array_(array), data_(data) {}
  Element operator[](std::int64_t i) const { return {recorder_, array_, first_ + i, data_}; }
  Watched operator+(std::int64_t elements) const {
    Watched out = *this;
    out.first_ += elements;
    return out;
  }

 private:
  Recorder* recorder_;
  int array_;
  T* data_;
  std::int64_t first_ = 0;  // where this pointer points to
};

template <class T>
struct PointerTo<Watched<T>> {
  using Value = std::remove_const_t<T>;
};

}  // namespace convscope
