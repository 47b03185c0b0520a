// SPDX-License-Identifier: Apache-2.0
// parallel.h: loops over independent chunks on OpenMP threads, handed out dynamically.
//
// House rule: how a sum is cut into chunks depends on the problem and the machine's caches only,
// never on the number of threads, and sums over chunks are taken in chunk order. So results have
// the same bits with any number of threads. A cut that splits no sum may follow the threads.
#pragma once

#include <cstdint>
#include <type_traits>

#include "framework/export.h"
#include "framework/int_math.h"

namespace convscope {

// A reference to a callable that outlives the call; never allocates.
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

// Threads that parallel loops use; 0 resets to the number of cores this process may run on.
CONVSCOPE_API void set_num_threads(int threads);
CONVSCOPE_API int num_threads();

// Calls body(chunk, thread) once for each chunk in [0, chunks), thread in [0, num_threads()).
// Runs in the calling thread when one chunk or one thread is there, or when called from inside a
// parallel loop. An exception in a body is rethrown in the caller after all threads have stopped.
CONVSCOPE_API void parallel_chunks(std::int64_t chunks, FunctionRef<void(std::int64_t, int)> body);

// Runs body() with the threads of its parallel loops kept at hand: they are forked once, before,
// and joined once, after; in between each loop only wakes them. For a phase of many short loops,
// such as the forward pass of a planned step. While they wait they take processor time (they yield
// it to others), so nothing slow belongs in here. Inside a parallel loop or another region: body()
// alone.
CONVSCOPE_API void parallel_region(FunctionRef<void()> body);

// Calls body(begin, end) over [0, count) in pieces of at most `grain`.
template <class F>
void parallel_for(std::int64_t count, std::int64_t grain, F&& body) {
  const std::int64_t chunks = count == 0 ? 0 : ceil_div(count, grain);
  parallel_chunks(chunks, [&](std::int64_t chunk, int) {
    const std::int64_t begin = chunk * grain;
    body(begin, count - begin < grain ? count : begin + grain);
  });
}

}  // namespace convscope
