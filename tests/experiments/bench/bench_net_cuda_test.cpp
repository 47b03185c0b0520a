// SPDX-License-Identifier: Apache-2.0
// bench_net_cuda_test.cpp: tests that `convscope bench net` on a GPU times the recorded step (a
// CUDA graph), also for quantised and masked networks.
#include "experiments/bench/net/net_bench.h"
#include "experiments/config/build.h"
#include "tests/support/cuda.h"

namespace convscope {
namespace {

using BenchNetOnCuda = testing::CudaTest;

TEST_F(BenchNetOnCuda, RecordsStepsThatQuantiseAndMask) {
  const Shape image = {1, 12, 12};
  for (const char* block :
       {"", "precision: bf16\n", "quant: {w_bits: 4, a_bits: 4, calibration_batches: 2}\n",
        "quant: {w_bits: 4, a_bits: 4, begin: 0.5}\n"
        "sparsity: {method: magnitude, target: 0.5}\n"}) {
    SCOPED_TRACE(block);
    const ExperimentConfig config =
        parse_config_text(cat("name: small\n"
                              "device: cuda\n"
                              "data: {set: mnist, root: /nowhere, batch_size: 4}\n"
                              "layers:\n"
                              "  - {type: conv2d, name: c1, out_channels: 3, kernel_size: 3}\n"
                              "  - {type: relu}\n"
                              "  - {type: max_pool2d, kernel_size: 2}\n"
                              "  - {type: flatten}\n"
                              "  - {type: linear, name: f1, out_features: 10}\n"
                              "optim: {type: sgd, lr: 0.1, momentum: 0.9}\n",
                              block),
                          "small.yaml");
    const std::shared_ptr<Module> model = build_model(config, image, 10);
    const auto pruner = build_pruner(config, *model, nullptr, image, 0);
    if (pruner) pruner->prune_now();
    const NetBenchOptions options{
        .min_seconds = 1e-6, .least_samples = 1, .warm_up = 1, .pruner = pruner.get()};
    for (const NetMode mode : {NetMode::train, NetMode::inference}) {
      const NetBenchRow row = bench_net(config, *model, image, 10, mode, 4, options);
      EXPECT_EQ(row.execution.substr(0, 8), "recorded") << row.execution;
      EXPECT_GT(row.time.median_ms, 0);
    }
  }
}

}  // namespace
}  // namespace convscope
