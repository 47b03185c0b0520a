// SPDX-License-Identifier: Apache-2.0
// long_files_test.cpp: tests run folders with a file far longer than the program ever writes. The
// report names the file and its size, and shows the run without it. The files are sparse and fill
// no disk.
#include <gtest/gtest.h>

#include <filesystem>

#include "experiments/trainer/checkpoint.h"
#include "experiments/watch/run_view.h"
#include "framework/io/bytes.h"
#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/report/run_here.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

constexpr std::uintmax_t kGibi = std::uintmax_t{1} << 30;

void lengthen(const std::string& path, std::uintmax_t size = 3 * kGibi) {
  std::ofstream(path, std::ios::app) << "";
  std::filesystem::resize_file(path, size);
}

TEST(LongFiles, EachIsNamedAndTheRunIsDrawnWithoutThem) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  for (const char* name : {"config.yaml", "layers.csv", "metrics.jsonl", "sparsity.csv"}) {
    lengthen(folder + "/" + name);
    const Output out = run_here({"plot", folder});
    EXPECT_EQ(out.code, 0) << out.err;
    EXPECT_NE(out.err.find(cat("/", name, ": got 3221225472 bytes, more than the ")),
              std::string::npos)
        << out.err;
    std::filesystem::resize_file(folder + "/" + name, 0);
  }
  lengthen(folder + "/config.yaml");
  EXPECT_EQ(run_here({"index", root.path()}).code, 0);
  EXPECT_EQ(run_here({"watch", folder, "--once"}).code, 0);
  const Output trained = run_here({"run", folder + "/config.yaml"});
  EXPECT_EQ(trained.code, 6);
  EXPECT_NE(trained.err.find("3221225472 bytes, more than the 262144"), std::string::npos)
      << trained.err;
}

TEST(LongFiles, WatchReadsTheEndOfLongMetrics) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  lengthen(folder + "/metrics.jsonl");
  std::ofstream(folder + "/metrics.jsonl", std::ios::app)
      << "\n{\"step\":77,\"split\":\"train\",\"loss\":0.25}\n";
  RunReader reader(folder);
  const RunView& view = reader.look();
  EXPECT_EQ(view.step, 77);
  EXPECT_EQ(view.loss, 0.25);
}

TEST(LongFiles, ACheckpointOfALargerNetworkIsRefusedByItsHeader) {
  const TemporaryFolder root;
  const std::string path = root.path() + "/last.safetensors";
  TrainingSetup setup = small_setup(1);
  const std::string name = setup.model->parameters().at(0).name;
  const std::int64_t bytes = std::int64_t{1} << 42;  // reading them would take hours
  const std::string header =
      cat("{\"", name, "\":{\"dtype\":\"F32\",\"shape\":[", bytes / 4, "],\"data_offsets\":[0,",
          bytes, "]},\"__metadata__\":{\"config\":\"name: a\"}}");
  std::string start;
  append_little_endian(start, header.size(), 8);
  write_text(path, start + header);
  lengthen(path, 8 + header.size() + static_cast<std::uintmax_t>(bytes));
  const std::string sentence = cat("expected '", name, "' to be ");
  EXPECT_ERROR(ErrorKind::kConfig, sentence, load_checkpoint(path, *setup.model, nullptr));
  EXPECT_ERROR(ErrorKind::kConfig, sentence, load_start_weights(path, *setup.model));
  EXPECT_EQ(checkpoint_config(path), "name: a");
}

}  // namespace
}  // namespace convscope::testing
