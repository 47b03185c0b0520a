// SPDX-License-Identifier: Apache-2.0
// run_summary.h: the results of a run: summary.json, and one row of `convscope report`.
//
//   avg_forward, avg_backward   mean wall seconds of a step's forward (network and loss) and
//                               backward
//   avg_step                    mean wall seconds of forward, backward and update together
//   phases                      "timed apart"; or "whole step": the phases of a step are not timed
//                               separately, and avg_forward, avg_backward, avg_update are 0; or
//                               "mixed"
//   avg_forward_mem             MiB allocated at the end of a step's forward, mean over steps
//   avg_backward_mem            peak MiB in a step's backward, mean over steps: parameters,
//                               gradients, optimiser state, activations and workspace, but not
//                               the data sets
//   peak_workspace              peak MiB of scratch memory in any step
//   avg_inference               wall seconds of a batch of batch_size images in inference with the
//                               final weights, as executed: the median of many batches at the end
//                               of the run; null until then
//                               (trainer/evaluation/evaluator.h)
//   weight_bytes                bytes of the trained weights as stored at the end of the run
//                               (report/weight_size.h); null until then
//   acc                         test accuracy in percent after the last evaluated epoch
//   test_top5                   top-5 accuracy on the test images in percent, with more than 5
//                               classes; a run with recorded steps measures it at its end
//   test_iou, test_class_iou    with a class for each pixel: mean intersection over union on the
//                               test images in percent, and that of each class (null: the class
//                               does not occur); the accuracies then count pixels
//   execution                   what runs: execution_text()
//   step                        how most steps ran: "recorded" (launched as one), "planned"
//                               (compiled once, then replayed) or "dynamic" (a graph per step)
//   tags, note                  user-defined text from the config; tags as "a, b"
// The means leave out the first kTimingWarmupSteps steps of each process and, with quant.begin, all
// steps before quantisation begins. So all averaged steps have the named `execution`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct RunSummary {
  std::string id, name, data, model;
  std::int64_t batch_size = 0;
  double avg_forward = 0, avg_backward = 0;  // s
  double avg_update = 0, avg_wait = 0;       // s: optimiser; waiting for the next batch
  double avg_exchange = 0;                   // s: part of avg_backward, waiting for other processes
  double avg_step = 0;                       // s
  std::optional<double> avg_inference;       // s
  std::string phases = "timed apart";
  double avg_forward_mem = 0, avg_backward_mem = 0, peak_workspace = 0;  // MiB
  std::optional<double> weight_bytes;
  std::string kernel_size;               // of the convolutions: "5", "7/3"
  std::string execution = "f32 dense";   // what runs
  std::string step;                      // how it runs
  std::string tags, note;                // of the user
  std::string algorithm;                 // of the convolutions: "im2col_gemm"
  std::optional<double> acc, test_loss;  // %, nats
  std::optional<double> test_top5;       // %
  std::optional<double> test_iou;        // %
  std::vector<std::pair<std::string, std::optional<double>>> test_class_iou;  // class name, %
  std::optional<double> val_acc, val_loss;
  std::optional<double> best_acc;  // on the split named best_split
  std::int64_t best_epoch = 0;
  std::string best_split;
  double train_acc = 0, train_loss = 0;  // over the last epoch during training
  std::string device, isa;
  std::string device_name;        // "NVIDIA H200"; empty on the CPU
  std::string precision = "f32";  // of the operands: f32, tf32, bf16, f16
  std::int64_t threads = 0;
  std::int64_t ranks = 1;  // number of processes; threads are per process
  double images_per_s = 0;
  std::int64_t epochs = 0, epochs_planned = 0, steps = 0;
  std::int64_t timed_steps = 0;
  std::int64_t seed = 0;
  std::int64_t params = 0;
  double seconds = 0;                   // wall time, evaluation included
  std::int64_t system_allocations = 0;  // during the last epoch: 0 in a steady run
  std::string version;
  // Mean number of cores that other programs kept busy during training (null: unknown), and number
  // of cores of the machine (0: unknown).
  std::optional<double> cores_of_others;
  std::int64_t cores = 0;

  // Returns whether other programs took cores that the run's threads needed, so that its times are
  // unreliable.
  CONVSCOPE_API bool disturbed() const;
};

// Parts of execution_text(). "masked dense": pruned weights are multiplied as zeros. "compact
// dense": pruned outputs are removed. "block-sparse": convolutions skip pruned blocks where this is
// estimated to be faster (see layers.csv). "fake-quant f32": f32 arithmetic on rounded numbers.
// "int8": evaluations use integer arithmetic; training computes in f32 on rounded numbers. During a
// run, the text follows from the config. After the end it says what ran: "masked dense" if
// block-sparse kernels were faster for no layer, "fake-quant f32" if no layer has an integer
// implementation.
enum class Form { dense, masked, compact, sparse };
enum class Arithmetic { f32, fake_quant, int8 };
CONVSCOPE_API std::string execution_text(Arithmetic arithmetic, Form form);

CONVSCOPE_API std::string to_json_text(const RunSummary& summary);
// Parses a summary; throws Error of kind kIo for any other text.
CONVSCOPE_API RunSummary parse_summary(const std::string& json_text);

}  // namespace convscope
