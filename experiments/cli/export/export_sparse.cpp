// SPDX-License-Identifier: Apache-2.0
// export_sparse.cpp: `convscope export RUN --sparse OUT`: writes a pruned run without its pruned
// weights (sparsity/file/sparse_file.h), reads the file back and compares the outputs.
#include <fmt/format.h>

#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/cli/export/export_forms.h"
#include "experiments/config/build.h"
#include "experiments/config/build_pruner.h"
#include "experiments/trainer/checkpoint.h"
#include "sparsity/file/sparse_file.h"

namespace convscope {
namespace {

std::string weight_table(const std::string& path, Module& model) {
  std::string text = fmt::format("{:<28} {:>9} {:>9} {:>9} {:>9} {:>12}\n", "weight", "weights",
                                 "kept", "pieces", "index", "bytes");
  for (const SparseWeightFacts& row : sparse_weight_facts(read_safetensors(path), model)) {
    const std::string piece =
        row.piece_rows > 0 ? cat(row.piece_rows, "x", row.piece_columns) : std::string("-");
    text += fmt::format("{:<28} {:>9} {:>9} {:>9} {:>9} {:>12}\n", row.name, row.weights, row.kept,
                        piece, row.index, row.bytes);
  }
  return text;
}

}  // namespace

void export_sparse(const ExportArguments& arguments) {
  const TrainedNetwork trained = trained_network(arguments);
  if (trained.pruner == nullptr) {
    fail(ErrorKind::kConfig, "export",
         cat("expected a run with masks, because --sparse leaves out pruned weights, got ",
             trained.run, " without"));
  }
  if (trained.config.quant) {
    fail(ErrorKind::kConfig, "export",
         cat("expected a run without a block 'quant', because --sparse writes f32 weights and "
             "--quantised writes codes, got ",
             trained.run, " with one"));
  }
  const std::string& path = arguments.sparse;
  save_sparse_model(path, *trained.model, trained.state, to_yaml(trained.config));

  const ExperimentConfig config = parse_config_text(checkpoint_config(path), path);
  const std::shared_ptr<Module> again = build_model(config, trained.sample, trained.classes);
  const std::unique_ptr<Pruner> masks = build_pruner(config, *again, nullptr, trained.sample, 0);
  load_checkpoint(path, *again, nullptr);
  Shape batch = {config.data.batch_size};
  for (const std::int64_t size : trained.sample) batch.push_back(size);
  const OutputDifference gap = difference(*trained.model, *again, batch, config.device);
  if (config.device.type == DeviceType::cpu && gap.largest != 0) {
    fail(ErrorKind::kRun, "export",
         cat("expected the network that ", path,
             " gives to compute the same bits as the run's, got outputs that differ by up to ",
             gap.largest));
  }
  std::string text = weight_table(path, *again);
  text += fmt::format(
      "outputs     differ by {} from those of the run (up to {:.3g}, {} random images)\n",
      gap.largest, gap.largest_output, kExportChecks * config.data.batch_size);
  text += fmt::format("written     {}, {} bytes; its parameters in f32 would be {:.0f}\n", path,
                      std::filesystem::file_size(path),
                      4.0 * static_cast<double>(again->parameter_count()));
  print_screen(text);
}

}  // namespace convscope
