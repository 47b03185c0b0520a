// SPDX-License-Identifier: Apache-2.0
// steady_step_test.cpp: tests that a training step allocates no system memory once all shapes have
// occurred. Counts calls of operator new and blocks that the device allocator requests.
#include <atomic>
#include <cstdlib>
#include <new>

#include "experiments/config/build.h"
#include "framework/memory/memory.h"
#include "tests/experiments/training_fixture.h"

// Sanitizers replace operator new and disable the pool of small objects, so the test is skipped
// under them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONVSCOPE_COUNTS_NEW 0
#else
#define CONVSCOPE_COUNTS_NEW 1
#endif

namespace {
std::atomic<bool> counting{false};
std::atomic<long> news{0};
}  // namespace

#if CONVSCOPE_COUNTS_NEW
namespace {
void* counted(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) {
    news.fetch_add(1, std::memory_order_relaxed);
    // CONVSCOPE_TRAP_NEW=1 stops here, so that a debugger shows the caller.
    static const bool trap = std::getenv("CONVSCOPE_TRAP_NEW") != nullptr;
    if (trap) __builtin_trap();
  }
  void* block =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes == 0 ? 1 : bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted(bytes, 0); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return counted(bytes, 0); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete[](void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete[](void* block, std::size_t) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete[](void* block, std::align_val_t) noexcept {
  std::free(block);
}
[[gnu::noinline]] void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  std::free(block);
}
[[gnu::noinline]] void operator delete[](void* block, std::size_t, std::align_val_t) noexcept {
  std::free(block);
}
#endif

namespace convscope::testing {
namespace {

struct Counts {
  long news = 0;
  std::int64_t system_allocations = 0;
};

// Counts allocations in the second epoch; every shape has occurred in the first epoch.
Counts count_steady_steps(TrainingSetup& setup) {
  TrainStep step(*setup.model, *setup.optimizer, setup.clip_norm, setup.device);
  Batch batch;
  const auto epoch = [&](std::int64_t number) {
    setup.train->start_epoch(number);
    std::int64_t at = 0;
    while (setup.train->next(batch)) {
      const double lr = setup.learning_rate(
          {.step = at++, .total_steps = 100, .steps_per_epoch = setup.train->batches_per_epoch()});
      step.run(batch, lr);
    }
  };
  epoch(0);
  epoch(1);
  const std::int64_t before = memory_stats(setup.device).system_allocations;
  setup.train->start_epoch(2);
  EXPECT_TRUE(setup.train->next(batch));  // the first one starts the reading ahead
  step.run(batch, 0.01);
  news = 0;
  counting = true;
  std::int64_t at = 1;
  while (setup.train->next(batch)) {
    const double lr = setup.learning_rate(
        {.step = at++, .total_steps = 100, .steps_per_epoch = setup.train->batches_per_epoch()});
    step.run(batch, lr);
  }
  counting = false;
  return {news.load(), memory_stats(setup.device).system_allocations - before};
}

constexpr bool kSanitized = CONVSCOPE_COUNTS_NEW == 0;

TEST(SteadyStep, the_counter_counts) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer build has its own operator new";
  news = 0;
  counting = true;
  ::operator delete(::operator new(1));  // a new-expression may be optimised away
  counting = false;
  EXPECT_EQ(news.load(), 1);
}

// The network reads its images, so it runs eagerly. Its operations are small objects of the host.
TEST(SteadyStep, asks_for_no_memory_for_tensors_when_it_runs_eagerly) {
  TrainingSetup setup = small_setup(1);
  setup.clip_norm = 1.0;
  EXPECT_EQ(count_steady_steps(setup).system_allocations, 0);
}

TEST(SteadyStep, allocates_nothing_with_lenet5_at_batch_64) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer build does not pool small objects";
  for (const char* optimizer : {"sgd", "adam"}) {
    const std::string yaml =
        cat("name: steady\n"
            "data: {set: synthetic_digits, train_size: 150, test_size: 10, batch_size: 64}\n"
            "model: {type: lenet5}\n"
            "optim: {type: ",
            optimizer, ", lr: 0.01, clip_grad_norm: 1.0, schedule: {type: cosine}}\n");
    TrainingSetup setup = setup_training(parse_config_text(yaml, "steady.yaml"));
    const Counts counts = count_steady_steps(setup);
    EXPECT_EQ(counts.news, 0) << optimizer;
    EXPECT_EQ(counts.system_allocations, 0) << optimizer;
  }
}

TEST(SteadyStep, allocates_nothing_with_lenet5_before_and_after_quantisation_begins) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer build does not pool small objects";
  for (const char* optimizer : {"sgd", "adam"}) {
    for (const bool begins : {false, true}) {
      const std::string yaml =
          cat("name: steady\n"
              "data: {set: synthetic_digits, train_size: 150, test_size: 10, batch_size: 64}\n"
              "model: {type: lenet5}\n"
              "quant: {w_bits: 4, a_bits: 4, per_channel: true, begin: 0.5}\n"
              "train: {epochs: 2}\n"
              "optim: {type: ",
              optimizer, ", lr: 0.01, clip_grad_norm: 1.0}\n");
      TrainingSetup setup = setup_training(parse_config_text(yaml, "steady.yaml"));
      if (begins) {
        for (const QuantizedTensor& tensor : quantized_tensors(*setup.model)) {
          tensor.quantizer->begin();
        }
      }
      const Counts counts = count_steady_steps(setup);
      EXPECT_EQ(counts.news, 0) << optimizer << begins;
      EXPECT_EQ(counts.system_allocations, 0) << optimizer << begins;
    }
  }
}

}  // namespace
}  // namespace convscope::testing
