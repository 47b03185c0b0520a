// SPDX-License-Identifier: Apache-2.0
// setup.cpp: makes everything that a run needs from a config.
#include <algorithm>
#include <tuple>

#include "experiments/config/build.h"
#include "experiments/config/build_pruner.h"
#include "experiments/run_folder/layer_table.h"
#include "experiments/trainer/data_sizes.h"
#include "experiments/trainer/memory/memory_need.h"
#include "experiments/trainer/ranks/shared_training.h"
#include "experiments/trainer/trainer.h"
#include "framework/distributed/rank_device.h"
#include "framework/error_phase.h"
#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {
namespace {

struct Splits {
  Dataset train, val, test;
};

// Checks that the config fits into memory; where the sizes of the data set are known in advance,
// before it is loaded. Sets `memory` to the line for the log. Returns the data set.
DatasetSplits load_checked(const ExperimentConfig& whole, const Share& share, std::string& memory) {
  ExperimentConfig config = whole;  // as this process computes it
  config.data.batch_size = images_at_once(whole.data.batch_size, share);
  const DatasetType& type = dataset_types().get(config.data.set);
  if (type.sizes && type.sample_shape) {
    const auto [train, test] = type.sizes(config.data.options);
    check_data_sizes(config.data, train);
    const Shape sample = type.sample_shape(config.data.options);
    memory = in_phase(ErrorKind::kConfig, [&, train = train, test = test] {
      return check_memory(config, {train, test, sample, type.classes});
    });
    return type.load(config.data.options);
  }
  DatasetSplits loaded = type.load(config.data.options);
  check_data_sizes(config.data, loaded.train.size());
  memory = in_phase(ErrorKind::kConfig, [&] {
    return check_memory(config, {loaded.train.size(), loaded.test.size(),
                                 loaded.train.sample_shape(), loaded.train.classes});
  });
  return loaded;
}

// One network reads the training images and the held-out images, so their shapes must agree.
void check_held_out(const Dataset& train, const Dataset& other, const char* name) {
  if (other.size() == 0 || other.sample_shape() == train.sample_shape()) return;
  fail(ErrorKind::kData, "data",
       cat("expected ", name, " samples of the shape of the training samples, ",
           train.sample_shape(), ", because one network reads both, got ", other.sample_shape()));
}

Splits load_splits(const ExperimentConfig& config, const Share& share, std::string& memory) {
  const auto seed = static_cast<std::uint64_t>(config.seed);
  DatasetSplits loaded = load_checked(config, share, memory);
  Splits splits{.train = std::move(loaded.train), .val = {}, .test = std::move(loaded.test)};
  // The validation images do not depend on `limit`.
  if (config.data.val_split > 0) {
    std::tie(splits.train, splits.val) = split(splits.train, config.data.val_split, seed);
  }
  if (config.data.limit > 0) splits.train = limited(splits.train, config.data.limit, seed);
  CONVSCOPE_CHECK(splits.train.size() > 0, "data",
                  "expected at least one training image, got none");
  check_held_out(splits.train, splits.test, "test");
  return splits;
}

std::unique_ptr<Loader> evaluation_loader(Dataset dataset, const ExperimentConfig& config) {
  if (dataset.size() == 0) return nullptr;
  return in_phase(ErrorKind::kData, [&] {
    return std::make_unique<Loader>(std::move(dataset),
                                    LoaderOptions{.batch_size = config.data.batch_size,
                                                  .shuffle = false,
                                                  .seed = static_cast<std::uint64_t>(config.seed),
                                                  .prefetch = config.data.prefetch});
  });
}

}  // namespace

TrainingSetup setup_training(const ExperimentConfig& config) {
  set_num_threads(static_cast<int>(config.threads));
  if (config.threads == 0 && process_group() != nullptr) {
    set_num_threads(std::max(1, num_threads() / process_group()->sharers()));
  }
  if (process_group() != nullptr) check_device_of_rank(*process_group(), config.device);
  backend_of(config.device);  // fails before the data are read
  check_precision(config);
  TrainingSetup setup;
  setup.device = config.device;
  setup.share = share_of(config, process_group());
  const std::int64_t before = memory_stats(config.device).live_bytes;
  Splits splits =
      in_phase(ErrorKind::kData, [&] { return load_splits(config, setup.share, setup.memory); });
  release_cached(Device{});  // memory of the data before the split
  const Shape sample = splits.train.sample_shape();
  const int classes = splits.train.classes;
  const LoaderOptions options{.batch_size = config.data.batch_size,
                              .shuffle = config.data.shuffle,
                              .seed = static_cast<std::uint64_t>(config.seed),
                              .prefetch = config.data.prefetch,
                              .crop_padding = config.data.augment.crop_padding,
                              .mirror = config.data.augment.mirror,
                              .part = setup.share.rank(),
                              .parts = setup.share.size()};
  setup.train = in_phase(
      ErrorKind::kData, [&] { return std::make_unique<Loader>(std::move(splits.train), options); });
  setup.val_images = splits.val.size();
  setup.test_images = splits.test.size();
  if (setup.share.group != nullptr) {
    check_same(*setup.share.group, "training data", checksum_of(setup.train->dataset()));
    const std::int64_t batch = config.data.batch_size;
    if (setup.val_images > 0) splits.val = batches_of_rank(splits.val, batch, setup.share);
    if (setup.test_images > 0) splits.test = batches_of_rank(splits.test, batch, setup.share);
  }
  setup.val = evaluation_loader(std::move(splits.val), config);
  setup.test = evaluation_loader(std::move(splits.test), config);
  setup.data_bytes = memory_stats(config.device).live_bytes - before;

  setup.model = build_model(config, sample, classes);
  setup.optimizer = build_optimizer(config, *setup.model);
  setup.pruner = build_pruner(config, *setup.model, setup.optimizer.get(), sample,
                              setup.train->batches_per_epoch() * config.train.epochs);
  if (config.quant) {
    setup.quant =
        QuantPlan{.begin_step = quant_begin_step(
                      *config.quant, setup.train->batches_per_epoch() * config.train.epochs),
                  .calibration_batches = config.quant->calibration_batches,
                  .on_integers = config.quant->execute != QuantExecute::fake};
  }
  setup.learning_rate = [config](const SchedulePoint& point) {
    return learning_rate(config, point);
  };
  setup.clip_norm = config.optim.clip_grad_norm;
  setup.epochs = config.train.epochs;
  setup.eval_every = std::max<std::int64_t>(1, config.train.eval_every);
  setup.checkpoint_every = config.checkpoint.every_epochs;
  setup.keep_best = config.checkpoint.best;
  setup.log_every = std::max<std::int64_t>(1, config.log.every_steps);
  setup.tensorboard = config.log.tensorboard;
  setup.log_layers = config.log.layers;
  setup.plan = config.train.plan;
  setup.scale_loss = config.precision == ComputePrecision::f16;
  setup.early_stop = config.early_stop;
  setup.expect = config.expect;
  setup.config_yaml = to_yaml(config);

  if (setup.pruner && parse_sparsity(config.sparsity).remove) {
    setup.remove_when_final = true;
    const std::int64_t last_epoch = setup.train->batches_per_epoch() * (config.train.epochs - 1);
    if (!setup.pruner->finished(last_epoch)) {
      fail(ErrorKind::kConfig, "sparsity",
           cat("expected masks that are final before the last epoch begins, because remove: true "
               "trains the smaller network from then on, got end ",
               config.sparsity.number("end"), " of ", config.train.epochs, " epochs"));
    }
  }
  if (config.quant) setup.start_from = config.quant->start_from;
  if (config.sparsity.has("start_from")) setup.start_from = config.sparsity.text("start_from");

  Shape batch = {images_at_once(config.data.batch_size, setup.share)};
  for (std::int64_t size : sample) batch.push_back(size);
  const LayerTable layers = layer_table(*setup.model, batch, config.device, config.train.plan);
  setup.layers_csv = layers.csv;
  setup.facts.name = config.name;
  setup.facts.data = config.data.set;
  setup.facts.model = config.model.type.empty() ? "layers" : config.model.type;
  setup.facts.batch_size = config.data.batch_size;
  setup.facts.kernel_size = layers.kernel_sizes;
  setup.facts.algorithm = layers.algorithms;
  if (setup.pruner) {
    const bool sparse = parse_sparsity(config.sparsity).execute == SparseExecution::sparse;
    setup.form = sparse ? Form::sparse : Form::masked;
  }
  setup.facts.execution =
      execution_text(setup.quant ? setup.quant->arithmetic(0) : Arithmetic::f32, setup.form);
  setup.facts.seed = config.seed;
  setup.facts.tags = join(config.tags, ", ");
  setup.facts.note = config.note;
  setup.facts.device = config.device.str();
  setup.facts.device_name = backend_of(config.device).facts(config.device.index).name;
  setup.facts.precision = name_of(config.precision);
  setup.facts.threads = num_threads();
  setup.facts.ranks = setup.share.size();
  setup.facts.isa = name_of(current_isa());
  setup.facts.params = setup.model->parameter_count();
  setup.facts.version = CONVSCOPE_VERSION;
  return setup;
}

}  // namespace convscope
