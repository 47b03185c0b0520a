// SPDX-License-Identifier: Apache-2.0
// work_clock.h: records which layer ("worker") runs when, as time marks in a device's queue.
//
//   WorkClock clock(device);
//   {
//     const WorkWatch watch(&clock);    // this thread's graphs report to the clock
//     y = model.forward(x);             // Sequential sets the current worker with a WorkScope
//   }
//   for (const WorkClock::Share& share : clock.shares()) ...   // waits for the device
//
// A time mark is a mark in the queue (device.h). On the CPU, it is a clock reading (about 30 ns);
// on a GPU, it is an event. A recording may contain events; each replay sets them again. Marks are
// created once and reused.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/device.h"

namespace convscope {

class CONVSCOPE_API WorkClock {
 public:
  explicit WorkClock(Device device);
  ~WorkClock();
  WorkClock(const WorkClock&) = delete;
  WorkClock& operator=(const WorkClock&) = delete;

  void start();                    // discards all marks; they are reused
  void begin(const void* worker);  // `worker` works from now on; null: no particular worker

  // The interval from one call of begin() to the next. shares() returns the intervals in order. The
  // time after the last call of begin() does not count.
  struct Share {
    const void* worker;
    double seconds;
    std::int64_t kept_bytes;  // live bytes at the end minus live bytes at the start, counted on the
                              // host: the memory that a dynamic graph keeps
  };
  std::vector<Share> shares() const;

 private:
  struct Moment {
    const void* worker;
    std::int64_t live_bytes;
  };
  Device device_;
  const DeviceBackend& backend_;
  std::vector<void*> marks_;  // at least one per moment
  std::vector<Moment> moments_;
};

// Returns the clock to which this thread's dynamic graphs report; null: none.
CONVSCOPE_API WorkClock* watching_clock();
class CONVSCOPE_API WorkWatch {
 public:
  explicit WorkWatch(WorkClock* clock);
  ~WorkWatch();
  WorkWatch(const WorkWatch&) = delete;
  WorkWatch& operator=(const WorkWatch&) = delete;

 private:
  WorkClock* before_;
};

// Returns this thread's current worker. Graph nodes remember it for their backward pass.
CONVSCOPE_API const void* current_worker();
class CONVSCOPE_API WorkScope {
 public:
  explicit WorkScope(const void* worker);
  ~WorkScope();
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

 private:
  const void* before_;
};

}  // namespace convscope
