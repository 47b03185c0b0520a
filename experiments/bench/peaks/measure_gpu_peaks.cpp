// SPDX-License-Identifier: Apache-2.0
// measure_gpu_peaks.cpp: measures the roofline of the first CUDA device. It times large products
// of random numbers (a pointwise convolution, by cuBLAS) in f32, TF32 and bf16, a copy larger than
// the cache, and the gap between two small kernels.
#include "experiments/bench/peaks/measure_gpu_peaks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "experiments/bench/device_timing.h"
#include "framework/memory/memory.h"
#include "framework/random.h"
#include "framework/tensor.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"

namespace convscope {
namespace {

Tensor random_tensor(const Shape& shape, DType dtype, Device device, std::uint64_t stream) {
  const Tensor out = Tensor::empty(shape, DType::f32);
  Generator random(1, stream);
  float* values = out.data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) values[i] = random.normal();
  return out.to(dtype).to(device);
}

// Returns the shortest of a few times of `run`, in seconds, after a warm-up.
double seconds_of(Device device, std::function<void()> run) {
  std::vector<TimedThing> things(1);
  things[0].run = std::move(run);
  time_on_device(things, device, {.min_seconds = 0.05, .least_samples = 5, .most_samples = 20});
  return *std::min_element(things[0].seconds.begin(), things[0].seconds.end());
}

double seconds_of_forward(const char* name, const Conv2dProblem& problem, Device device) {
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(device.type).get(name);
  const Tensor x = random_tensor(problem.x_shape(), problem.dtype, device, 1);
  const Tensor w = random_tensor(problem.w_shape(), problem.dtype, device, 2);
  const Tensor y = Tensor::empty(problem.y_shape(), problem.dtype, device);
  const Scratch<Conv2dProblem> scratch(algorithm, problem, Direction::forward, device);
  return seconds_of(device, [&] {
    algorithm.forward({problem,
                       x.raw_data(),
                       w.raw_data(),
                       nullptr,
                       y.raw_data(),
                       scratch.workspace(),
                       {},
                       scratch.prepare(w.raw_data())});
  });
}

}  // namespace

GpuPeaks measure_gpu_peaks(double share) {
  const Device device{.type = DeviceType::cuda};
  const DeviceBackend& backend = backend_of(device);
  // A pointwise convolution is a product [size, size] times [size, side^2]: 4096^3 multiplications.
  const auto side = std::max<std::int64_t>(4, std::llround(64 * std::sqrt(share)));
  Conv2dProblem product;
  product.c = product.k = side * side;
  product.h = product.w = side;
  const auto rate = [&](DType dtype, MathMode math) {
    product.dtype = dtype;
    product.math = math;
    return product.nominal_flops() / seconds_of_forward("gemm_1x1", product, device);
  };
  GpuPeaks out;
  out.f32_flops = rate(DType::f32, MathMode::f32);
  out.tf32_flops = rate(DType::f32, MathMode::tf32);
  out.half_flops = rate(DType::bf16, MathMode::f32);

  const auto bytes = static_cast<std::size_t>(share * (512 << 20));
  const Workspace from(device, bytes);
  const Workspace to(device, bytes);
  backend.fill_bytes(device.index, from.data(), 1, bytes);
  out.copy_bytes = 2 * static_cast<double>(bytes) / seconds_of(device, [&] {
                     backend.copy_within(device.index, to.data(), from.data(), bytes);
                   });
  // The algorithm im2col_gemm runs three kernels: it gathers columns, multiplies, and writes
  // pixels. The problem is so small that the launches take all the time.
  out.launch_seconds =
      seconds_of_forward("im2col_gemm", Conv2dProblem::parse("c=4,h=8,w=8,k=4,r=3,s=3,pad=1"),
                         device) /
      3;
  return out;
}

}  // namespace convscope
