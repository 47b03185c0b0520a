// SPDX-License-Identifier: Apache-2.0
// robust_command_test.cpp: tests the program under unusual conditions: closed streams, names that
// are not UTF-8, paths that no system call accepts, another process on the same run, unusable data
// and configs.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "experiments/run_folder/run_folder.h"
#include "experiments/trainer/checksum.h"
#include "framework/io/atomic_file.h"
#include "framework/io/safetensors.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/call_program.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::TemporaryFolder;
using testing::text_of;

constexpr const char* kConfig =
    "name: small\ndata: {set: synthetic_digits, train_size: 64, test_size: 32}\n"
    "model: {type: lenet5}\ntrain: {epochs: 1}\n";

class Unusual : public ::testing::Test {
 protected:
  void SetUp() override { write_file(config, kConfig); }
  TemporaryFolder root;
  const std::string config = root / "small.yaml";
  const std::string run = "run " + config + " -o " + (root / "runs");
};

// If stdin, stdout or stderr is closed, the program opens it on /dev/null. Otherwise a file of the
// run would get the descriptor of stdout or stderr, and messages would be written into this file.
TEST_F(Unusual, ClosedStreamsLeaveTheFilesOfARunAlone) {
  call_program(run + " 2>&- 1>&- 0<&-");
  const std::string folder = resolve_run(root / "runs/small");
  EXPECT_EQ(read_run_status(folder).state, "DONE");
  EXPECT_EQ(text_of(folder + "/.lock"), "");
  std::istringstream lines(text_of(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  }
}

TEST_F(Unusual, ArgumentsThatAreNoUtf8EndInAWholeRun) {
  const std::string odd = std::string(root / "odd\xff");
  EXPECT_EQ(call_program("run " + config + " -q -o '" + odd + "'").code, 0);
  const std::string folder = resolve_run(odd + "/small");
  EXPECT_EQ(read_run_status(folder).state, "DONE");
  EXPECT_TRUE(nlohmann::json::accept(text_of(folder + "/env.json")));
  const auto report = call_program("report '" + odd + "' -f json");
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_TRUE(nlohmann::json::accept(report.out)) << report.out;
}

TEST_F(Unusual, APathThatNoSystemCallTakesIsAnErrorOfFiles) {
  const std::string longest(300, 'x');
  for (const std::string& words :
       {"eval " + longest, "run --resume " + longest, "bench net " + longest,
        run + " 'sparsity={method: magnitude, target: 0.5, start_from: " + longest + "}'"}) {
    const auto called = call_program(words);
    EXPECT_TRUE(called.code == 6 || called.code == 3) << words << "\n" << called.err;
    EXPECT_EQ(called.err.find("filesystem error"), std::string::npos) << called.err;
  }
}

TEST_F(Unusual, ABenchmarkThatIsStoppedLeavesTheOldFile) {
  const std::string file = root / "old.json";
  write_file(file, "old");
  // A missing shapes file is reported before anything is measured.
  EXPECT_NE(call_program("bench conv2d --shapes " + (root / "none.txt") + " --json " + file).code,
            0);
  EXPECT_EQ(text_of(file), "old");
  const std::string killed =
      "timeout -s KILL 0.5 " CONVSCOPE_BINARY_DIR
      "/bin/convscope bench conv2d --problem n=1,c=8,h=12,w=12,k=8,r=3,s=3,pad=1 --min-time 30 "
      "--json " +
      file + " >/dev/null 2>&1";
  EXPECT_NE(std::system(killed.c_str()), 0);
  EXPECT_EQ(text_of(file), "old");
}

TEST_F(Unusual, ResumeAutoRefusesARunThatAnotherProcessWorksOn) {
  EXPECT_EQ(call_program(run + " -q --epochs-limit 1 train.epochs=2").code, 0);
  const std::string folder = resolve_run(root / "runs/small");
  {
    const RunFolder held = RunFolder::reopen(folder);
    held.set_status({.state = "RUNNING"});
    const auto refused = call_program(run + " train.epochs=2 --resume auto");
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_NE(refused.err.find("expected a run that no process works on"), std::string::npos);
    // A run that has the same name but another config is not resumed.
    EXPECT_EQ(call_program(run + " -q train.epochs=1 seed=5 --resume auto").code, 0);
  }
  EXPECT_EQ(call_program(run + " -q train.epochs=2 --resume auto").code, 0);
  EXPECT_EQ(read_run_status(folder).state, "DONE");
}

// Opening a pipe would wait for a writer.
TEST_F(Unusual, PipesInARunsFolderStopNobody) {
  EXPECT_EQ(call_program(run + " -q").code, 0);
  const std::string folder = resolve_run(root / "runs/small");
  for (const char* file : {"status.json", "summary.json", "epochs.csv", "layers.csv",
                           "metrics.jsonl", "log.txt", "env.json", "config.yaml", ".lock"}) {
    std::filesystem::remove(folder + "/" + file);
    ASSERT_EQ(mkfifo((folder + "/" + file).c_str(), 0600), 0);
  }
  for (const char* words : {"report runs", "watch runs/small --once", "note runs/small",
                            "index runs", "plot runs --kind curves -o p.svg", "compare runs runs",
                            "run --resume runs/small", "eval runs/small"}) {
    const auto done = testing::call_shell(
        std::string("timeout 30 " CONVSCOPE_BINARY_DIR "/bin/convscope ") + words, root.path());
    EXPECT_NE(done.code, 124) << words << "\n" << done.err;
  }
}

TEST_F(Unusual, APipeOfABenchmarkIsReadAndAFolderIsNot) {
  const auto called = [&](const std::string& line) {
    return testing::call_shell("timeout 30 " CONVSCOPE_BINARY_DIR "/bin/convscope " + line,
                               root.path());
  };
  ASSERT_EQ(mkfifo((root / "pipe").c_str(), 0600), 0);
  for (const char* words : {"plot --kind heatmap -o p.svg ", "bench conv2d --shapes "}) {
    const auto nobody = called(words + (root / "pipe"));
    EXPECT_NE(nobody.code, 124) << words << nobody.err;
    EXPECT_NE(nobody.code, 0) << words;
    EXPECT_EQ(called(words + root.path()).code, 6) << words << called(words + root.path()).err;
  }
}

std::string big_endian(std::int64_t value) {  // big-endian
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
  return out;
}

// Writes images of a single colour, and their labels, in the file format of MNIST.
void write_digits(const std::string& folder, const std::string& part, std::int64_t count,
                  std::int64_t side) {
  std::filesystem::create_directories(folder);
  const std::string images = big_endian(0x803) + big_endian(count) + big_endian(side) +
                             big_endian(side) +
                             std::string(static_cast<std::size_t>(count * side * side), '\x40');
  std::string labels = big_endian(0x801) + big_endian(count);
  for (std::int64_t n = 0; n < count; ++n) labels.push_back(static_cast<char>(n % 10));
  write_file(folder + "/" + part + "-images-idx3-ubyte", images);
  write_file(folder + "/" + part + "-labels-idx1-ubyte", labels);
}

// The exit code of a failed run depends only on the phase that failed: 3 for the config, 4 for the
// data, 1 for training and evaluation.
class ExitCodes : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(config,
               "name: small\ndata: {set: synthetic_digits, train_size: 17, test_size: 8, "
               "batch_size: 16}\nmodel: {type: lenet5}\ntrain: {epochs: 1}\n");
  }
  void expect(const std::string& words, int code, const std::string& sentence) const {
    const auto done = call_program(words);
    EXPECT_EQ(done.code, code) << words << "\n" << done.err;
    EXPECT_NE(done.err.find(sentence), std::string::npos) << words << "\n" << done.err;
  }
  TemporaryFolder root;
  const std::string config = root / "small.yaml";
  const std::string run = "run " + config + " -q -o " + (root / "runs") + " ";
};

TEST_F(ExitCodes, AMistakeOfTheConfigThatAnOptimiserNotices) {
  const std::string wrong = " optim.nesterov=true optim.momentum=0";
  const std::string sentence = "[sgd] expected momentum > 0 and dampening 0 because nesterov is on";
  expect(run + wrong, 3, sentence);
  expect("config check " + config + wrong, 3, sentence);
  EXPECT_FALSE(std::filesystem::exists(root / "runs"));
}

TEST_F(ExitCodes, DataThatNoRunCanUse) {
  write_file(config, "name: small\ndata: {set: mnist, batch_size: 4, root: " + (root / "data") +
                         "}\nmodel: {type: lenet5}\ntrain: {epochs: 1}\n");
  write_digits(root / "data", "train", 8, 28);
  write_digits(root / "data", "t10k", 8, 20);
  expect(run, 4, "expected test images of the size of the training images");
  write_digits(root / "data", "t10k", 8, 28);
  write_digits(root / "data", "train", 0, 28);
  expect(run, 4, "expected at least one training image, got none");
  EXPECT_FALSE(std::filesystem::exists(root / "runs"));
}

TEST_F(ExitCodes, ABatchThatALayerCannotTrainOn) {
  for (const char* plan : {"true", "false"}) {
    expect(
        run + "'model={type: resnet18, stem: imagenet, widths: [2, 2, 2, 4]}' train.plan=" + plan,
        1, "expected more than one value for each channel while training");
  }
  EXPECT_FALSE(std::filesystem::exists(root / "runs"));
}

TEST_F(ExitCodes, AnEvaluationWithoutAFiniteLoss) {
  ASSERT_EQ(call_program(run + "data.train_size=16").code, 0);
  const std::string checkpoint = root / "runs/small/latest/ckpt/last.safetensors";
  SafetensorsFile file = read_safetensors(checkpoint);
  for (const NamedTensor& one : file.tensors) {
    if (one.name.ends_with("bias")) one.tensor.fill(std::nan(""));
  }
  file.metadata.erase(kChecksumKey);
  write_safetensors(checkpoint, file.tensors, file.metadata);
  const auto done = call_program("eval " + (root / "runs/small/latest"));
  EXPECT_EQ(done.code, 1) << done.err;
  EXPECT_NE(done.out.find("loss nan"), std::string::npos) << done.out;
  EXPECT_NE(done.err.find("[eval] expected a finite loss, got nan"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace convscope
