// SPDX-License-Identifier: Apache-2.0
// threads.h: grids, clusters, blocks and warps. The blocks of a grid run one after another; the
// blocks of a cluster run at the same time. Their threads are fibers that take turns: each runs
// until it waits at a barrier or for the other lanes of its warp.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <tuple>

#include "framework/cuda/emulation/language.h"
#include "framework/cuda/emulation/overlap.h"

namespace emulation {

// ---- launches ----

// Calls call(kernel) once for each thread of the grid, and returns when all threads are done.
// `cluster` adjacent blocks along x run at the same time. overlap.h explains `overlaps`.
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, unsigned cluster, bool overlaps,
              void (*call)(const void* kernel), const void* kernel);
// Throws the errors that a launch itself detects, e.g. a block of 2000 threads.
void check_launch(dim3 grid, dim3 block, std::size_t shared_bytes, unsigned cluster);

// Runs queued work at once, or adds it to the graph that is being captured.
bool is_capturing();
void capture(std::function<void()> work);

template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            unsigned cluster, bool overlaps, Parameters... arguments) {
  check_launch(grid, block, shared_bytes, cluster);
  const auto once = [kernel, parameters = std::tuple<Parameters...>(arguments...)] {
    std::apply(kernel, parameters);
  };
  const auto all = [grid, block, shared_bytes, cluster, overlaps, once] {
    run_grid(
        grid, block, shared_bytes, cluster, overlaps,
        [](const void* k) { (*static_cast<const decltype(once)*>(k))(); }, &once);
  };
  if (is_capturing()) {
    capture(all);
  } else {
    all();
  }
}

// Returns the memory of the calling thread's block; null when the launch requested 0 bytes.
void* dynamic_shared();

// ---- inside kernels ----

[[noreturn]] void stop(const char* sentence);  // ends the launch with an error

[[noreturn]] void stop_shuffle(const char* name, unsigned from);

enum class Barrier { plain, any, all, count };
int barrier(Barrier kind, bool predicate);

// Waits until wake(which) is called. `name` is the operation, for error messages.
void wait_for(const void* which, const char* name);
void wake(const void* which);
// Watches an object in shared memory that must not be overwritten. When the block ends, calls
// whole(object, fact), which returns false if the object has been overwritten. Then the launch ends
// with the error text `sentence`.
void watch(const void* object, unsigned fact, bool (*whole)(const void*, unsigned),
           const char* sentence);
// Waits until `threads` threads have reached this barrier (bar.sync).
void named_barrier(unsigned barrier, unsigned threads);

// Implements cluster.cuh. A block without a cluster counts as a cluster of one block.
unsigned cluster_rank();
unsigned cluster_size();
void cluster_arrive();
void cluster_wait();
// Returns the address in block `rank` that corresponds to `at` in the calling block's dynamic
// shared memory. `at` is a multiple of `bytes`. `name` is the reading function, for error messages.
const void* in_block(const char* name, const void* at, std::size_t bytes, unsigned rank);

unsigned lane();            // 0..31: index of the calling thread in its warp
unsigned existing_lanes();  // of its warp: fewer than 32 in a block's last warp

struct Meeting {
  unsigned lanes = 0;
  std::array<const void*, 32> arguments{};
  std::array<void*, 32> results{};
};
// Waits for the lanes of `mask` that exist. Returns null in all lanes except the last lane to
// arrive. The last lane writes the results of all lanes, and then calls part(), which lets the
// waiting lanes continue.
const Meeting* meet(unsigned mask, const void* which, const char* name, const void* argument,
                    void* result);
void part(unsigned lanes);

template <class T>
using Lanes = std::array<T, 32>;

// Runs an operation that all lanes of a warp execute together. Each lane passes an argument. When
// all have arrived, the last lane computes all results from all arguments, and each lane returns
// its result:
//
//   emulation::warp_collective<float>("my_mma", fragment,
//       [](const emulation::Lanes<Fragment>& in, emulation::Lanes<float>& out) { ... });
//
// A lane that does not exist in the block counts as a lane with Argument{}. The launch ends with an
// error if a lane never arrives, or if lanes of one mask call different collectives.
template <class Result, class Argument, class Compute>
Result warp_collective(const char* name, const Argument& argument, const Compute& compute,
                       unsigned mask = 0xffffffffu) {
  static const char which = 0;  // one per collective
  Result result{};
  const Meeting* meeting = meet(mask, &which, name, &argument, &result);
  if (meeting != nullptr) {
    const unsigned lanes = meeting->lanes;
    Lanes<Argument> in{};
    Lanes<Result> out{};
    for (unsigned i = 0; i < 32; ++i) {
      if ((lanes >> i & 1u) != 0) in[i] = *static_cast<const Argument*>(meeting->arguments[i]);
    }
    compute(in, out);
    for (unsigned i = 0; i < 32; ++i) {
      if ((lanes >> i & 1u) != 0) *static_cast<Result*>(meeting->results[i]) = out[i];
    }
    part(lanes);
  }
  return result;
}

}  // namespace emulation

inline void __syncthreads() { (void)emulation::barrier(emulation::Barrier::plain, false); }
inline int __syncthreads_or(int predicate) {
  return emulation::barrier(emulation::Barrier::any, predicate != 0);
}
inline int __syncthreads_and(int predicate) {
  return emulation::barrier(emulation::Barrier::all, predicate != 0);
}
inline int __syncthreads_count(int predicate) {
  return emulation::barrier(emulation::Barrier::count, predicate != 0);
}

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  (void)emulation::warp_collective<char>(
      "__syncwarp", char{}, [](const auto&, auto&) {}, mask);
}

namespace emulation {
// Returns the value of lane `source(lane)`, or the calling lane's value when that lane is outside
// of the segment.
template <class T, class Source>
T shuffle(const char* name, unsigned mask, T value, const Source& source) {
  struct Argument {
    T value;
    unsigned from;
    bool is_here;
  };
  return warp_collective<T>(
      name, Argument{value, source(lane()), true},
      [name](const Lanes<Argument>& in, Lanes<T>& out) {
        for (unsigned i = 0; i < 32; ++i) {
          const Argument& other = in[in[i].from % 32];
          if (in[i].is_here && !other.is_here) stop_shuffle(name, in[i].from % 32);
          out[i] = other.value;
        }
      },
      mask);
}
inline unsigned ballot(const char* name, unsigned mask, bool predicate) {
  return warp_collective<unsigned>(
      name, predicate,
      [](const Lanes<bool>& in, Lanes<unsigned>& out) {
        unsigned bits = 0;
        for (unsigned i = 0; i < 32; ++i) bits |= unsigned{in[i]} << i;
        out.fill(bits);
      },
      mask);
}
}  // namespace emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const auto w = static_cast<unsigned>(width);
  return emulation::shuffle("__shfl_sync", mask, value, [=](unsigned lane) {
    return lane / w * w + static_cast<unsigned>(from) % w;
  });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const auto w = static_cast<unsigned>(width);
  return emulation::shuffle("__shfl_xor_sync", mask, value, [=](unsigned lane) {
    const unsigned from = lane ^ static_cast<unsigned>(lane_mask);
    return from < (lane / w + 1) * w ? from : lane;
  });
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const auto w = static_cast<unsigned>(width);
  return emulation::shuffle("__shfl_up_sync", mask, value,
                            [=](unsigned lane) { return lane % w >= delta ? lane - delta : lane; });
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const auto w = static_cast<unsigned>(width);
  return emulation::shuffle("__shfl_down_sync", mask, value, [=](unsigned lane) {
    return lane % w + delta < w ? lane + delta : lane;
  });
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return emulation::ballot("__ballot_sync", mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return static_cast<int>(emulation::ballot("__any_sync", mask, predicate != 0) != 0);
}
inline int __all_sync(unsigned mask, int predicate) {
  return static_cast<int>(emulation::ballot("__all_sync", mask, predicate == 0) == 0);
}
inline unsigned __activemask() { return emulation::existing_lanes(); }
template <class T>
T __reduce_add_sync(unsigned mask, T value) {
  return emulation::warp_collective<T>(
      "__reduce_add_sync", value,
      [](const emulation::Lanes<T>& in, emulation::Lanes<T>& out) {
        T sum{};
        for (const T v : in) sum += v;
        out.fill(sum);
      },
      mask);
}
[[noreturn]] inline void __trap() { emulation::stop("a thread called __trap()"); }
