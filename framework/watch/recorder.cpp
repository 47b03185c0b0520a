// SPDX-License-Identifier: Apache-2.0
// recorder.cpp: what somebody sees who watches a lesson: each step by name, each read and each
// write.
#include "framework/watch/recorder.h"

#include <algorithm>

#include "framework/check.h"

namespace convscope {

int Recorder::add_array(const char* name, std::vector<std::int64_t> sizes) {
  arrays_.push_back({name, std::move(sizes)});
  return static_cast<int>(arrays_.size()) - 1;
}

void Recorder::step(std::string_view name) {
  const auto found = std::find(steps_.begin(), steps_.end(), name);
  const auto which = static_cast<std::size_t>(found - steps_.begin());
  if (found == steps_.end()) {
    steps_.emplace_back(name);
    turns_.push_back(0);
  }
  note(Kind::step, static_cast<int>(which), turns_[which]++, 0);
}

void Recorder::check_index(int array, std::int64_t index) const {
  const Array& of = arrays_[static_cast<std::size_t>(array)];
  std::int64_t elements = 1;
  for (const std::int64_t size : of.sizes) elements *= size;
  CONVSCOPE_CHECK(index >= 0 && index < elements, "watch", "expected an element of ", of.name,
                  ", which holds ", elements, ", got element ", index);
}

void Recorder::note(Kind kind, int which, std::int64_t index, double value) {
  CONVSCOPE_CHECK(static_cast<std::int64_t>(events_.size()) < most_events_, "watch",
                  "expected a problem of at most ", most_events_,
                  " reads and writes, because each one is kept, got more");
  events_.push_back({kind, which, index, value});
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
