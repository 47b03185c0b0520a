// SPDX-License-Identifier: Apache-2.0
// check_results.cpp: what check:a,b has found in this process.
#include "layers/dispatch/check_results.h"

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "framework/check.h"

namespace convscope {
namespace {

std::mutex results_mutex;
std::vector<CheckResult> results_so_far;  // guarded by the mutex

// Returns the difference divided by its bound. A bound below 0 means that no elements were compared
// yet. Other bounds are above 0, except for an output of zeros.
double share_of_bound(const Difference& one) {
  if (one.bound < 0) return -1;
  return one.bound > 0 ? one.difference / one.bound : one.difference;
}

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

}  // namespace

void Difference::take_worse(const Difference& other) {
  if (share_of_bound(other) > share_of_bound(*this)) *this = other;
}

std::string CheckResult::text() const {
  return cat(layer, layer.empty() ? "" : " ", name_of(direction), ": ", first, " against ", second,
             ", largest difference ", short_number(worst.difference), " of ",
             short_number(worst.value), " (bound ", short_number(worst.bound), "), ", calls,
             calls == 1 ? " call" : " calls");
}

void note_check(const CheckResult& call) {
  const std::scoped_lock lock(results_mutex);
  const auto same = [&](const CheckResult& one) {
    return one.layer == call.layer && one.direction == call.direction && one.first == call.first &&
           one.second == call.second;
  };
  const auto at = std::ranges::find_if(results_so_far, same);
  if (at == results_so_far.end()) {
    results_so_far.push_back(call);
    return;
  }
  at->calls += call.calls;
  at->worst.take_worse(call.worst);
}

std::vector<CheckResult> check_results() {
  const std::scoped_lock lock(results_mutex);
  return results_so_far;
}

void forget_check_results() {
  const std::scoped_lock lock(results_mutex);
  results_so_far.clear();
}

}  // namespace convscope
