// SPDX-License-Identifier: Apache-2.0
#include "experiments/bench/contender.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "experiments/bench/interleave.h"
#include "framework/parallel.h"
#include "framework/random.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {
namespace {

// Normal numbers; the same for any number of threads.
Tensor random_tensor(const Shape& shape, std::uint64_t stream) {
  Tensor out = Tensor::empty(shape);
  float* const values = out.data<float>();
  constexpr std::int64_t kChunk = 1 << 15;
  parallel_for(out.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    Generator random(stream, static_cast<std::uint64_t>(begin / kChunk));
    for (std::int64_t i = begin; i < end; ++i) values[i] = random.normal();
  });
  return out;
}

// Half types: the numbers that they hold exactly, as f32.
Tensor random_tensor(const Shape& shape, std::uint64_t stream, DType dtype) {
  return random_tensor(shape, stream).to(dtype).to(DType::f32);
}

// What one rounding of a factor or of the result costs, relative to its size, in units of f32's eps:
// the cards' error_growth is stated for f32.
double rounding_factor(const Conv2dProblem& problem) {
  if (problem.dtype == DType::bf16) return 0x1p-7 / 0x1p-23;
  if (problem.dtype == DType::f16 || problem.math == MathMode::tf32) {
    return 0x1p-10 / 0x1p-23;
  }
  return 1;
}

double seconds_of(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Threads and instruction set as a contender wants them, and back.
class Switched {
 public:
  explicit Switched(const Switches& to) : isa_(current_isa()), threads_(num_threads()) {
    set(to.isa < 0 ? isa_ : static_cast<Isa>(to.isa), to.threads == 0 ? threads_ : to.threads);
  }
  ~Switched() { set(isa_, threads_); }
  Switched(const Switched&) = delete;
  Switched& operator=(const Switched&) = delete;

 private:
  static void set(Isa isa, int threads) {
    if (isa != current_isa()) set_isa(isa);
    if (threads != num_threads()) set_num_threads(threads);
  }
  const Isa isa_;
  const int threads_;
};

}  // namespace

BenchData::BenchData(const Conv2dProblem& z, Direction direction, Device on)
    : device(on),
      first_host_(random_tensor(direction == Direction::backward_data ? z.y_shape() : z.x_shape(),
                                direction == Direction::backward_data ? 3 : 1, z.dtype)),
      second_host_(
          random_tensor(direction == Direction::backward_weight ? z.y_shape() : z.w_shape(),
                        direction == Direction::backward_weight ? 3 : 2, z.dtype)),
      output_host_(Tensor::empty(output_shape(z, direction))),
      first_(first_host_.to(z.dtype).to(on)),
      second_(second_host_.to(z.dtype).to(on)),
      output_(output_host_.to(z.dtype).to(on)) {}

const float* BenchData::result() const {
  if (!output_.shares_memory_with(output_host_)) {
    output_host_.copy_from(output_.to(Device{}).to(DType::f32));
  }
  return output_host_.data<float>();
}

Contender::Contender(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                     Direction direction, const BenchData& data, const Switches& switches)
    : algorithm_(algorithm),
      problem_(problem),
      direction_(direction),
      data_(data),
      backend_(backend_of(data.device)),
      switches_(switches) {
  const Switched here(switches_);  // sizes depend on threads and vectors
  workspace_ =
      std::make_unique<Workspace>(data.device, algorithm.workspace_bytes(problem, direction));
  prepared_ = std::make_unique<Workspace>(data.device, algorithm.prepared_size(problem, direction));
}

double Contender::check(const SampledReference& reference) {
  double seconds = 0;
  try {
    poison();
    prepare();
    seconds = seconds_of([&] { run(); });
    const auto verdict =
        reference.judge(data_.result(), algorithm_.error_growth * rounding_factor(problem_));
    error_ratio_ = verdict.error_ratio;
    wrong_ = verdict.wrong;
  } catch (const Error& error) {
    wrong_ = error.what();
  }
  return seconds;
}

const void* Contender::weights() const { return data_.second_.raw_data(); }

void Contender::prepare() const {
  if (prepared_bytes() == 0) return;
  const Switched here(switches_);
  algorithm_.prepare_weights(
      {problem_, direction_, weights(), prepared_->data(), workspace_->data()});
}

void Contender::call() const {
  const void* const first = data_.first_.raw_data();
  const void* const second = data_.second_.raw_data();
  void* const output = data_.output_.raw_data();
  void* const scratch = workspace_->data();
  const void* const prepared = prepared_bytes() == 0 ? nullptr : prepared_->data();
  if (direction_ == Direction::forward) {
    algorithm_.forward({.problem = problem_,
                        .x = first,
                        .w = second,
                        .b = nullptr,
                        .y = output,
                        .workspace = scratch,
                        .prepared = prepared});
  } else if (direction_ == Direction::backward_data) {
    algorithm_.backward_data({.problem = problem_,
                              .dy = first,
                              .w = second,
                              .dx = output,
                              .workspace = scratch,
                              .prepared = prepared});
  } else {
    algorithm_.backward_weight({.problem = problem_,
                                .x = first,
                                .dy = second,
                                .dw = output,
                                .accumulate = false,
                                .workspace = scratch});
  }
}

void Contender::queue() const {
  const Switched here(switches_);
  if (switches_.prepares_each_call) prepare();
  call();
}

void Contender::run() const {
  queue();
  backend_.synchronize(data_.device.index);
}

void Contender::poison() const {
  const auto fill = [&](void* pointer, std::size_t bytes) {
    if (bytes > 0) backend_.fill_bytes(data_.device.index, pointer, 0xff, bytes);
  };
  fill(data_.output_.raw_data(), static_cast<std::size_t>(data_.output_.size_bytes()));
  fill(workspace_->data(), workspace_->bytes());
  fill(prepared_->data(), prepared_->bytes());
}

// The first run is slow for reasons of its own, so a second one counts, unless it would take long.
TimedThing timed(const Contender& contender, double first_seconds, Device device) {
  const double estimate = first_seconds > 1
                              ? first_seconds
                              : std::min(first_seconds, seconds_of([&] { contender.run(); }));
  const auto on_cpu = [&contender] { contender.run(); };
  const auto on_device = [&contender] { contender.queue(); };
  return {.run = device.type == DeviceType::cpu ? std::function<void()>(on_cpu)
                                                : std::function<void()>(on_device),
          .estimate_seconds = estimate,
          .seconds = {}};
}

}  // namespace convscope
