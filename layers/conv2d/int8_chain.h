// SPDX-License-Identifier: Apache-2.0
// int8_chain.h: runs consecutive int8 convolutions of few channels, each with a 2x2 max-pool. An
// image passes through all of them while its codes are in L1. A rewrite of compiled integer steps
// uses this chain (fusions/int8_chain.cpp).
// Read next  layers/conv2d/int8/int8_chain/cpu/int8_chain.cpp
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers/conv2d/algorithm.h"

namespace convscope {

// The name that is reported when the chain runs.
inline constexpr const char* kInt8Chain = "int8_chain";

// A chain for one batch size, planned for the current number of threads and the current instruction
// set. The tiling follows from the problems; prepare() supplies the weights.
class CONVSCOPE_API Int8Chain {
 public:
  // Plans a chain of `problems`. The first reads f32 images, the others u8 codes; all write u8
  // codes.
  explicit Int8Chain(const std::vector<Conv2dProblem>& problems);
  ~Int8Chain();
  Int8Chain(const Int8Chain&) = delete;
  Int8Chain& operator=(const Int8Chain&) = delete;
  // Returns why a convolution followed by a 2x2 max-pool cannot be part of a chain, or "".
  static std::string refusal(const Conv2dProblem& problem, bool first);

  // Returns the size in bytes of the 64-byte aligned buffer that prepare() writes and run() reads.
  std::size_t prepared_bytes() const;
  std::size_t workspace_bytes() const;
  // Writes the data of stage i to `memory`: the codes of the weights, scales, bias and epilogue
  // from `args`. Ignores args.x and args.y.
  void prepare(std::size_t i, const Conv2dForwardArgs& args, void* memory);
  // Computes y, the codes [N,K/16,P,Q,16] of the last max-pool, from f32 images [N,C,H,W].
  void run(const float* images, std::uint8_t* y, void* workspace) const;

 private:
  struct Stage;
  void run_image(const float* image, std::uint8_t* own, std::uint8_t* y) const;

  std::vector<std::unique_ptr<Stage>> stages_;
  std::size_t quad_bytes_ = 0, line_bytes_ = 0, own_bytes_ = 0;  // of one thread's buffers
};

}  // namespace convscope
