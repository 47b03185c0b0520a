// SPDX-License-Identifier: Apache-2.0
// kernel_runs.cpp: counts the kernels that really ran.
#include "layers/dispatch/kernel_runs.h"

#include <mutex>

#include "framework/check.h"

namespace convscope {
namespace {

std::mutex mutex;
std::map<KernelRun, std::int64_t> counts;  // guarded by the mutex

}  // namespace

std::atomic<bool> kernels_are_counted{false};

void count_kernel(std::string_view kernel, std::string_view direction, const std::string& problem) {
  const std::scoped_lock lock(mutex);
  ++counts[{std::string(kernel), std::string(direction), problem}];
}

KernelCounter::KernelCounter() {
  const bool taken = kernels_are_counted.exchange(true);
  CONVSCOPE_CHECK(!taken, "kernel counter", "expected one counter at a time, got a second one");
  forget();
}

KernelCounter::~KernelCounter() { kernels_are_counted.store(false); }

std::map<KernelRun, std::int64_t> KernelCounter::runs() const {
  const std::scoped_lock lock(mutex);
  return counts;
}

void KernelCounter::forget() {
  const std::scoped_lock lock(mutex);
  counts.clear();
}

}  // namespace convscope
