// SPDX-License-Identifier: Apache-2.0
// recorder.cpp: records the execution of a lesson: steps, reads, writes, sums and products.
#include "framework/watch/recorder.h"

#include <algorithm>

#include "framework/check.h"

namespace convscope {

int Recorder::add_array(Array array) {
  arrays_.push_back(std::move(array));
  return static_cast<int>(arrays_.size()) - 1;
}

int Recorder::place_of(const std::source_location& at) {
  const std::pair<const char*, unsigned> key(at.file_name(), at.line());
  const auto found = std::find(place_keys_.begin(), place_keys_.end(), key);
  last_place_ = static_cast<int>(found - place_keys_.begin());
  if (found == place_keys_.end()) {
    const std::string_view file = at.file_name();
    place_keys_.push_back(key);
    places_.push_back({std::string(file.substr(file.rfind('/') + 1)), static_cast<int>(at.line())});
  }
  return last_place_;
}

void Recorder::step(std::string_view name, const std::source_location& at) {
  const auto found = std::find(steps_.begin(), steps_.end(), name);
  const auto which = static_cast<std::size_t>(found - steps_.begin());
  if (found == steps_.end()) {
    steps_.emplace_back(name);
    turns_.push_back(0);
  }
  keep(Kind::step, static_cast<int>(which), turns_[which]++, 0, place_of(at));
}

void Recorder::check_index(int array, std::int64_t index) const {
  const Array& of = arrays_[static_cast<std::size_t>(array)];
  std::int64_t elements = 1;
  for (const std::int64_t size : of.sizes) elements *= size;
  CONVSCOPE_CHECK(index >= 0 && index < elements, "watch", "expected an element of ", of.name,
                  ", which holds ", elements, ", got element ", index);
}

void Recorder::note(Kind kind, int which, std::int64_t index, double value,
                    const std::source_location& at) {
  keep(kind, which, index, value, place_of(at));
}

// Uses the source line of the last read, because the operands were read on the same line.
void Recorder::note_sum(double value) { keep(Kind::sum, 0, 0, value, last_place_); }

void Recorder::keep(Kind kind, int which, std::int64_t index, double value, int place) {
  ++event_count_;
  if (counts_) return;
  CONVSCOPE_CHECK(event_count_ <= most_events_, "watch", "expected a problem of at most ",
                  most_events_, " reads and writes, because each one is stored, got more");
  events_.push_back({kind, which, index, value, place, products_, scalings_});
}

std::int64_t Recorder::count(Kind kind, std::string_view array, std::string_view step) const {
  std::int64_t out = 0;
  bool inside = step.empty();
  for (const Event& event : events_) {
    const auto which = static_cast<std::size_t>(event.which);
    if (event.kind == Kind::step) {
      inside = step.empty() || steps_[which] == step;
    } else if (inside && event.kind == kind && arrays_[which].name == array) {
      ++out;
    }
  }
  return out;
}

}  // namespace convscope
