// SPDX-License-Identifier: Apache-2.0
// recorder.h: records the execution of a lesson: each step by name, each read and write with the
// lesson's source line, each partial sum, and the number of products so far.
//
//   Recorder recorder;
//   watch_conv2d("winograd_lesson", problem, Direction::forward, x, w, recorder);
//   recorder.reads("x");                                  // number of reads of elements of x
//   recorder.products();                                  // number of multiplications
//   for (const auto& event : recorder.events()) ...       // in order of execution
#pragma once

#include <cstdint>
#include <source_location>
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
  // `sum` is an addition to a variable that is not in an array.
  enum class Kind : std::uint8_t { step, read, write, sum };
  // Where an array is stored. Accesses to arrays in memory pass through the caches.
  enum class Lies : std::uint8_t { in_memory, in_shared_memory, in_registers };
  struct Array {
    std::string name;                 // "columns"
    std::vector<std::int64_t> sizes;  // per axis
    std::int64_t element_bytes = 4;
    Lies lies = Lies::in_memory;
    bool complex = false;  // the last axis has size 2: the real and the imaginary part
  };
  struct Event {
    Kind kind;
    int which;           // index in arrays() (read, write) or in steps() (step)
    std::int64_t index;  // index of the element; step: how often it began before
    double value;        // read, written or summed
    int place;           // index in places()
    int products;        // number of earlier products of two array elements
    int scalings;        // number of earlier products with a constant
  };
  struct Place {
    std::string file;  // without folders: "direct_lesson_cpu.cpp"
    int line;
  };

  // Keeps every event. Throws when the program has more than `most_events` events.
  explicit Recorder(std::int64_t most_events = 10'000'000) : most_events_(most_events) {}
  // Counts events without keeping them.
  static Recorder that_counts() { return Recorder(0, true); }

  // ---- for readers of the record
  const std::vector<Array>& arrays() const { return arrays_; }
  const std::vector<std::string>& steps() const { return steps_; }
  const std::vector<Event>& events() const { return events_; }
  const std::vector<Place>& places() const { return places_; }
  std::int64_t event_count() const { return event_count_; }
  // Returns the number of products of two array elements. scalings() counts products of an array
  // element with a constant of the program, or with a 0 of the padding.
  int products() const { return products_; }
  int scalings() const { return scalings_; }
  // Returns the number of reads and writes of an array; 0 for an unknown name.
  std::int64_t reads(std::string_view array) const { return count(Kind::read, array); }
  std::int64_t writes(std::string_view array) const { return count(Kind::write, array); }
  // Returns the number of reads and writes inside one step, over all executions of the step.
  std::int64_t reads(std::string_view array, std::string_view step) const {
    return count(Kind::read, array, step);
  }
  std::int64_t writes(std::string_view array, std::string_view step) const {
    return count(Kind::write, array, step);
  }

  // ---- for the recorded program
  void step(std::string_view name, const std::source_location& at);
  // Returns a view of `data` whose reads and writes are recorded under `name`.
  template <class T, class... Sizes>
  View<Watched<T>> view(const char* name, T* data, Sizes... sizes) {
    const int array = add_array(
        {.name = name, .sizes = {static_cast<std::int64_t>(sizes)...}, .element_bytes = sizeof(T)});
    return {Watched<T>(*this, array, data), static_cast<std::int64_t>(sizes)...};
  }
  // Sets where the array of the latest view is stored.
  void lies(Lies where) { arrays_.back().lies = where; }
  void is_complex() { arrays_.back().complex = true; }
  // Records an access to an element. Throws when the array has no such element.
  void note(Kind kind, int array, std::int64_t index, double value, const std::source_location& at);
  void note_sum(double value);
  void note_product() { ++products_; }
  void note_scaling() { ++scalings_; }
  void check_index(int array, std::int64_t index) const;

 private:
  Recorder(std::int64_t most_events, bool counts) : most_events_(most_events), counts_(counts) {}
  int add_array(Array array);
  int place_of(const std::source_location& at);
  void keep(Kind kind, int which, std::int64_t index, double value, int place);
  std::int64_t count(Kind kind, std::string_view array, std::string_view step = {}) const;

  const std::int64_t most_events_;
  const bool counts_ = false;
  std::int64_t event_count_ = 0;
  int products_ = 0, scalings_ = 0;
  int last_place_ = 0;
  std::vector<Array> arrays_;
  std::vector<std::string> steps_;
  std::vector<std::int64_t> turns_;  // per step
  std::vector<Event> events_;
  std::vector<Place> places_;
  std::vector<std::pair<const char*, unsigned>> place_keys_;  // per place
};

// Replaces a recorder when nothing is recorded. Its views use plain pointers, and step() does
// nothing.
struct Unwatched {
  static void step(std::string_view, const std::source_location&) {}
  template <class T, class... Sizes>
  static View<T*> view(const char*, T* data, Sizes... sizes) {
    return {data, sizes...};
  }
  static void lies(Recorder::Lies) {}
  static void is_complex() {}
};

}  // namespace convscope

#include "framework/watch/watched.h"
