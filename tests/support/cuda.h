// SPDX-License-Identifier: Apache-2.0
// cuda.h: helpers for tests on `device cuda`, which is a GPU, or its emulation if
// CONVSCOPE_CUDA_LIBRARY names the emulation.
//
//   using ReluOnCuda = testing::CudaTest;
//   TEST_F(ReluOnCuda, ...) { Tensor x = y.to(cuda()); ... }
//
// Without a GPU or an emulation, each case is skipped with the reason. The names of these test
// files end with _cuda_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "framework/device.h"
#include "framework/tensor.h"

namespace convscope::testing {

inline constexpr Device cuda() { return {DeviceType::cuda, 0}; }

// The emulation computes about ten million products per second, so its problems must be small.
inline bool is_emulated() {
  static const bool emulated =
      backend_of(cuda()).facts(0).name.find("emulated") != std::string::npos;
  return emulated;
}

// Under the sanitizers, the emulation is several times slower.
inline constexpr bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return true;
#endif
#endif
  return false;
}

// Returns whether a test runs all entries of a long list of problems: on a GPU, because each change
// of device code must pass on a GPU (repo_gpu_record), and on the emulation with
// CONVSCOPE_TEST_LISTS=long (.ci/nightly).
inline bool takes_all_entries() {
  const char* const lists = std::getenv("CONVSCOPE_TEST_LISTS");
  return !is_emulated() || (lists != nullptr && std::strcmp(lists, "long") == 0);
}
// Returns whether a test runs entry `i` of a long list of problems: all, or every third.
inline bool takes_entry(std::size_t i) { return takes_all_entries() || i % 3 == 0; }

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceStatus& status = status_of(DeviceType::cuda);
    if (!status.available) GTEST_SKIP() << "device cuda: " << status.reason;
  }
};

// Returns the elements of a tensor on any device.
template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  const Tensor host = tensor.to(Device{});
  const T* data = host.data<T>();
  return std::vector<T>(data, data + host.numel());
}

}  // namespace convscope::testing
