// SPDX-License-Identifier: Apache-2.0
// tensorboard_test.cpp: the events written for TensorBoard, read back by another reader.
#include "experiments/run_folder/tensorboard.h"

#include <sys/wait.h>

#include <cstdio>

#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

// Returns the scalars of an event file, one line "step tag value" each, as an independent reader
// prints them. If the reader fails, returns its error message.
std::string read_events(const std::string& path) {
  const std::string command = cat("python3 ", CONVSCOPE_SOURCE_DIR,
                                  "/tests/experiments/trainer/read_events.py '", path, "' 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) {
    out.append(buffer, count);
  }
  return pclose(pipe) == 0 ? out : "failed: " + out;
}

bool has_python() { return std::system("python3 -c 'import struct' 2>/dev/null") == 0; }

TEST(Tensorboard, crc32c_gives_the_published_values) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);              // the usual check value
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(""), 0u);
  // (0xe3069283 rotated right by 15) + 0xa282ead8
  EXPECT_EQ(masked_crc32c("123456789"), 0xc78ab0e5u);
}

TEST(Tensorboard, another_reader_sees_what_was_written) {
  if (!has_python()) GTEST_SKIP() << "python3 was not found";
  const TemporaryFolder root;
  const std::string path = root.path() + "/" + kTensorboardFile;
  {
    TensorboardLog log(path, 0);
    log.add(1, {{"loss/train", 2.5}, {"accuracy/train", 10}});
    log.add(300, {{"loss/train", -0.125}});
    log.add(70000, {{"loss/train", 1e-30}});
  }
  EXPECT_EQ(read_events(path),
            "1 loss/train 2.5\n1 accuracy/train 10\n300 loss/train -0.125\n"
            "70000 loss/train 1e-30\n");
}

TEST(Tensorboard, going_on_drops_later_events_and_half_records) {
  if (!has_python()) GTEST_SKIP() << "python3 was not found";
  const TemporaryFolder root;
  const std::string path = root.path() + "/events";
  {
    TensorboardLog log(path, 0);
    for (int step = 100; step <= 300; step += 100) log.add(step, {{"a", 1.0 * step}});
  }
  const std::string whole = text_of(path);
  { TensorboardLog(path, 200).add(250, {{"a", 250}}); }
  EXPECT_EQ(read_events(path), "100 a 100\n200 a 200\n250 a 250\n");
  std::ofstream(path, std::ios::binary) << whole.substr(0, whole.size() - 5);
  { TensorboardLog(path, 900).add(300, {{"a", 3}}); }
  EXPECT_EQ(read_events(path), "100 a 100\n200 a 200\n300 a 3\n");
  std::string wrong = whole;
  wrong[wrong.size() - 8] ^= 1;  // a bit of the last value
  std::ofstream(path, std::ios::binary) << wrong;
  { TensorboardLog(path, 900).add(300, {{"a", 4}}); }
  EXPECT_EQ(read_events(path), "100 a 100\n200 a 200\n300 a 4\n");
  { TensorboardLog(path, 0).add(1, {{"a", 5}}); }
  EXPECT_EQ(read_events(path), "1 a 5\n");
}

std::string without_times(const std::string& events) {
  std::istringstream lines(events);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const bool measured = line.find(" time/") != std::string::npos ||
                          line.find(" speed/") != std::string::npos ||
                          line.find(" memory/") != std::string::npos;
    if (!measured) out += line + "\n";
  }
  return out;
}

TEST(Tensorboard, a_resumed_run_writes_the_events_of_an_uninterrupted_one) {
  if (!has_python()) GTEST_SKIP() << "python3 was not found";
  const TemporaryFolder root;
  const auto train = [&](RunFolder& folder, std::int64_t epochs_now, bool resume) {
    TrainingSetup setup = small_setup(5);
    setup.tensorboard = true;
    setup.epochs_now = epochs_now;
    Progress progress(Progress::Mode::quiet);
    Trainer trainer(setup, folder, progress);
    if (resume) trainer.resume();
    EXPECT_EQ(trainer.run(), 0);
    return without_times(read_events(folder.file(kTensorboardFile)));
  };
  RunFolder whole = RunFolder::create(root.path(), "whole", 5);
  const std::string expected = train(whole, 0, false);
  EXPECT_NE(expected.find("39 accuracy/test "), std::string::npos) << expected;
  EXPECT_NE(expected.find("5 loss/train "), std::string::npos) << expected;
  EXPECT_NE(expected.find("5 learning_rate 0.05\n"), std::string::npos) << expected;
  RunFolder parts = RunFolder::create(root.path(), "parts", 5);
  train(parts, 2, false);
  // As if killed in the third epoch, after the checkpoint.
  { TensorboardLog(parts.file(kTensorboardFile), 26).add(30, {{"loss/train", 99}}); }
  EXPECT_EQ(train(parts, 0, true), expected);
}

TEST(Tensorboard, without_the_option_there_is_no_file) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "small", 1);
  TrainingSetup setup = small_setup(1);
  Progress progress(Progress::Mode::quiet);
  Trainer(setup, folder, progress).run();
  EXPECT_FALSE(std::filesystem::exists(folder.file(kTensorboardFile)));
}

}  // namespace
}  // namespace convscope::testing
