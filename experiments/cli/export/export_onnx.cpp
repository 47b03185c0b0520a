// SPDX-License-Identifier: Apache-2.0
// export_onnx.cpp: `convscope export RUN --onnx OUT`: a trained network as an ONNX file
// (experiments/export/onnx_network.h says which layers become what).
#include <map>

#include "experiments/cli/command.h"
#include "experiments/cli/export/export_forms.h"
#include "experiments/export/onnx_network.h"
#include "framework/io/atomic_file.h"

namespace convscope {

void export_onnx(const ExportArguments& arguments) {
  const TrainedNetwork trained = trained_network(arguments);
  const OnnxGraph graph = onnx_network(*trained.model, trained.sample, trained.config.name,
                                       {.fold_batch_norm = arguments.fold_batch_norm});
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
  text += cat("\nimages      images [N,", trained.sample[0], ",", trained.sample[1], ",",
              trained.sample[2], "], normalised as the config says; result logits [N,",
              trained.classes, "]\nwritten     ", arguments.onnx, ", ", bytes.size(), " bytes\n");
  print_screen(text);
}

}  // namespace convscope
