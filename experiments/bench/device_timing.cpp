// SPDX-License-Identifier: Apache-2.0
// device_timing.cpp: times work on an asynchronous device, interleaved, by marks in its queue
// (CUDA: events), so host time does not count.
#include "experiments/bench/device_timing.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "framework/memory/memory.h"

namespace convscope {
namespace {

// A sample lasts at least this long, so that the overhead of its two marks, about a microsecond,
// does not matter.
constexpr double kLongEnough = 500e-6;
constexpr int kMaxRepeats = 64;

class Mark {
 public:
  Mark(const DeviceBackend& backend, Device device)
      : backend_(backend), device_(device), mark_(backend.make_mark(device.index)) {}
  ~Mark() { backend_.free_mark(device_.index, mark_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  void set() const { backend_.set_mark(device_.index, mark_); }
  double seconds_since(const Mark& from) const {
    return 1e-3 * backend_.ms_between(device_.index, from.mark_, mark_);
  }

 private:
  const DeviceBackend& backend_;
  Device device_;
  void* mark_;
};

// Queues `repeats` consecutive runs. They are captured as a CUDA graph if the device supports
// recordings.
class Burst {
 public:
  Burst(const DeviceBackend& backend, Device device, const TimedThing& thing, int repeats)
      : backend_(backend), device_(device), thing_(thing), repeats_(repeats) {
    if (backend_.begin_recording == nullptr) return;
    backend_.begin_recording(device_.index);
    try {
      for (int i = 0; i < repeats_; ++i) thing_.run();
    } catch (...) {
      backend_.free_recording(device_.index, backend_.end_recording(device_.index));
      throw;
    }
    recording_ = backend_.end_recording(device_.index);
  }
  ~Burst() {
    if (recording_ != nullptr) backend_.free_recording(device_.index, recording_);
  }
  Burst(const Burst&) = delete;
  Burst& operator=(const Burst&) = delete;

  void queue() const {
    if (recording_ != nullptr) return backend_.replay(device_.index, recording_);
    for (int i = 0; i < repeats_; ++i) thing_.run();
  }
  int repeats() const { return repeats_; }

 private:
  const DeviceBackend& backend_;
  Device device_;
  const TimedThing& thing_;
  int repeats_;
  void* recording_ = nullptr;
};

int samples_of(const TimedThing& thing, int repeats, const InterleaveOptions& options) {
  const double wanted = std::ceil(options.min_seconds / (thing.estimate_seconds * repeats));
  return static_cast<int>(
      std::clamp(wanted, static_cast<double>(options.least_samples),
                 static_cast<double>(std::max(options.least_samples, options.most_samples))));
}

}  // namespace

void time_on_device(std::vector<TimedThing>& things, Device device,
                    const InterleaveOptions& options) {
  const DeviceBackend& backend = backend_of(device);
  const Mark begin(backend, device);
  const Mark end(backend, device);
  const Workspace flush(device, options.cold ? 2 * options.cache_bytes : 0);

  std::vector<std::unique_ptr<Burst>> bursts;
  int rounds = 0;
  for (TimedThing& thing : things) {
    // The estimate of the caller includes host time, so the device time of three runs replaces it.
    thing.run();
    begin.set();
    for (int i = 0; i < 3; ++i) thing.run();
    end.set();
    thing.estimate_seconds = std::max(end.seconds_since(begin) / 3, 1e-7);
    const double repeats = options.cold ? 1 : std::ceil(kLongEnough / thing.estimate_seconds);
    bursts.push_back(options.cold ? nullptr
                                  : std::make_unique<Burst>(
                                        backend, device, thing,
                                        static_cast<int>(std::clamp(
                                            repeats, 1.0, static_cast<double>(kMaxRepeats)))));
    rounds =
        std::max(rounds, samples_of(thing, options.cold ? 1 : bursts.back()->repeats(), options));
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < things.size(); ++i) {
      const int repeats = options.cold ? 1 : bursts[i]->repeats();
      if (round >= samples_of(things[i], repeats, options)) continue;
      if (options.cold) {
        backend.fill_bytes(device.index, flush.data(), round, flush.bytes());
        begin.set();
        things[i].run();
      } else {
        if (round == 0) bursts[i]->queue();  // loads data and code
        begin.set();
        bursts[i]->queue();
      }
      end.set();
      things[i].seconds.push_back(end.seconds_since(begin) / repeats);
    }
  }
}

}  // namespace convscope
