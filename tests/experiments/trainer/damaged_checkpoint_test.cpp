// SPDX-License-Identifier: Apache-2.0
// damaged_checkpoint_test.cpp: tests that a changed bit anywhere in a checkpoint is detected, and
// that the run then resumes from the previous checkpoint.
#include <gtest/gtest.h>

#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/checksum.h"
#include "framework/io/bytes.h"
#include "tests/experiments/training_fixture.h"

namespace convscope {
namespace {

using testing::small_setup;
using testing::TemporaryFolder;
using testing::text_of;
using testing::weights_of;

std::string last_of(const RunFolder& folder) { return folder.file("ckpt/last.safetensors"); }
std::string previous_of(const RunFolder& folder) {
  return folder.file("ckpt/previous.safetensors");
}

void flip_bit(const std::string& path, std::size_t byte, int bit) {
  std::string text = text_of(path);
  ASSERT_LT(byte, text.size());
  text[byte] = static_cast<char>(text[byte] ^ (1 << bit));
  std::ofstream(path, std::ios::binary) << text;
}

struct Ended {
  std::vector<float> weights;
  std::string log;
};

Ended run(RunFolder& folder, bool resumes, std::int64_t epochs_now = 0) {
  TrainingSetup setup = small_setup(7);
  setup.epochs = 4;
  setup.epochs_now = epochs_now;
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  if (resumes) trainer.resume();
  EXPECT_EQ(trainer.run(), 0);
  return {weights_of(*setup.model), text_of(folder.file("log.txt"))};
}

std::string error_of_resume(RunFolder& folder) {
  TrainingSetup setup = small_setup(7);
  setup.epochs = 4;
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  try {
    trainer.resume();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo) << error.what();
    return error.what();
  }
  return "";
}

TEST(DamagedCheckpoint, IsNoticedWhicheverBitHasChanged) {
  const TemporaryFolder root;
  const std::string path = root.path() + "/c.safetensors";
  const TrainingSetup setup = small_setup(7);
  const auto save = [&] {
    save_checkpoint(path, *setup.model, setup.optimizer.get(), {}, "name: small\n");
  };
  save();
  const std::size_t size = text_of(path).size();
  Generator random(1, 1);
  for (int i = 0; i < 400; ++i) {
    const std::size_t byte = random.below(static_cast<std::uint32_t>(size));
    const int bit = static_cast<int>(random.below(8));
    save();
    flip_bit(path, byte, bit);
    const TrainingSetup other = small_setup(8);
    EXPECT_THROW(load_checkpoint(path, *other.model, other.optimizer.get()), Error)
        << "byte " << byte << " of " << size << ", bit " << bit << ": ..."
        << text_of(path).substr(byte < 20 ? 0 : byte - 20, 40) << "...";
  }
}

TEST(DamagedCheckpoint, IsReplacedByTheOneBeforeAndTheRunEndsWithTheSameBits) {
  const TemporaryFolder root;
  RunFolder whole = RunFolder::create(root.path(), "whole", 1);
  const Ended want = run(whole, false);

  RunFolder folder = RunFolder::create(root.path(), "damaged", 1);
  run(folder, false, /*epochs_now=*/3);
  ASSERT_TRUE(std::filesystem::exists(previous_of(folder)));
  flip_bit(last_of(folder), text_of(last_of(folder)).size() - 5, 3);
  const Ended got = run(folder, true);
  EXPECT_EQ(got.weights, want.weights);
  EXPECT_NE(got.log.find("a checkpoint is damaged"), std::string::npos) << got.log;
  EXPECT_NE(got.log.find("going on from ckpt/previous.safetensors, after step 26"),
            std::string::npos)
      << got.log;
  EXPECT_EQ(text_of(folder.file("epochs.csv")).find("\n3,"),
            text_of(folder.file("epochs.csv")).rfind("\n3,"))
      << "the third epoch is there once";
}

TEST(DamagedCheckpoint, WhenBothAreTheErrorNamesBoth) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "both", 1);
  run(folder, false, 3);
  for (const std::string& path : {last_of(folder), previous_of(folder)}) flip_bit(path, 300, 1);
  const std::string error = error_of_resume(folder);
  EXPECT_NE(error.find("last.safetensors"), std::string::npos) << error;
  EXPECT_NE(error.find("previous.safetensors"), std::string::npos) << error;
}

// A program may also write wrong numbers with a right checksum.
TEST(DamagedCheckpoint, ProgressThatCannotBeIsRefused) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "numbers", 1);
  run(folder, false, 2);
  const SafetensorsFile good = read_safetensors(last_of(folder));
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"epoch", "99"},
                                                        {"epoch", "-1"},
                                                        {"epoch", "1e18"},
                                                        {"batch", "5"},
                                                        {"step", "7"},
                                                        {"best_epoch", "9"},
                                                        {"metrics_bytes", "-3"}}) {
    SafetensorsFile file = good;
    std::string& progress = file.metadata["progress"];
    const std::size_t at = progress.find("\"" + key + "\":") + key.size() + 3;
    progress.replace(at, progress.find_first_of(",}", at) - at, value);
    file.metadata[kChecksumKey] = checksum_of(file);
    std::filesystem::remove(previous_of(folder));
    write_safetensors(last_of(folder), file.tensors, file.metadata);
    EXPECT_NE(error_of_resume(folder).find("expected the progress of a run of 4 epochs"),
              std::string::npos)
        << key << "=" << value;
  }
}

TEST(DamagedCheckpoint, OneOfAnEarlierVersionGoesOnWithANote) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "earlier", 1);
  run(folder, false, 2);
  SafetensorsFile file = read_safetensors(last_of(folder));
  ASSERT_EQ(file.metadata.erase(kChecksumKey), 1u);
  write_safetensors(last_of(folder), file.tensors, file.metadata);
  EXPECT_NE(run(folder, true).log.find("has no checksum, because an earlier version wrote it"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
