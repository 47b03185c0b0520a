// SPDX-License-Identifier: Apache-2.0
// sparse_export_test.cpp: tests `convscope export RUN --sparse FILE`, and `eval` of the exported
// file: it has the accuracy of the run, its reported size is right, and wrong uses are refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "experiments/report/weight_size.h"
#include "experiments/run_folder/run_folder.h"
#include "tests/support/call_program.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::Called;
using testing::text_of;

const std::string kRun =
    "run quickstart train.epochs=1 data.train_size=256 data.test_size=100 data.batch_size=32 "
    "expect=null threads=1 ";
const std::string kBlocks =
    "\"sparsity={method: block, block: [16, 1], target: 0.5, start: 0, every_steps: 1, execute: "
    "sparse}\"";

std::string run_in(const testing::TemporaryFolder& folder, const std::string& more) {
  const Called run = call_program(kRun + more, folder.path());
  EXPECT_EQ(run.code, 0) << run.err;
  const std::size_t name = more.find("--name ");
  return cat(folder.path(), "/runs/",
             name == std::string::npos ? "quickstart" : more.substr(name + 7), "/latest");
}

TEST(SparseExport, IsEvaluatedLikeTheRun) {
  for (const std::string& more :
       {kBlocks,
        std::string("\"sparsity={method: magnitude, target: 0.9, start: 0, every_steps: 1}\"")}) {
    const testing::TemporaryFolder folder;
    const std::string run = run_in(folder, more);
    const Called made = call_program("export " + run + " --sparse s.safetensors", folder.path());
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_NE(made.out.find("outputs     differ by 0 from those of the run"), std::string::npos)
        << made.out;
    const Called run_result = call_program("eval " + run, folder.path());
    const Called file_result = call_program("eval s.safetensors", folder.path());
    ASSERT_EQ(file_result.code, 0) << file_result.err;
    EXPECT_EQ(file_result.out, run_result.out);
    EXPECT_NE(file_result.out.find("accuracy"), std::string::npos);
    // The file that the run wrote at its end has the same content. The run reported the size of
    // this file.
    EXPECT_EQ(text_of(folder.path() + "/s.safetensors"), text_of(run + "/" + kSparseModel));
    const auto size = static_cast<double>(std::filesystem::file_size(run + "/" + kSparseModel));
    EXPECT_EQ(weight_size(read_run(run)).stored_bytes, size);
    EXPECT_EQ(read_run(run).summary->weight_bytes, size);
    EXPECT_LT(size, 4 * 44426 * 0.7);
    std::filesystem::remove(run + "/" + kSparseModel);
    EXPECT_EQ(weight_size(read_run(run)).stored_bytes, 4 * 44426);
  }
}

// A run with `execute: sparse` must say so if every layer ran dense.
TEST(SparseExport, TheRunSaysWhatWasExecuted) {
  const testing::TemporaryFolder folder;
  const RunData dense = read_run(run_in(folder, kBlocks + " conv.algorithm=direct --name dense"));
  EXPECT_EQ(dense.summary->execution, "masked dense");
  const RunData blocks =
      read_run(run_in(folder, kBlocks + " conv.per_layer.c2=block_sparse --name blocks"));
  EXPECT_EQ(blocks.summary->execution, "block-sparse");
  std::map<std::string, std::string> kernels;
  for (std::size_t row = 0; row < blocks.layers.rows.size(); ++row) {
    kernels[blocks.layers.text(row, "layer")] = blocks.layers.text(row, "inference");
  }
  EXPECT_EQ(kernels.at("c2"), "block_sparse");
  EXPECT_EQ(kernels.at("f3"), "linear");
  const RunData codes = read_run(run_in(folder, "\"quant={execute: int8_always}\" --name codes"));
  EXPECT_EQ(codes.summary->execution, "int8");
  EXPECT_EQ(codes.layers.text(0, "inference"), "int8_chain: c1+c2");
  // The config names an f32 algorithm for the convolutions, so only the linear layers run on
  // integers.
  const RunData named = read_run(
      run_in(folder, "\"quant={execute: int8_always}\" conv.algorithm=im2col_gemm --name named"));
  EXPECT_EQ(named.layers.text(0, "inference"), "im2col_gemm");
}

TEST(SparseExport, RefusesWhatHasNoMasksOfItsOwn) {
  const testing::TemporaryFolder folder;
  run_in(folder, "--name plain");
  const Called dense = call_program("export runs/plain --sparse s.safetensors", folder.path());
  EXPECT_EQ(dense.code, 3);
  EXPECT_NE(dense.err.find("[export] expected a run with masks, because --sparse leaves out "
                           "pruned weights, got "),
            std::string::npos)
      << dense.err;
  run_in(folder, "\"quant={w_bits: 4}\" " + kBlocks + " --name both");
  const Called both = call_program("export runs/both --sparse s.safetensors", folder.path());
  EXPECT_EQ(both.code, 3);
  EXPECT_NE(both.err.find("--quantised writes codes"), std::string::npos) << both.err;
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/s.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs/both/latest/" + kSparseModel));
}

// A run whose masks are not final yet has no file.
TEST(SparseExport, WaitsForFinalMasks) {
  const testing::TemporaryFolder folder;
  const Called run = call_program(
      kRun +
          "--name waiting train.epochs=4 --epochs-limit 2 \"sparsity={method: magnitude, target: "
          "0.5, end: 0.9}\"",
      folder.path());
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs/waiting/latest/" + kSparseModel));
}

TEST(SparseExport, ADamagedFileIsOneSentenceAndExitCodeFour) {
  const testing::TemporaryFolder folder;
  const std::string run = run_in(folder, kBlocks);
  const std::string path = folder.path() + "/s.safetensors";
  const std::string good = text_of(run + "/" + kSparseModel);
  const auto eval_of = [&](const std::string& content, const std::string& sentence) {
    std::ofstream(path, std::ios::binary) << content;
    const Called answer = call_program("eval s.safetensors", folder.path());
    EXPECT_EQ(answer.code, 4) << sentence;
    EXPECT_NE(answer.err.find(sentence), std::string::npos) << answer.err;
    EXPECT_EQ(std::count(answer.err.begin(), answer.err.end(), '\n'), 1) << answer.err;
  };
  eval_of(good.substr(0, good.size() - 100), "bytes of data because the header says so, got ");
  std::string flipped = good;
  flipped[flipped.size() - 50] = static_cast<char>(flipped[flipped.size() - 50] ^ 1);
  eval_of(flipped, "a wrong checksum: the file says ");
}

TEST(SparseExport, IsNoBeginningForTraining) {
  const testing::TemporaryFolder folder;
  const std::string run = run_in(folder, kBlocks);
  const Called again =
      call_program(kRun + "\"sparsity={method: magnitude, target: 0.5, start_from: " + run + "/" +
                       kSparseModel + "}\"",
                   folder.path());
  EXPECT_EQ(again.code, 3);
  EXPECT_NE(again.err.find("expected a checkpoint, because training goes on with weights that are "
                           "not pruned, got the sparse model file"),
            std::string::npos)
      << again.err;
}

}  // namespace
}  // namespace convscope
