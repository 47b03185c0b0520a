// SPDX-License-Identifier: Apache-2.0
// workspace_test.cpp: tests bounds on the workspace of algorithms, also for extreme strides,
// dilations and paddings. The test allocates no workspace.
#include <gtest/gtest.h>

#include "experiments/check/matrix/integer_case.h"
#include "layers/conv2d/algorithm.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

// These problems have few operations and small operands, but strides, dilations and paddings up to
// the range of int32.
constexpr const char* kExtremes[] = {
    "n=2,c=8,h=5,w=7,k=16,r=3,s=3,stride=1x2147483647",
    "n=2,c=8,h=5,w=7,k=16,r=3,s=3,stride=2147483647x1,pad=1",
    "n=2,c=8,h=5,w=7,k=16,r=3,s=3,stride=2147483647,pad=1",
    "n=2,c=8,h=5,w=7,k=16,r=3,s=3,stride=2147483646x2147483647,pad=1",
    "n=2,c=8,h=5,w=7,k=16,stride=1x2147483647",
    "n=2,c=8,h=5,w=7,k=16,stride=1000000x1000000",
    "n=2,c=8,h=5,w=7,k=16,r=1,s=3,dilation=2147483647x1,pad=0x1",
    "n=2,c=8,h=5,w=7,k=16,r=3,s=1,dilation=1x2147483647,pad=1x0",
    "n=2,c=8,h=5,w=7,k=16,r=3,s=3,dilation=1000000,pad=1000000",
    "n=2,c=8,h=5,w=7,k=16,r=3,s=3,dilation=1x1000000,pad=1x1000000",
    "n=2,c=8,h=5,w=7,k=16,r=3,s=3,stride=1000000,pad=1000000",
    "n=2,c=8,h=5,w=7,k=16,r=3,s=3,stride=1x1000000,pad=1x1000000",
    "n=2,c=8,h=5,w=7,k=16,r=3,s=3,stride=1000000x1,pad=1000000x1",
    "n=2,c=8,h=5,w=7,k=16,r=3,s=3,stride=500000,pad=0x1000000x0x1000000",
    "n=2,c=8,h=5,w=7,k=16,r=3,s=3,stride=3000000,dilation=1000000,pad=4000000",
    "n=2,c=8,h=5,w=7,k=16,stride=700000,pad=1000000",
    "n=1,c=1,h=1,w=1,k=1,r=3,s=3,pad=1,stride=2147483647",
    "n=1,c=1,h=1,w=1,k=1,r=1,s=1,dilation=2147483647",
    "n=2,c=16,h=5,w=7,k=16,r=3,s=3,stride=1x2147483647,groups=16",
    "n=2,c=16,h=5,w=7,k=16,r=3,s=3,dilation=1000000,pad=1000000,groups=16",
    "n=2,c=16,h=5,w=7,k=16,r=3,s=3,stride=1000000,pad=1000000,groups=16",
    "n=2,c=16,h=5,w=7,k=16,r=3,s=3,stride=1000000,pad=1000000,groups=4",
    "n=20,c=2,h=5,w=7,k=4,r=3,s=3,stride=1x2147483647",
    "n=20,c=2,h=5,w=7,k=4,r=3,s=3,stride=1000000,pad=1000000",
    "n=20,c=2,h=5,w=7,k=4,r=3,s=3,dilation=1000000,pad=1000000",
    "n=2,c=64,h=9,w=9,k=64,r=9,s=9,stride=1x2147483647,pad=4",
};

// Bounds on the workspace. The part for the threads does not depend on the size of the operands:
// each thread may have panels of up to some hundred KiB.
constexpr double kForThreads = 48 << 20;
constexpr double kTimesOperands = 64;

// Returns the problem in all types and layouts that an algorithm might accept.
std::vector<Conv2dProblem> forms(const Conv2dProblem& dense) {
  std::vector<Conv2dProblem> out;
  for (const ImageLayouts& layout : kImageLayouts) {
    out.push_back(dense);
    out.back().layout = layout;
  }
  out.push_back(dense);
  out.back().weight_format = {.kind = WeightFormat::Kind::block_sparse,
                              .block_rows = 1,
                              .block_columns = 1,
                              .blocks = dense.w_shape().numel() / 2};
  for (const char* types : {"u8:i8:i32:u8", "f32:i8:i32:u8"}) {
    Conv2dProblem codes = matrix::with_types(dense, types);
    out.push_back(codes);
    codes.weight_format = out[out.size() - 2].weight_format;
    out.push_back(codes);
  }
  return out;
}

void check_all(DeviceType device) {
  int asked = 0;
  for (const char* const text : kExtremes) {
    const Conv2dProblem dense = Conv2dProblem::parse(text);
    dense.check();
    for (const Conv2dProblem& problem : forms(dense)) {
      for (const auto& [name, algorithm] : conv2d_algorithms(device).entries()) {
        for (const Direction direction : kDirections) {
          if (!support_of(algorithm, problem, direction).yes) continue;
          ++asked;
          const auto bytes = static_cast<double>(algorithm.workspace_bytes(problem, direction)) +
                             static_cast<double>(algorithm.prepared_size(problem, direction));
          EXPECT_LE(bytes, kForThreads + kTimesOperands * problem.nominal_bytes())
              << name << " " << name_of(direction) << " of " << problem.text();
        }
      }
    }
  }
  EXPECT_GT(asked, 300);
}

TEST(Conv2dWorkspace, IsBoundedByTheOperandsForExtremeGeometry) {
  const testing::MachineScope scope;
  set_num_threads(2);
  for (int i = 0; i < kIsaCount; ++i) {
    if (!supports_isa(static_cast<Isa>(i))) continue;
    set_isa(static_cast<Isa>(i));
    check_all(DeviceType::cpu);
  }
}

// If y has only one row or column, a stride beyond the image must not increase the workspace.
TEST(Conv2dWorkspace, DirectTakesStridesPastTheImage) {
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("direct");
  for (const Direction direction : kDirections) {
    const auto problem =
        Conv2dProblem::parse("n=2,c=8,h=5,w=7,k=16,r=3,s=3,stride=2147483647,pad=1");
    EXPECT_TRUE(support_of(algorithm, problem, direction).yes) << name_of(direction);
    EXPECT_LT(algorithm.workspace_bytes(problem, direction), std::size_t{1} << 21);
  }
}

}  // namespace
}  // namespace convscope
