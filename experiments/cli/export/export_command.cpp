// SPDX-License-Identifier: Apache-2.0
// export_command.cpp: `convscope export RUN`: writes a trained network in another format: the
// smaller dense network of a pruned run, integer weights, only the unpruned weights, or ONNX.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include "experiments/cli/command.h"
#include "experiments/cli/export/export_forms.h"
#include "experiments/config/build.h"
#include "experiments/export/onnx_network.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/trainer/checkpoint.h"
#include "framework/io/atomic_file.h"
#include "framework/io/output_place.h"
#include "framework/io/safetensors.h"
#include "framework/parallel.h"
#include "framework/random.h"
#include "sparsity/file/sparse_file.h"

namespace convscope {

Tensor random_images(const Shape& shape, std::uint64_t seed) {
  Tensor x = Tensor::empty(shape);
  Generator random(seed, 1);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = random.normal();
  return x;
}

OutputDifference difference(Module& a, Module& b, const Shape& batch, Device device) {
  const NoGrad no_grad;
  a.eval();
  b.eval();
  OutputDifference out;
  for (int i = 0; i < kExportChecks; ++i) {
    const Variable x(random_images(batch, static_cast<std::uint64_t>(i)).to(device));
    const Tensor ya = a.forward(x).value().to(Device{}), yb = b.forward(x).value().to(Device{});
    for (std::int64_t e = 0; e < ya.numel(); ++e) {
      const double gap = std::fabs(ya.at(e) - yb.at(e));
      out.largest = gap <= out.largest ? out.largest : gap;  // NaN is kept
      out.largest_output = std::max(out.largest_output, std::fabs(ya.at(e)));
    }
  }
  return out;
}

TrainedNetwork trained_network(const ExportArguments& arguments) {
  TrainedNetwork out;
  const bool is_file = std::filesystem::is_regular_file(arguments.run);
  out.run = is_file ? arguments.run : resolve_run(arguments.run);
  out.checkpoint =
      is_file ? arguments.run : cat(out.run, "/ckpt/", arguments.weights, ".safetensors");
  if (!is_file) out.config = load_config(out.run + "/config.yaml", global_overrides());
  // If pruned filters were removed before the checkpoint was written, the network in the checkpoint
  // is smaller than that of the run's config.
  if (is_file || (out.config.sparsity.has("remove") && out.config.sparsity.flag("remove"))) {
    out.config = parse_config_text(checkpoint_config(out.checkpoint), out.checkpoint, {},
                                   global_overrides());
  }
  set_num_threads(static_cast<int>(out.config.threads));
  const SampleInfo sample = sample_info(out.config);
  out.sample = sample.shape;
  out.classes = sample.classes;
  out.model = build_model(out.config, sample.shape, sample.classes);
  out.pruner = build_pruner(out.config, *out.model, nullptr, sample.shape, 0);
  out.state = load_checkpoint(out.checkpoint, *out.model, nullptr);
  return out;
}

namespace {

// Writes the network as an ONNX file (experiments/export/onnx_network.h maps layers to operators).
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
  std::string sizes;  // of the logits of an image
  const Shape logits = trained.model->output_shape(batch_shape(1, trained.sample));
  for (int axis = 1; axis < logits.rank(); ++axis) sizes += cat(",", logits[axis]);
  text += cat("\nimages      images [N,", trained.sample[0], ",", trained.sample[1], ",",
              trained.sample[2], "], normalised as the config says; result logits [N", sizes,
              "]\nwritten     ", arguments.onnx, ", ", bytes.size(), " bytes\n");
  print_screen(text);
  if (graph.wide > 0) {
    std::fputs(
        "remark: on x64 CPUs without VNNI, ONNX Runtime's integer kernels saturate with weights of "
        "8 bits, and logits can be far off; --reduce-range writes 7 bits, or set the session "
        "option session.x64quantprecision to 1\n",
        stderr);
  }
}

// A network that was read back from its file, and what is printed about the file.
struct WrittenNetwork {
  std::shared_ptr<Module> model;
  std::unique_ptr<Pruner> masks;
  std::string text;
};

// Reads a written file back. Fails unless the network computes the same bits on a CPU as the run's.
WrittenNetwork read_back(const TrainedNetwork& trained, const std::string& path, bool has_masks) {
  const ExperimentConfig config = parse_config_text(checkpoint_config(path), path);
  WrittenNetwork out;
  out.model = build_model(config, trained.sample, trained.classes);
  if (has_masks) out.masks = build_pruner(config, *out.model, nullptr, trained.sample, 0);
  load_checkpoint(path, *out.model, nullptr);
  const Shape batch = batch_shape(config.data.batch_size, trained.sample);
  const OutputDifference gap = difference(*trained.model, *out.model, batch, config.device);
  if (config.device.type == DeviceType::cpu && gap.largest != 0) {
    fail(ErrorKind::kRun, "export",
         cat("expected the network that ", path,
             " gives to compute the same bits as the run's, got outputs that differ by up to ",
             gap.largest));
  }
  out.text = fmt::format(
      "outputs     differ by {} from those of the run (up to {:.3g}, {} random images)\n"
      "written     {}, {} bytes; its parameters in f32 would be {:.0f}\n",
      gap.largest, gap.largest_output, kExportChecks * config.data.batch_size, path,
      std::filesystem::file_size(path), 4.0 * static_cast<double>(out.model->parameter_count()));
  return out;
}

// Returns one row of the table of layers.
std::string row_of(const std::string& name, const Quantizer& quantizer, std::int64_t bytes) {
  const QuantizerOptions& options = quantizer.options();
  return fmt::format("{:<28} {:>5} {:>9} {:>12}\n", name, options.bits,
                     options.channels > 0 ? options.channels : 1, bytes);
}

std::string code_table(Module& model, const SafetensorsFile& file) {
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

// Writes a quantised run as integer weights and step sizes (quant/quantized_file.h).
void export_quantised(const ExportArguments& arguments) {
  const TrainedNetwork trained = trained_network(arguments);
  if (!trained.config.quant) {
    fail(ErrorKind::kConfig, "export",
         cat("expected a run with a block 'quant', because --quantised writes integer codes, got ",
             trained.run, " without"));
  }
  const std::string& path = arguments.quantised;
  save_quantized_model(path, *trained.model, trained.state, to_yaml(trained.config));

  const WrittenNetwork written = read_back(trained, path, /*has_masks=*/false);
  print_screen(code_table(*written.model, read_safetensors(path)) + written.text);
}

std::string piece_table(const std::string& path, Module& model) {
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

// Writes a pruned run without its pruned weights (sparsity/file/sparse_file.h).
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

  const WrittenNetwork written = read_back(trained, path, /*has_masks=*/true);
  print_screen(piece_table(path, *written.model) + written.text);
}

int run(const ExportArguments& arguments) {
  if (arguments.compact.empty() && arguments.quantised.empty() && arguments.sparse.empty() &&
      arguments.onnx.empty()) {
    fail_usage("export",
               "expected --compact OUT, --quantised OUT, --sparse OUT or --onnx OUT, got none of "
               "them");
  }
  if (arguments.fold_batch_norm && arguments.onnx.empty()) {
    fail_usage("export", "expected --onnx OUT with --fold-batch-norm, got none");
  }
  if (arguments.reduce_range && arguments.onnx.empty()) {
    fail_usage("export", "expected --onnx OUT with --reduce-range, got none");
  }
  check_output_files({arguments.compact, arguments.quantised, arguments.sparse, arguments.onnx});
  if (!arguments.compact.empty()) export_compact(arguments);
  if (!arguments.quantised.empty()) export_quantised(arguments);
  if (!arguments.sparse.empty()) export_sparse(arguments);
  if (!arguments.onnx.empty()) export_onnx(arguments);
  return 0;
}

std::function<int()> declare_export(CommandLine& app) {
  auto arguments = std::make_shared<ExportArguments>();
  app.add_option("RUN", arguments->run,
                 "run folder; or (except for --compact) a .safetensors checkpoint of convscope")
      ->required();
  app.add_option("--compact", arguments->compact,
                 "output checkpoint without the channels that the masks remove")
      ->type_name("OUT");
  app.add_option("--quantised", arguments->quantised,
                 "output model of a quantised network: integer codes and steps")
      ->type_name("OUT");
  app.add_option("--sparse", arguments->sparse,
                 "output model of a pruned network, without the pruned weights")
      ->type_name("OUT");
  app.add_option("--onnx", arguments->onnx,
                 "output ONNX file; quantised networks get QuantizeLinear and DequantizeLinear")
      ->type_name("OUT");
  app.add_flag("--fold-batch-norm", arguments->fold_batch_norm,
               "with --onnx: batch norms folded into the convolutions before them");
  app.add_flag("--reduce-range", arguments->reduce_range,
               "with --onnx: 8-bit weights written with 7 bits, so that integer kernels of x64 "
               "CPUs without VNNI do not saturate");
  app.add_option("--weights", arguments->weights, "weights: last or best")
      ->type_name("W")
      ->capture_default_str()
      ->one_of({"last", "best"});
  return [arguments] { return run(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "export",
    {.summary = "Export a trained network: compact, integer, sparse or ONNX.",
     .usage = "export RUN|FILE [--compact OUT] [--quantised OUT] [--sparse OUT] [--onnx OUT "
              "[--fold-batch-norm] [--reduce-range]] [--weights last|best]",
     .examples = {"export runs/pruned --compact small.safetensors",
                  "export runs/quantised --quantised codes.safetensors",
                  "export runs/pruned --sparse kept.safetensors",
                  "export runs/quickstart --onnx net.onnx",
                  "export runs/resnet --onnx net.onnx --fold-batch-norm",
                  "export runs/quantised --onnx net.onnx --reduce-range"},
     .order = 35,
     .declare = convscope::declare_export})
