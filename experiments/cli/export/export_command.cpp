// SPDX-License-Identifier: Apache-2.0
// export_command.cpp: `convscope export RUN`: writes a trained network in another format: the
// smaller dense network of a pruned run, integer weights, only the unpruned weights, or ONNX.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/cli/export/export_forms.h"
#include "experiments/config/build.h"
#include "experiments/config/build_pruner.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/trainer/checkpoint.h"
#include "framework/io/output_place.h"
#include "framework/parallel.h"
#include "framework/random.h"

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
      ->required()
      ->type_name("");
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
