// SPDX-License-Identifier: Apache-2.0
// parallel.h: loops over independent chunks on OpenMP threads with dynamic scheduling.
//
// Rule: where chunks compute partial sums of one result, the chunks depend only on the problem and
// the cache sizes, and the partial sums are added in chunk order. So results are bit-identical for
// any number of threads. Where each result is computed within one chunk, the chunks may depend on
// the number of threads.
#pragma once

#include <cstdint>
#include <type_traits>

#include "framework/export.h"
#include "framework/int_math.h"

namespace convscope {

// A reference to a function object, which must outlive the call. Never allocates.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT(google-explicit-constructor): a parameter type
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// Sets the number of threads of parallel loops; 0 means all cores this process may run on.
CONVSCOPE_API void set_num_threads(int threads);
CONVSCOPE_API int num_threads();

// Calls body(chunk, thread) once for each chunk in [0, chunks), with thread in [0, num_threads()).
// Everything runs in the calling thread if there is only one chunk or one thread, or inside another
// parallel loop. Rethrows an exception of a body in the caller after all threads have stopped.
CONVSCOPE_API void parallel_chunks(std::int64_t chunks, FunctionRef<void(std::int64_t, int)> body);

// Runs body() with a team of threads ready for its parallel loops. The team is forked once before
// body() and joined once after it; each loop inside only wakes the threads. Use it for a phase of
// many short loops, such as the forward pass of a compiled step. Waiting threads consume processor
// time (they yield), so avoid slow work inside. Inside a parallel loop or another region,
// parallel_region() only calls body().
CONVSCOPE_API void parallel_region(FunctionRef<void()> body);

// Divides [0, count) into ranges of at most `grain` indices, and calls body(begin, end) for each.
template <class F>
void parallel_for(std::int64_t count, std::int64_t grain, F&& body) {
  const std::int64_t chunks = count == 0 ? 0 : ceil_div(count, grain);
  parallel_chunks(chunks, [&](std::int64_t chunk, int) {
    const std::int64_t begin = chunk * grain;
    body(begin, count - begin < grain ? count : begin + grain);
  });
}

// Makes parallel loops with little work run in the calling thread only. Waking a thread and waiting
// for it takes 1 us when the thread spins and 10 us or more when it sleeps. A loop does not know
// the duration of its chunks, but its caller often does:
//
//   const ShortLoops here(problem.nominal_flops());
//   ...                       // parallel loops with few operations stay in this thread
//
// Chunks and their order do not change, so results are bit-identical.
class CONVSCOPE_API ShortLoops {
 public:
  // Takes the approximate number of floating-point operations of all loops in the scope together.
  explicit ShortLoops(double flops);
  ~ShortLoops();
  ShortLoops(const ShortLoops&) = delete;
  ShortLoops& operator=(const ShortLoops&) = delete;

 private:
  const bool before_;
};

// A loop with at least this number of operations uses several threads. Inside parallel_region(),
// where the threads are already awake, a tenth of this number is enough. Tests that compare thread
// counts on small problems set the limit to 0.
inline constexpr double kFlopsWorthThreads = 5e5;
CONVSCOPE_API void set_flops_worth_threads(double flops);

}  // namespace convscope
