// SPDX-License-Identifier: Apache-2.0
// cuda.h: tests on `device cuda`: a GPU, or its emulation when CONVSCOPE_CUDA_LIBRARY names it.
//
//   using ReluOnCuda = testing::CudaTest;
//   TEST_F(ReluOnCuda, ...) { Tensor x = y.to(cuda()); ... }
//
// Without either, each case is skipped with the reason. The file's name ends in _cuda_test.cpp.
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

// Problems on the emulation must be small: it computes about ten million products per second.
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

// Returns true if entry `i` of a long list of problems is tested. A GPU tests all entries, because
// each change of device code must pass on a GPU (repo_gpu_record). The emulation tests every third
// entry, or all entries with CONVSCOPE_TEST_LISTS=long (.ci/nightly).
inline bool takes_entry(std::size_t i) {
  const char* const lists = std::getenv("CONVSCOPE_TEST_LISTS");
  return !is_emulated() || (lists != nullptr && std::strcmp(lists, "long") == 0) || i % 3 == 0;
}

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
