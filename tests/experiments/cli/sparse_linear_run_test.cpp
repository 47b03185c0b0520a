// SPDX-License-Identifier: Apache-2.0
// sparse_linear_run_test.cpp: tests a run of linear layers that multiplies only unpruned blocks.
// Its losses equal those of the masked dense run; its tables and resuming are tested as well.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "experiments/report/run_data.h"
#include "tests/support/call_program.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::Called;
using testing::TemporaryFolder;

void write_config(const TemporaryFolder& folder) {
  std::ofstream(folder / "mlp.yaml") << R"(
name: mlp
threads: 1
data: {set: synthetic_digits, train_size: 512, test_size: 128, batch_size: 128}
layers:
  - {type: flatten, name: flat}
  - {type: linear, name: f1, out_features: 512}
  - {type: relu, name: r1}
  - {type: linear, name: f2, out_features: 768}
  - {type: relu, name: r2}
  - {type: linear, name: f3, out_features: 10}
optim: {type: sgd, lr: 0.05, momentum: 0.9}
train: {epochs: 3}
sparsity:
  method: block
  block: [16, 1]
  target: 0.97
  start: 0
  end: 0.4
  every_steps: 1
  exclude: [f3]
  execute: sparse
)";
}

RunData run_in(const TemporaryFolder& folder, const std::string& name, const std::string& more) {
  const Called run = call_program("run mlp.yaml --name " + name + " " + more, folder.path());
  EXPECT_EQ(run.code, 0) << run.err;
  return read_run(folder / ("runs/" + name + "/latest"));
}

std::string cell(const RunData& run, const std::string& layer, const std::string& column) {
  for (std::size_t row = 0; row < run.layers.rows.size(); ++row) {
    if (run.layers.text(row, "layer") == layer) return run.layers.text(row, column);
  }
  return "no such layer";
}

TEST(SparseLinearRun, TrainsLikeTheMaskedRunAndSaysWhatRan) {
  const TemporaryFolder folder;
  write_config(folder);
  const RunData blocks = run_in(folder, "blocks", "");
  const RunData masked = run_in(folder, "masked", "sparsity.execute=masked");
  EXPECT_EQ(blocks.summary->execution, "block-sparse");
  EXPECT_EQ(masked.summary->execution, "masked dense");
  ASSERT_EQ(blocks.epochs.rows.size(), 3u);
  ASSERT_EQ(masked.epochs.rows.size(), 3u);
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    for (const char* column : {"train_loss", "test_loss"}) {
      const double loss = std::stod(blocks.epochs.text(epoch, column));
      EXPECT_NEAR(loss, std::stod(masked.epochs.text(epoch, column)), 1e-4 * loss) << epoch;
    }
  }
  for (const char* layer : {"f1", "f2"}) {
    EXPECT_EQ(cell(blocks, layer, "forward"), "block_sparse");
    EXPECT_EQ(cell(blocks, layer, "inference"), "block_sparse");
    EXPECT_EQ(cell(masked, layer, "forward"), "linear");
    EXPECT_EQ(cell(masked, layer, "inference"), "linear");
  }
  EXPECT_EQ(cell(blocks, "f1", "backward_data"), "-");
  EXPECT_EQ(cell(blocks, "f3", "forward"), "linear");
  const Called steps = call_program("explain mlp.yaml --steps", folder.path());
  EXPECT_EQ(steps.code, 0) << steps.err;
  EXPECT_NE(steps.out.find("linear block_sparse + relu"), std::string::npos) << steps.out;
  // With many unpruned weights it stays dense.
  const RunData full = run_in(folder, "full", "sparsity.target=0.1 train.epochs=1");
  EXPECT_EQ(full.summary->execution, "masked dense");
  EXPECT_EQ(cell(full, "f2", "forward"), "linear");
}

TEST(SparseLinearRun, GoesOnWithTheSameBits) {
  const TemporaryFolder folder;
  write_config(folder);
  const RunData whole = run_in(folder, "whole", "");
  run_in(folder, "parts", "--epochs-limit 2");
  const Called rest = call_program("run --resume runs/parts", folder.path());
  ASSERT_EQ(rest.code, 0) << rest.err;
  const RunData parts = read_run(folder / "runs/parts/latest");
  EXPECT_EQ(parts.summary->execution, "block-sparse");
  ASSERT_EQ(parts.epochs.rows.size(), whole.epochs.rows.size());
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    for (const char* column : {"train_loss", "test_loss", "test_acc"}) {
      EXPECT_EQ(parts.epochs.text(epoch, column), whole.epochs.text(epoch, column)) << epoch;
    }
  }
}

}  // namespace
}  // namespace convscope
