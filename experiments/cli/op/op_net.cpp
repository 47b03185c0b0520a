// SPDX-License-Identifier: Apache-2.0
// op_net.cpp: `convscope op net`: a whole network on NumPy files: outputs, loss, all gradients.
#include <iostream>
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/cli/nested_commands.h"
#include "experiments/config/build.h"
#include "experiments/run_folder/check_lines.h"
#include "framework/io/npy.h"
#include "framework/io/output_place.h"
#include "framework/io/safetensors.h"
#include "framework/number_text.h"
#include "framework/parallel.h"
#include "layers/losses/loss.h"

namespace convscope {
namespace {

constexpr const char* kCommand = "op net";

struct OpNet {
  std::string config;
  std::vector<std::string> overrides;
  std::string x, labels, weights;
  std::string out_y, out_gradients, out_weights, out_dx;
  std::string mode = "eval";
  int classes = 0;
};

NamedTensors tensors_of(const Module& network) {
  NamedTensors out;
  for (const NamedParameter& p : network.parameters()) {
    out.push_back({p.name, p.variable.value().to(Device{})});
  }
  for (const NamedTensor& buffer : network.buffers()) {
    out.push_back({buffer.name, buffer.tensor.to(Device{})});
  }
  return out;
}

// Loads the weights; the file must hold exactly the tensors of the network.
void load_weights(const Module& network, const std::string& path) {
  const SafetensorsFile file = read_safetensors(path);
  NamedTensors own;
  for (const NamedParameter& p : network.parameters()) own.push_back({p.name, p.variable.value()});
  for (const NamedTensor& buffer : network.buffers()) own.push_back(buffer);
  for (const NamedTensor& tensor : own) {
    const Tensor* const found = file.find(tensor.name);
    if (found == nullptr || found->shape() != tensor.tensor.shape() ||
        found->dtype() != tensor.tensor.dtype()) {
      fail(ErrorKind::kIo, kCommand,
           cat("expected '", tensor.name, "' ", tensor.tensor.str(), " in ", path, ", got ",
               found == nullptr ? "none" : found->str()));
    }
    tensor.tensor.copy_from(*found);
  }
  if (file.tensors.size() != own.size()) {
    fail(ErrorKind::kIo, kCommand,
         cat("expected the ", own.size(), " tensors of the network in ", path, ", got ",
             file.tensors.size()));
  }
}

void check(const OpNet& op) {
  if (op.mode != "train" && op.mode != "eval") {
    fail_usage(kCommand, cat("expected --mode train or eval, got '", op.mode, "'"));
  }
  const bool backward = !op.out_gradients.empty() || !op.out_dx.empty();
  if (backward && op.labels.empty()) {
    fail_usage(kCommand, "expected --labels because a gradient is asked for");
  }
  if (!backward && op.out_y.empty() && op.out_weights.empty()) {
    fail_usage(kCommand, "expected --out-y, --out-gradients, --out-dx or --out-weights, got none");
  }
}

int run_net(const OpNet& op) {
  check(op);
  std::vector<std::string> overrides = op.overrides;
  for (const std::string& text : global_overrides()) overrides.push_back(text);
  const ExperimentConfig config = load_config(op.config, overrides);
  set_num_threads(static_cast<int>(config.threads));
  const Tensor images = read_npy(op.x);
  CONVSCOPE_CHECK(images.rank() == 4 && images.dtype() == DType::f32, kCommand,
                  "expected x [N,C,H,W] of type f32, got ", images.str());
  check_output_files({op.out_y, op.out_gradients, op.out_weights, op.out_dx});
  measure_this_machine_once();
  const int classes = op.classes > 0 ? op.classes : sample_info(config).classes;
  const std::shared_ptr<Module> network =
      build_model(config, {images.dim(1), images.dim(2), images.dim(3)}, classes);
  if (!op.weights.empty()) load_weights(*network, op.weights);
  network->train(op.mode == "train");
  const Variable x(images.to(config.device), /*requires_grad=*/!op.out_dx.empty());
  const Variable y = network->forward(x);
  if (!op.out_y.empty()) write_npy(op.out_y, y.value().to(Device{}));
  if (!op.labels.empty()) {
    const Tensor labels = read_npy(op.labels);
    const bool has_pixels = y.shape().rank() == 4;
    CONVSCOPE_CHECK(labels.rank() == (has_pixels ? 3 : 1) && labels.dtype() == DType::i32, kCommand,
                    "expected labels ", has_pixels ? "[N,H,W]" : "[N]", " of type i32, got ",
                    labels.str());
    const Loss loss_of(config.train.loss);
    const Variable loss = loss_of(y, labels.to(config.device));
    std::cout << "loss " << real_text(loss.value().item()) << "\n";
    if (!op.out_gradients.empty() || !op.out_dx.empty()) loss.backward();
  }
  if (!op.out_gradients.empty()) {
    NamedTensors gradients;
    for (const NamedParameter& p : network->parameters()) {
      gradients.push_back({p.name, p.variable.grad().to(Device{})});
    }
    write_safetensors(op.out_gradients, gradients);
  }
  if (!op.out_dx.empty()) write_npy(op.out_dx, x.grad().to(Device{}));
  if (!op.out_weights.empty()) write_safetensors(op.out_weights, tensors_of(*network));
  for (const std::string& line : check_lines()) std::cerr << line << "\n";
  return 0;
}

}  // namespace

void declare_op_net(CommandLine& op, std::function<int()>& run) {
  auto net = std::make_shared<OpNet>();
  CommandLine* const app =
      op.add_subcommand("net", "Run the network of a config: outputs, loss, gradients.");
  app->add_option("CONFIG", net->config, "config file (YAML)")->required();
  app->add_option("KEY=VALUE", net->overrides,
                  "values that replace those of the config (optim.lr=0.1)");
  app->add_option("--x", net->x, "images [N,C,H,W], .npy, f4")->required();
  app->add_option("--labels", net->labels,
                  "classes [N], or [N,H,W] for a class of each pixel, i4; required for the loss");
  app->add_option("--weights", net->weights,
                  "parameters and buffers, .safetensors (default: random, from the config's seed)");
  app->add_option("--classes", net->classes, "number of outputs (default: the data set's)")
      ->positive();
  app->add_option("--mode", net->mode, "mode of batch norm and dropout: train or eval")
      ->capture_default_str();
  app->add_option("--out-y", net->out_y, "output file for the outputs, .npy");
  app->add_option("--out-gradients", net->out_gradients,
                  "output file for the gradients of all parameters, .safetensors");
  app->add_option("--out-dx", net->out_dx, "output file for the gradient of the images, .npy");
  app->add_option("--out-weights", net->out_weights,
                  "output file for parameters and buffers after the run");
  app->callback([net, &run] { run = [net] { return run_net(*net); }; });
}

}  // namespace convscope
