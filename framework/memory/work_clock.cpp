// SPDX-License-Identifier: Apache-2.0
// work_clock.cpp: records which layer ("worker") runs when, as time marks in a device's queue.
#include "framework/memory/work_clock.h"

#include <utility>

#include "framework/memory/memory.h"

namespace convscope {
namespace {

thread_local WorkClock* clock_of_thread = nullptr;
thread_local const void* worker_of_thread = nullptr;

}  // namespace

WorkClock::WorkClock(Device device) : device_(device), backend_(backend_of(device)) {}

WorkClock::~WorkClock() {
  for (void* const mark : marks_) backend_.free_mark(device_.index, mark);
}

void WorkClock::start() { moments_.clear(); }

void WorkClock::begin(const void* worker) {
  if (moments_.size() == marks_.size()) marks_.push_back(backend_.make_mark(device_.index));
  backend_.set_mark(device_.index, marks_[moments_.size()]);
  moments_.push_back({.worker = worker, .live_bytes = memory_stats(device_).live_bytes});
}

std::vector<WorkClock::Share> WorkClock::shares() const {
  std::vector<Share> out;
  for (std::size_t i = 0; i + 1 < moments_.size(); ++i) {
    out.push_back({.worker = moments_[i].worker,
                   .seconds = 1e-3 * backend_.ms_between(device_.index, marks_[i], marks_[i + 1]),
                   .kept_bytes = moments_[i + 1].live_bytes - moments_[i].live_bytes});
  }
  return out;
}

WorkClock* watching_clock() { return clock_of_thread; }

WorkWatch::WorkWatch(WorkClock* clock) : before_(std::exchange(clock_of_thread, clock)) {}
WorkWatch::~WorkWatch() { clock_of_thread = before_; }

const void* current_worker() { return worker_of_thread; }

WorkScope::WorkScope(const void* worker) : before_(std::exchange(worker_of_thread, worker)) {
  if (clock_of_thread != nullptr) clock_of_thread->begin(worker);
}

WorkScope::~WorkScope() {
  worker_of_thread = before_;
  if (clock_of_thread != nullptr) clock_of_thread->begin(before_);
}

}  // namespace convscope
