// SPDX-License-Identifier: Apache-2.0
// int8_chain.h: convolutions of few channels on integers, each with its 2x2 max-pool. Each image
// passes through all of them while its bytes are in L1. Used by a rewrite of compiled steps on
// integers (quant/integer/integer_chain.cpp).
// Read next  layers/conv2d/int8/cpu/int8_chain.cpp
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers/conv2d/algorithm.h"

namespace convscope {

// The name that is reported when the chain runs.
inline constexpr const char* kInt8Chain = "int8_chain";

// A chain for a batch. The tiling follows from the problems; prepare() supplies the weights.
// Planned for the current number of threads and the current instruction set.
class CONVSCOPE_API Int8Chain {
 public:
  // Plans a chain of `problems`: the first reads f32 images, the others u8; y is u8.
  explicit Int8Chain(const std::vector<Conv2dProblem>& problems);
  ~Int8Chain();
  Int8Chain(const Int8Chain&) = delete;
  Int8Chain& operator=(const Int8Chain&) = delete;
  // Returns "", or why a convolution followed by a 2x2 max-pool cannot be part of a chain.
  static std::string refusal(const Conv2dProblem& problem, bool first);

  // Returns the bytes of all stages: prepare() writes them, run() reads them; 64-byte aligned.
  std::size_t prepared_bytes() const;
  std::size_t workspace_bytes() const;
  // Prepares stage i from the codes of its weights, scales, bias and epilogue, not from x or y.
  void prepare(std::size_t i, const Conv2dForwardArgs& args, void* memory);
  // Computes y from images [N,C,H,W]; y: codes [N,K/16,P,Q,16] of the last max-pool.
  void run(const float* images, std::uint8_t* y, void* workspace) const;

 private:
  struct Stage;
  void run_image(const float* image, std::uint8_t* own, std::uint8_t* y) const;

  std::vector<std::unique_ptr<Stage>> stages_;
  std::size_t quad_bytes_ = 0, line_bytes_ = 0, own_bytes_ = 0;  // of one thread
};

}  // namespace convscope
