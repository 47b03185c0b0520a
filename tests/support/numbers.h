// SPDX-License-Identifier: Apache-2.0
// numbers.h: random tensors, comparisons that report where tensors differ, and a loop over the
// settings that may affect a kernel's bits: instruction sets and thread counts.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "framework/autograd/variable.h"
#include "framework/parallel.h"
#include "framework/random.h"
#include "framework/simd/cpu_isa.h"

namespace convscope::testing {

inline Tensor normal(const Shape& shape, DType dtype = DType::f64, std::uint64_t seed = 1) {
  Tensor out = Tensor::empty(shape, DType::f32);
  Generator random(seed, 77);
  for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = random.normal();
  return out.to(dtype);
}

inline Tensor uniform(const Shape& shape, float low, float high, DType dtype = DType::f64,
                      std::uint64_t seed = 1) {
  Tensor out = Tensor::empty(shape, DType::f32);
  Generator random(seed, 78);
  for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = random.uniform(low, high);
  return out.to(dtype);
}

inline Variable leaf(const Tensor& value) { return Variable(value, /*requires_grad=*/true); }

// Checks |got - want| <= absolute + relative |want| for every element; NaN matches only NaN.
inline ::testing::AssertionResult near(const Tensor& got, const Tensor& want, double absolute,
                                       double relative) {
  if (got.shape() != want.shape()) {
    return ::testing::AssertionFailure() << "shapes " << got.str() << " and " << want.str();
  }
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    const double a = got.at(i);
    const double b = want.at(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b || std::abs(a - b) <= absolute + relative * std::abs(b)) continue;
    return ::testing::AssertionFailure()
           << "at index " << i << " of " << want.str() << ": got " << a << ", expected " << b;
  }
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult same_bits(const Tensor& got, const Tensor& want) {
  if (got.shape() != want.shape() || got.dtype() != want.dtype()) {
    return ::testing::AssertionFailure() << got.str() << " and " << want.str();
  }
  if (got.numel() == 0 || std::memcmp(got.raw_data(), want.raw_data(),
                                      static_cast<std::size_t>(got.size_bytes())) == 0) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "bits differ in " << want.str();
}

// Restores the instruction set and the number of threads at its end. Until then, even short loops
// use all threads.
class MachineScope {
 public:
  MachineScope() : isa_(current_isa()), threads_(num_threads()) { set_flops_worth_threads(0); }
  ~MachineScope() {
    set_flops_worth_threads(kFlopsWorthThreads);
    set_isa(isa_);
    set_num_threads(threads_);
  }
  MachineScope(const MachineScope&) = delete;
  MachineScope& operator=(const MachineScope&) = delete;

 private:
  Isa isa_;
  int threads_;
};

// Runs compute() -> Tensor with each instruction set of this CPU and passes each result to check().
// Runs with 1 and 2 threads must have the same bits.
template <class Compute, class Check>
void on_every_machine(Compute&& compute, Check&& check) {
  const MachineScope scope;
  for (int i = 0; i < kIsaCount; ++i) {
    const Isa isa = static_cast<Isa>(i);
    if (!supports_isa(isa)) continue;
    SCOPED_TRACE(std::string(name_of(isa)));
    set_isa(isa);
    set_num_threads(1);
    const Tensor one = compute();
    check(one);
    set_num_threads(2);
    EXPECT_TRUE(same_bits(compute(), one)) << "1 and 2 threads";
  }
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace convscope::testing
