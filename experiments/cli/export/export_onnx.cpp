// SPDX-License-Identifier: Apache-2.0
// export_onnx.cpp: `convscope export RUN --onnx OUT`: a trained network as an ONNX file
// (experiments/export/onnx_network.h maps layers to operators).
#include <cstdio>
#include <map>

#include "experiments/cli/command.h"
#include "experiments/cli/export/export_forms.h"
#include "experiments/export/onnx_network.h"
#include "framework/io/atomic_file.h"

namespace convscope {

void export_onnx(const ExportArguments& arguments) {
  const TrainedNetwork trained = trained_network(arguments);
  const OnnxGraph graph = onnx_network(
      *trained.model, trained.sample, trained.config.name,
      {.fold_batch_norm = arguments.fold_batch_norm, .reduce_range = arguments.reduce_range});
  const std::string bytes = onnx_bytes(graph);
  write_file(arguments.onnx, bytes);
  std::map<std::string, int> counts;
  for (const OnnxNode& node : graph.nodes) ++counts[node.op];
  std::string text = "operators  ";
  for (const auto& [op, count] : counts) text += cat(" ", op, " ", count);
  if (arguments.fold_batch_norm) {
    text += cat("\nfolded      ", graph.folded, " batch norms into convolutions, ",
                counts["BatchNormalization"], " stay");
  }
  if (graph.narrowed > 0) {
    text += cat("\nweights     ", graph.narrowed, " of 8 bits are written with 7 bits");
  }
  text += cat("\nimages      images [N,", trained.sample[0], ",", trained.sample[1], ",",
              trained.sample[2], "], normalised as the config says; result logits [N,",
              trained.classes, "]\nwritten     ", arguments.onnx, ", ", bytes.size(), " bytes\n");
  print_screen(text);
  if (graph.wide > 0) {
    std::fputs(
        "remark: on x64 CPUs without VNNI, ONNX Runtime's integer kernels saturate with weights of "
        "8 bits, and logits can be far off; --reduce-range writes 7 bits, or set the session "
        "option session.x64quantprecision to 1\n",
        stderr);
  }
}

}  // namespace convscope
