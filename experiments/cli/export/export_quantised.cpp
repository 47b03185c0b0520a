// SPDX-License-Identifier: Apache-2.0
// export_quantised.cpp: `convscope export RUN --quantised OUT`: writes a quantised run as integer
// weights and step sizes (quant/quantized_file.h), reads the file back and compares the outputs.
#include <fmt/format.h>

#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/cli/export/export_forms.h"
#include "experiments/config/build.h"
#include "experiments/trainer/checkpoint.h"
#include "framework/io/safetensors.h"

namespace convscope {
namespace {

// Returns one row of the table of layers.
std::string row_of(const std::string& name, const Quantizer& quantizer, std::int64_t bytes) {
  const QuantizerOptions& options = quantizer.options();
  return fmt::format("{:<28} {:>5} {:>9} {:>12}\n", name, options.bits,
                     options.channels > 0 ? options.channels : 1, bytes);
}

std::string weight_table(Module& model, const SafetensorsFile& file) {
  std::string text = fmt::format("{:<28} {:>5} {:>9} {:>12}\n", "weight", "bits", "steps", "bytes");
  for (const QuantizedTensor& tensor : quantized_tensors(model)) {
    if (!tensor.is_weight) continue;
    const std::string prefix = tensor.layer.empty() ? "" : tensor.layer + ".";
    if (const Tensor* const codes = file.find(prefix + "weight.codes"); codes != nullptr) {
      const Tensor* const kept = file.find(prefix + "weight.kept");  // where zeros are omitted
      text += row_of(tensor.layer, *tensor.quantizer,
                     codes->size_bytes() + (kept == nullptr ? 0 : kept->size_bytes()));
    }
  }
  return text;
}

}  // namespace

void export_quantised(const ExportArguments& arguments) {
  const TrainedNetwork trained = trained_network(arguments);
  if (!trained.config.quant) {
    fail(ErrorKind::kConfig, "export",
         cat("expected a run with a block 'quant', because --quantised writes integer codes, got ",
             trained.run, " without"));
  }
  const std::string& path = arguments.quantised;
  save_quantized_model(path, *trained.model, trained.state, to_yaml(trained.config));

  const ExperimentConfig config = parse_config_text(checkpoint_config(path), path);
  const std::shared_ptr<Module> again = build_model(config, trained.sample, trained.classes);
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
  const double f32_bytes = 4.0 * static_cast<double>(again->parameter_count());
  std::string text = weight_table(*again, read_safetensors(path));
  text += fmt::format(
      "outputs     differ by {} from those of the run (up to {:.3g}, {} random images)\n",
      gap.largest, gap.largest_output, kExportChecks * config.data.batch_size);
  text += fmt::format("written     {}, {} bytes; its parameters in f32 would be {:.0f}\n", path,
                      std::filesystem::file_size(path), f32_bytes);
  print_screen(text);
}

}  // namespace convscope
