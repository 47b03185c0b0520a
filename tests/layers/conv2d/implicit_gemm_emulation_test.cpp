// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_emulation_test.cpp: compares two versions of the lesson on implicit_gemm: the CPU
// version, which can be watched, and the GPU version. In both, each thread must load the same
// numbers into shared memory (program test_emulation).
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <vector>

#include "framework/cuda/emulation/runtime.h"
#include "layers/conv2d/shared/lesson.h"
#pragma GCC diagnostic push  // warnings that nvcc does not print
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "layers/conv2d/implicit_gemm/implicit_gemm_lesson_cuda.cu"
#pragma GCC diagnostic pop

namespace convscope {
namespace {

constexpr Index kThreads = kTile * kTile;

// The elements of the matrices a and b that each thread stored in shared memory in each step of the
// loop over the K dimension. Elements outside of the matrices are 0.
struct Loads {
  std::vector<float> a, b;
  void resize(Index rounds) {
    a.assign(static_cast<std::size_t>(rounds * kThreads), 0);
    b = a;
  }
};

// One of the lesson's three products, which reports its reads.
template <class Product>
struct Told : Product {
  float* loads_of_a;
  float* loads_of_b;
  __device__ Index place(Index d) const {
    const Index block =
        (Index{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + Index{blockIdx.x};
    const Index rounds = ceil_div(this->depth(), Index{kTile});
    return (block * rounds + d / kTile) * kThreads + Index{threadIdx.y} * kTile + threadIdx.x;
  }
  __device__ float a(Index g, Index row, Index d) const {
    return loads_of_a[place(d)] = Product::a(g, row, d);
  }
  __device__ float b(Index g, Index d, Index column) const {
    return loads_of_b[place(d)] = Product::b(g, d, column);
  }
};

template <class Product>
Loads loads_on_gpu(const Product& product) {
  const Index blocks = ceil_div(product.rows(), Index{kTile}) *
                       ceil_div(product.columns(), Index{kTile}) * product.z.groups;
  Loads out;
  out.resize(blocks * ceil_div(product.depth(), Index{kTile}));
  run(Told<Product>{product, out.a.data(), out.b.data()});
  CONVSCOPE_CUDA(cudaStreamSynchronize(cuda_stream()));
  return out;
}

Loads loads_on_cpu(const Recorder& recorder) {
  std::vector<Loads> rounds;
  for (const Recorder::Event& event : recorder.events()) {
    const auto which = static_cast<std::size_t>(event.which);
    if (event.kind == Recorder::Kind::step &&
        recorder.steps()[which].starts_with("each thread l")) {
      rounds.emplace_back().resize(1);
    }
    if (event.kind != Recorder::Kind::write) continue;
    const Recorder::Array& array = recorder.arrays()[which];
    if (array.lies != Recorder::Lies::in_shared_memory) continue;
    auto& tile = array.name == "a" ? rounds.back().a : rounds.back().b;
    tile[static_cast<std::size_t>(event.index)] = static_cast<float>(event.value);
  }
  Loads out;
  for (const Loads& round : rounds) {
    out.a.insert(out.a.end(), round.a.begin(), round.a.end());
    out.b.insert(out.b.end(), round.b.begin(), round.b.end());
  }
  return out;
}

// Returns operands whose numbers are all different, so that a number identifies the element that
// was read.
Operands counted_operands(const Conv2dProblem& z, Direction direction) {
  Operands out = random_operands(z.operands(direction), Device{});
  float next = 1;
  for (Operand* operand : {&out.in[0], &out.in[1]}) {
    float* const first = operand->values.data<float>();
    std::iota(first, first + operand->values.numel(), next);
    next += static_cast<float>(operand->values.numel());
  }
  return out;
}

TEST(ImplicitGemmLesson, ThreadsOnTheCpuLoadWhatThreadsOfAGpuLoad) {
  for (const char* text :
       {"n=1,c=4,h=4,w=4,k=8,r=2,s=2,pad=1x0x1x0", "n=2,c=6,h=7,w=6,k=40,r=3,s=2,stride=2x1,pad=1",
        "n=2,c=4,h=9,w=5,k=6,r=3,s=3,dilation=2x1,groups=2"}) {
    const Conv2dProblem z = Conv2dProblem::parse(text);
    const lesson::ConvShape sizes(z);
    for (const Direction direction : kDirections) {
      SCOPED_TRACE(cat(text, ", ", name_of(direction)));
      const Operands operands = counted_operands(z, direction);
      const void* const first = operands.input(0);
      const void* const second = operands.input(1);
      void* const result = operands.output(0);
      const Loads gpu = direction == Direction::forward
                            ? loads_on_gpu(Forward{sizes, sizes.x(first), sizes.weights(second),
                                                   sizes.bias(nullptr), sizes.y(result)})
                        : direction == Direction::backward_data
                            ? loads_on_gpu(BackwardData{sizes, sizes.y(first),
                                                        sizes.weights(second), sizes.x(result)})
                            : loads_on_gpu(BackwardWeight{sizes, sizes.x(first), sizes.y(second),
                                                          false, sizes.weights(result)});
      Recorder recorder;
      watch_conv2d("implicit_gemm_lesson", z, direction, operands, recorder);
      const Loads cpu = loads_on_cpu(recorder);
      EXPECT_EQ(cpu.a, gpu.a);
      EXPECT_EQ(cpu.b, gpu.b);
      EXPECT_GT(std::count_if(gpu.b.begin(), gpu.b.end(), [](float number) { return number > 0; }),
                64);
    }
  }
}

}  // namespace
}  // namespace convscope
