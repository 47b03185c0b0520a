// SPDX-License-Identifier: Apache-2.0
// run_folders.h: writes run folders directly, without training, for the tests of plots and reports.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "experiments/run_folder/run_summary.h"
#include "framework/check.h"

namespace convscope::testing {

inline void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

struct SampleRun {
  std::string name = "lenet";
  int seed = 1;
  double test_acc = 90;
  std::string config = "data:\n  batch_size: 64\n";  // in addition to name and seed
  int epochs = 2;
  std::optional<double> test_iou = {};  // of a cat; that of a dog is half of it
};

// Writes a finished run with epochs.csv, metrics.jsonl and summary.json; returns its folder.
inline std::string write_run(const std::string& root, const SampleRun& run) {
  const std::string folder = cat(root, "/", run.name, "/2026-01-01_000000-s", run.seed);
  write_text(folder + "/config.yaml",
             cat("name: ", run.name, "\nseed: ", run.seed, "\n", run.config));
  write_text(
      folder + "/status.json",
      "{\"state\": \"DONE\", \"reason\": \"\", \"exit_code\": 0, \"pid\": 1, \"host\": \"h\", "
      "\"heartbeat_unix\": 0, \"epoch\": 2, \"step\": 20}");
  std::string epochs = cat("epoch,step,train_loss,train_acc,val_loss,val_acc,test_loss,test_acc",
                           run.test_iou ? ",test_iou\n" : "\n");
  std::string metrics;
  for (int epoch = 1; epoch <= run.epochs; ++epoch) {
    epochs +=
        cat(epoch, ",", 10 * epoch, ",", 2.0 / epoch, ",", 40 * epoch, ",,,", 1.5 / epoch, ",",
            run.test_acc - run.epochs + epoch, run.test_iou ? cat(",", *run.test_iou) : "", "\n");
    metrics += cat("{\"step\":", 10 * epoch, ",\"split\":\"train\",\"loss\":", 2.0 / epoch,
                   ",\"acc\":50,\"lr\":0.1,\"images_per_s\":1000}\n");
  }
  write_text(folder + "/epochs.csv", epochs);
  write_text(folder + "/metrics.jsonl", metrics);
  RunSummary summary;
  summary.id = cat("2026-01-01_000000-s", run.seed);
  summary.name = run.name;
  summary.seed = run.seed;
  summary.batch_size = 64;
  summary.timed_steps = 15;
  summary.avg_forward = 0.002 + 1e-4 * run.seed;
  summary.avg_backward = 0.004;
  summary.avg_forward_mem = 1.5;
  summary.avg_backward_mem = 3;
  summary.acc = run.test_acc;
  summary.epochs = run.epochs;
  if (run.test_iou) {
    summary.test_iou = 0.75 * *run.test_iou;
    summary.test_class_iou = {{"cat", *run.test_iou}, {"dog", 0.5 * *run.test_iou}};
  }
  write_text(folder + "/summary.json", to_json_text(summary));
  return folder;
}

}  // namespace convscope::testing
