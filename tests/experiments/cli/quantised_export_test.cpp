// SPDX-License-Identifier: Apache-2.0
// quantised_export_test.cpp: tests `convscope export RUN --quantised FILE`, and `eval` of the
// exported file: it has the accuracy of the run, its reported size is right, and wrong uses are
// refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "experiments/config/build.h"
#include "experiments/report/weight_size.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_search.h"
#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/checksum.h"
#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::Called;
using testing::text_of;

const std::string kRun =
    "run quickstart train.epochs=1 data.train_size=256 data.test_size=100 data.batch_size=32 "
    "expect=null threads=1 ";

std::string run_in(const testing::TemporaryFolder& folder, const std::string& more) {
  const Called run = call_program(kRun + more, folder.path());
  EXPECT_EQ(run.code, 0) << run.err;
  return folder.path() + "/runs/quickstart/latest";
}

TEST(QuantisedExport, IsEvaluatedLikeTheRun) {
  // Exports two networks: a residual network with one step size per channel, and a pruned network,
  // whose file contains no masks.
  for (const char* more :
       {"\"model={type: resnet18, stem: cifar, widths: [2, 3, 4, 4]}\" optim.lr=0.01 "
        "\"quant={w_bits: 3, a_bits: 4, per_channel: true, begin: 0.3}\"",
        "\"quant={w_bits: 2, a_bits: 4}\" "
        "\"sparsity={method: magnitude, target: 0.8, start: 0, every_steps: 1}\""}) {
    const testing::TemporaryFolder folder;
    const std::string run = run_in(folder, more);
    const Called made = call_program("export " + run + " --quantised q.safetensors", folder.path());
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_NE(made.out.find("outputs     differ by 0 from those of the run"), std::string::npos)
        << made.out;
    const Called run_result = call_program("eval " + run, folder.path());
    const Called file_result = call_program("eval q.safetensors", folder.path());
    ASSERT_EQ(file_result.code, 0) << file_result.err;
    EXPECT_EQ(file_result.out, run_result.out);
    EXPECT_NE(file_result.out.find("accuracy"), std::string::npos);
    // The run has written the same file at its end.
    EXPECT_EQ(text_of(folder.path() + "/q.safetensors"), text_of(run + "/" + kQuantizedModel));
  }
}

TEST(QuantisedExport, IsTheSizeThatTheReportShows) {
  const testing::TemporaryFolder folder;
  const std::string run = run_in(folder, "\"quant={w_bits: 4, a_bits: 4}\"");
  const auto size = static_cast<double>(std::filesystem::file_size(run + "/" + kQuantizedModel));
  EXPECT_EQ(weight_size(read_run(run)).stored_bytes, size);
  // The file stores 4-bit integers for most weights, and 8-bit integers for those of the first and
  // last layer. `codes` is the size of these integers in bytes. The file also contains step sizes,
  // biases and a header.
  const double codes = 150 + (2400 + 30720 + 10080) / 2.0 + 840;
  EXPECT_GT(size, codes);
  const SafetensorsFile file = read_safetensors(run + "/" + kQuantizedModel);
  double bytes = 0;
  for (const NamedTensor& tensor : file.tensors) {
    bytes += static_cast<double>(tensor.tensor.size_bytes());
  }
  EXPECT_EQ(bytes, codes + 4 * (10 + 6 + 16 + 120 + 84 + 10));
  std::filesystem::remove(run + "/" + kQuantizedModel);
  EXPECT_EQ(weight_size(read_run(run)).stored_bytes, 4 * 44426);
}

TEST(QuantisedExport, RefusesWhatHasNoCodes) {
  const testing::TemporaryFolder folder;
  run_in(folder, "--name plain");
  const Called dense = call_program("export runs/plain --quantised q.safetensors", folder.path());
  EXPECT_EQ(dense.code, 3);
  EXPECT_NE(dense.err.find("[export] expected a run with a block 'quant', because --quantised "
                           "writes integer codes, got "),
            std::string::npos)
      << dense.err;
  const Called run =
      call_program(kRun + "--name waiting train.epochs=2 --epochs-limit 1 \"quant={begin: 0.9}\"",
                   folder.path());
  ASSERT_EQ(run.code, 0) << run.err;
  const Called waiting =
      call_program("export runs/waiting --quantised q.safetensors", folder.path());
  EXPECT_EQ(waiting.code, 3);
  EXPECT_NE(waiting.err.find("whose quantiser has not begun; train further"), std::string::npos)
      << waiting.err;
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/q.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs/waiting/latest/" + kQuantizedModel));
  const Called nothing = call_program("export runs/plain", folder.path());
  EXPECT_EQ(nothing.code, 2);
  EXPECT_NE(nothing.err.find("got none of them"), std::string::npos) << nothing.err;
}

TEST(QuantisedExport, ADamagedFileIsOneSentenceAndExitCodeFour) {
  const testing::TemporaryFolder folder;
  const std::string run = run_in(folder, "\"quant={w_bits: 4, a_bits: 4}\"");
  const std::string path = folder.path() + "/q.safetensors";
  const std::string good = text_of(run + "/" + kQuantizedModel);
  const auto eval_of = [&](const std::string& content, const std::string& sentence) {
    std::ofstream(path, std::ios::binary) << content;
    const Called answer = call_program("eval q.safetensors", folder.path());
    EXPECT_EQ(answer.code, 4) << sentence;
    EXPECT_NE(answer.err.find(sentence), std::string::npos) << answer.err;
    EXPECT_EQ(std::count(answer.err.begin(), answer.err.end(), '\n'), 1) << answer.err;
  };
  eval_of(good.substr(0, good.size() - 100), "bytes of data because the header says so, got ");
  eval_of(good.substr(0, 4000), "; the file is cut short");
  std::string flipped = good;
  flipped[flipped.size() - 50] = static_cast<char>(flipped[flipped.size() - 50] ^ 1);
  eval_of(flipped, "a wrong checksum: the file says ");
  // Damages the file but fixes its checksum.
  const auto with = [&](const std::function<void(SafetensorsFile&)>& damage) {
    std::ofstream(path, std::ios::binary) << good;
    SafetensorsFile file = read_safetensors(path);
    damage(file);
    file.metadata[kChecksumKey] = checksum_of(file);
    write_safetensors(path, file.tensors, file.metadata);
    return text_of(path);
  };
  eval_of(with([](SafetensorsFile& f) {
            std::erase_if(f.tensors,
                          [](const NamedTensor& t) { return t.name == "c2.input.step"; });
          }),
          "expected a tensor 'c2.input.step', got none");
  eval_of(
      with([](SafetensorsFile& f) { f.metadata["format"] = "convscope-quantised-9"; }),
      "expected the format convscope-quantised-1, got convscope-quantised-9, which this version "
      "does not read");
  eval_of(with([](SafetensorsFile& f) { f.metadata["progress"] = "[]"; }),
          "expected the progress of a run in the metadata");
}

TEST(QuantisedExport, IsNoBeginningForTraining) {
  const testing::TemporaryFolder folder;
  const std::string run = run_in(folder, "\"quant={w_bits: 4, a_bits: 4}\"");
  const Called again = call_program(
      kRun + "\"quant={start_from: " + run + "/" + kQuantizedModel + "}\"", folder.path());
  EXPECT_EQ(again.code, 3);
  EXPECT_NE(again.err.find("expected a checkpoint, because training goes on with weights that are "
                           "not rounded, got the quantised model file"),
            std::string::npos)
      << again.err;
}

}  // namespace
}  // namespace convscope
