// SPDX-License-Identifier: Apache-2.0
// run_summary.h: what a run comes down to: summary.json, and one row of `convscope report`.
//
//   avg_forward, avg_backward   mean wall seconds of a step's forward (network and loss) and
//                               backward
//   avg_step                    the same of forward, backward and update together
//   phases                      "timed apart"; or "whole step": it runs as one piece of work that
//                               cannot be cut, and then the three are 0; or "mixed"
//   avg_forward_mem             MiB that a step's forward leaves allocated, mean over steps
//   avg_backward_mem            MiB in use at the highest moment of a step's backward, mean over
//                               steps: parameters, gradients, optimiser state, activations and
//                               workspace, but not the data sets
//   peak_workspace              MiB of scratch memory at the highest moment of any step
//   avg_inference               wall seconds of a batch of batch_size images in inference with the
//                               final weights, as it is really executed: the median of many
//                               batches, taken when the run ends; null before
//                               (trainer/evaluation/inference_time.h)
//   weight_bytes                of the trained weights as they are really stored when the run ends
//                               (report/weight_size.h); null before
//   acc                         test accuracy in percent after the last epoch that was evaluated
//   execution                   what really runs: execution_text()
//   step                        how most steps ran: "recorded" (launched as one), "planned" (once,
//                               then replayed) or "dynamic" (a graph for each step)
//   tags, note                  the user's own words from the config; tags as "a, b"
// The first kTimingWarmupSteps steps of each process are left out of the means; so are, in a run
// with quant.begin, all steps before it: the means are those of what `execution` names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "framework/export.h"

namespace convscope {

struct RunSummary {
  std::string id, name, data, model;
  std::int64_t batch_size = 0;
  double avg_forward = 0, avg_backward = 0;  // s
  double avg_update = 0, avg_wait = 0;       // s: optimiser; waiting for the next batch
  double avg_exchange = 0;                   // s: of avg_backward, waiting for other processes
  double avg_step = 0;                       // s
  std::optional<double> avg_inference;       // s
  std::string phases = "timed apart";
  double avg_forward_mem = 0, avg_backward_mem = 0, peak_workspace = 0;  // MiB
  std::optional<double> weight_bytes;
  std::string kernel_size;               // of the convolutions: "5", "7/3"
  std::string execution = "f32 dense";   // what really runs
  std::string step;                      // how
  std::string tags, note;                // of the user
  std::string algorithm;                 // of the convolutions: "im2col_gemm"
  std::optional<double> acc, test_loss;  // %, nats
  std::optional<double> val_acc, val_loss;
  std::optional<double> best_acc;  // of the split named best_split
  std::int64_t best_epoch = 0;
  std::string best_split;
  double train_acc = 0, train_loss = 0;  // over the last epoch, while it was trained
  std::string device, isa;
  std::string device_name;        // "NVIDIA H200"; empty on the CPU
  std::string precision = "f32";  // of the factors: f32, tf32, bf16, f16
  std::int64_t threads = 0;
  std::int64_t ranks = 1;  // processes that trained together; threads are those of each
  double images_per_s = 0;
  std::int64_t epochs = 0, epochs_planned = 0, steps = 0;
  std::int64_t timed_steps = 0;
  std::int64_t seed = 0;
  std::int64_t params = 0;
  double seconds = 0;                   // wall time, evaluation included
  std::int64_t system_allocations = 0;  // during the last epoch: 0 in a steady run
  std::string version;
  // How many cores other programs kept busy while this process trained, of how many; null and 0:
  // nobody counted.
  std::optional<double> cores_of_others;
  std::int64_t cores = 0;

  // Other programs took cores that the run's threads wanted: its times are not to be trusted.
  CONVSCOPE_API bool disturbed() const;
};

// "f32 dense", "masked dense" (zeros are multiplied like any number), "compact dense" (pruned
// outputs are no longer there), "fake-quant f32" (f32 arithmetic on rounded numbers), "int8"
// (evaluations multiply codes; training rounds in f32), "fake-quant f32, masked dense", ..;
// "block-sparse": convolutions skip the blocks that are out, where that is estimated to be faster
// (layers.csv says which). While a run goes on, what its config asks for; once it has ended, what
// ran: "masked dense" where no layer was faster in blocks, "fake-quant f32" where none has an
// integer form.
enum class Form { dense, masked, compact, sparse };
enum class Arithmetic { f32, fake_quant, int8 };
CONVSCOPE_API std::string execution_text(Arithmetic arithmetic, Form form);

CONVSCOPE_API std::string to_json_text(const RunSummary& summary);
// Throws Error of kind kIo when the text is no summary.
CONVSCOPE_API RunSummary parse_summary(const std::string& json_text);

}  // namespace convscope
