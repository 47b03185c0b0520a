// SPDX-License-Identifier: Apache-2.0
// work_clock.h: who works when: moments in a device's queue of work, each with who begins there.
//
//   WorkClock clock(device);
//   {
//     const WorkWatch watch(&clock);    // the graphs that this thread computes tell the clock
//     y = model.forward(x);             // Sequential says whose turn it is, by a WorkScope
//   }
//   for (const WorkClock::Share& share : clock.shares()) ...   // waits for the device
//
// A moment is a mark in the queue (device.h): on the CPU a reading of the clock, some 30 ns; on a
// GPU an event, which may be part of a recording and is then set anew by each replay. The marks are
// made once and used again.
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

  void start();                 // forgets what was; the marks that are there will be set again
  void begin(const void* who);  // from here on `who` works; null: nobody in particular

  // From one begin() to the next, in order; what comes behind the last one does not count.
  struct Share {
    const void* who;
    double seconds;
    std::int64_t kept_bytes;  // live bytes at its end minus those at its beginning, as the host
                              // saw them: what a dynamic graph has kept
  };
  std::vector<Share> shares() const;

 private:
  struct Moment {
    const void* who;
    std::int64_t live_bytes;
  };
  Device device_;
  const DeviceBackend& backend_;
  std::vector<void*> marks_;  // at least as many as moments
  std::vector<Moment> moments_;
};

// The clock that this thread's dynamic graphs tell; null: none.
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

// Whose turn it is on this thread. A graph's nodes remember it for their backward pass.
CONVSCOPE_API const void* current_worker();
class CONVSCOPE_API WorkScope {
 public:
  explicit WorkScope(const void* who);
  ~WorkScope();
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

 private:
  const void* before_;
};

}  // namespace convscope
