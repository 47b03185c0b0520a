// SPDX-License-Identifier: Apache-2.0
// algorithm_state.cpp: checks that the result of a call depends only on its arguments.
#include "experiments/check/matrix/algorithm_state.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "experiments/check/matrix/check_problems.h"
#include "experiments/check/matrix/convolution_case.h"
#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "framework/random.h"
#include "layers/dispatch/run.h"

namespace convscope::matrix {
namespace {

constexpr int kCalls = 40;
constexpr std::size_t kAround = 64;  // NaN elements before and after each array
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Floats = std::vector<float>;

// An array at a fixed address, 64-byte aligned.
class Array {
 public:
  explicit Array(std::int64_t count)
      : count_(static_cast<std::size_t>(count)),
        memory_({}, (count_ + 2 * kAround) * sizeof(float)) {
    Floats nothing(count_ + 2 * kAround, kNaN);
    std::memcpy(memory_.data(), nothing.data(), nothing.size() * sizeof(float));
  }
  float* data() const { return static_cast<float*>(memory_.data()) + kAround; }
  void fill(std::uint64_t stream) const {
    Generator random(23, stream);
    for (std::size_t i = 0; i < count_; ++i) data()[i] = random.normal();
  }
  void poison() const { std::fill_n(data(), count_, kNaN); }
  void copy(const Array& from) const { std::memcpy(data(), from.data(), count_ * sizeof(float)); }
  Floats values() const { return {data(), data() + count_}; }

 private:
  std::size_t count_;
  Workspace memory_;
};

// The arrays of a call of one problem and direction.
struct Place {
  Place(const Conv2dAlgorithm& algorithm, const Conv2dProblem& z, Direction d)
      : problem(z),
        direction(d),
        first((d == Direction::backward_data ? z.y_shape() : z.x_shape()).numel()),
        second((d == Direction::backward_weight ? z.y_shape() : z.w_shape()).numel()),
        out(output_numel(z, d)),
        workspace({}, algorithm.workspace_bytes(z, d)),
        prepared({}, algorithm.prepared_size(z, d)) {}

  // Runs the algorithm on the current inputs. Prepares the weights in each call, as in training.
  Floats call(const Conv2dAlgorithm& algorithm, bool poisons = true) const {
    if (poisons) out.poison();
    if (workspace.bytes() > 0) std::memset(workspace.data(), 0xff, workspace.bytes());
    const void* made = nullptr;
    if (prepared.bytes() > 0) {
      std::memset(prepared.data(), 0xff, prepared.bytes());
      algorithm.prepare_weights(
          {problem, direction, second.data(), prepared.data(), workspace.data()});
      made = prepared.data();
    }
    if (direction == Direction::forward) {
      algorithm.forward(
          {problem, first.data(), second.data(), nullptr, out.data(), workspace.data(), {}, made});
    } else if (direction == Direction::backward_data) {
      algorithm.backward_data(
          {problem, first.data(), second.data(), out.data(), workspace.data(), made});
    } else {
      algorithm.backward_weight(
          {problem, first.data(), second.data(), out.data(), false, workspace.data()});
    }
    return out.values();
  }

  const Conv2dProblem problem;
  const Direction direction;
  const Array first, second, out;
  const Workspace workspace, prepared;
};

bool same(const Floats& a, const Floats& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Returns the result of a call on new arrays, which hold copies of the inputs of `like`.
Floats fresh(const Conv2dAlgorithm& algorithm, const Place& like) {
  const Place other(algorithm, like.problem, like.direction);
  other.first.copy(like.first);
  other.second.copy(like.second);
  return other.call(algorithm);
}

std::string fault_of(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                     const Conv2dProblem& between, Direction direction, const char* y) {
  const Place place(algorithm, problem, direction);
  place.first.fill(1);
  place.second.fill(2);
  const Floats once = place.call(algorithm);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  if (!same(once, place.out.values())) {
    return cat(y, " still changes after the call has returned: a thread that it started goes on");
  }
  for (int i = 2; i <= kCalls; ++i) {
    if (same(place.call(algorithm), once)) continue;
    return cat(y, " of call ", i,
               " with the same numbers differs: something is kept between calls (a static "
               "variable, a counter, a cache)");
  }
  const char* const kept[] = {"x", "w"};
  const Array* const inputs[] = {&place.first, &place.second};
  for (int i = 0; i < 2; ++i) {
    inputs[i]->fill(static_cast<std::uint64_t>(i) + 5);
    const Floats stale = place.call(algorithm, /*poisons=*/false);
    const Floats now = place.call(algorithm);
    const Floats expected = fresh(algorithm, place);
    if (same(now, expected) && same(stale, expected)) continue;
    const char* const name = direction == Direction::backward_weight && i == 1 ? "dy"
                             : direction == Direction::backward_data && i == 0 ? "dy"
                                                                               : kept[i];
    return cat(y, " is not updated when the numbers of ", name, " change in place",
               same(now, expected) ? cat(" and ", y, " still holds the last result") : "",
               ": a result (or prepared weights) of an earlier call is cached by its address");
  }
  place.first.fill(1);
  place.second.fill(2);
  const Place other(algorithm, between, direction);
  other.first.fill(7);
  other.second.fill(8);
  other.call(algorithm);
  if (!same(place.call(algorithm), once)) {
    return cat(y,
               " depends on the problem that was computed before: something is kept between "
               "calls (a static variable, memory of an earlier size)");
  }
  return "";
}

}  // namespace

std::string fault_of_state(const Conv2dAlgorithm& algorithm, Direction direction) {
  if (!algorithm.deterministic || !algorithm.offers(direction)) return "";
  const char* const y = direction == Direction::forward         ? "y"
                        : direction == Direction::backward_data ? "dx"
                                                                : "dw";
  const int threads = num_threads();
  set_num_threads(1);
  std::string out;
  const std::vector<Conv2dProblem> two = small_problems(2), three = small_problems(3);
  for (std::size_t i = 0; i < two.size() && out.empty(); ++i) {
    if (!support_of(algorithm, two[i], direction).yes ||
        !support_of(algorithm, three[i], direction).yes) {
      continue;
    }
    out = fault_of(algorithm, two[i], three[i], direction, y);
    if (!out.empty()) out = cat(out, " (", name_of(direction), " of ", two[i].text(), ")");
  }
  set_num_threads(threads);
  return out;
}

}  // namespace convscope::matrix
