// SPDX-License-Identifier: Apache-2.0
// setup.cpp: makes everything that a training needs from a config.
#include "experiments/trainer/setup.h"

#include <algorithm>
#include <tuple>

#include "experiments/config/build.h"
#include "experiments/run_folder/layer_table.h"
#include "experiments/trainer/memory/memory_need.h"
#include "experiments/trainer/ranks/shared_training.h"
#include "framework/distributed/rank_device.h"
#include "framework/error_phase.h"
#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "layers/training_rule.h"

namespace convscope {
namespace {

// Throws when a layer cannot train on `images` images. `images` is one process's share, or one
// part, of a batch of `whole` images.
void check_batch(const TrainingSetup& setup, std::int64_t images, std::int64_t whole) {
  if (images < 1) return;
  const std::int64_t size = setup.train->options().batch_size;
  const std::int64_t all = setup.train->dataset().size();
  require_trainable(
      *setup.model, setup.input(images),
      cat(whole == size ? cat("a batch has ", images, images == 1 ? " image" : " images")
                        : cat("the last batch of an epoch has ", images, " of ", all, " images"),
          setup.share.parts() > 1 ? " in this part" : "", "; try another data.batch_size than ",
          size));
}

struct Splits {
  Dataset train, val, test;
};

// Checks that the config fits into memory; where the sizes of the data set are known in advance,
// before it is loaded. Sets `memory` to the line for the log. Returns the data set.
DatasetSplits load_checked(const ExperimentConfig& config, const Share& share,
                           std::string& memory) {
  const DatasetType& type = dataset_types().get(config.data.set);
  if (type.sizes && type.sample_shape) {
    const auto [train, test] = type.sizes(config.data.options);
    check_data_sizes(config.data, train);
    const Shape sample = type.sample_shape(config.data.options);
    memory = in_phase(ErrorKind::kConfig, [&, train = train, test = test] {
      return check_memory(config,
                          {train, test, sample, type.classes,
                           type.label_shape ? type.label_shape(config.data.options) : Shape{}},
                          share);
    });
    return type.load(config.data.options);
  }
  DatasetSplits loaded = type.load(config.data.options);
  check_data_sizes(config.data, loaded.train.size());
  memory = in_phase(ErrorKind::kConfig, [&] {
    return check_memory(config,
                        {loaded.train.size(), loaded.test.size(), loaded.train.sample_shape(),
                         loaded.train.classes, loaded.train.label_shape()},
                        share);
  });
  return loaded;
}

// One network reads the training images and the held-out images, so their shapes must agree.
void check_held_out(const Dataset& train, const Dataset& other, const char* name) {
  if (other.size() == 0) return;
  if (!(other.sample_shape() == train.sample_shape())) {
    fail(ErrorKind::kData, "data",
         cat("expected ", name, " samples of the shape of the training samples, ",
             train.sample_shape(), ", because one network reads both, got ", other.sample_shape()));
  }
  if (!(other.label_shape() == train.label_shape())) {
    fail(ErrorKind::kData, "data",
         cat("expected ", name, " labels of the shape of the training labels, ",
             train.label_shape(), ", got ", other.label_shape()));
  }
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

std::unique_ptr<Loader> loader_of(Dataset dataset, const LoaderOptions& options) {
  if (dataset.size() == 0) return nullptr;
  return in_phase(ErrorKind::kData,
                  [&] { return std::make_unique<Loader>(std::move(dataset), options); });
}

void load_data(const ExperimentConfig& config, TrainingSetup& setup) {
  const Share& share = setup.share;
  const std::int64_t before = memory_stats(config.device).live_bytes;
  Splits splits =
      in_phase(ErrorKind::kData, [&] { return load_splits(config, share, setup.memory); });
  release_cached(Device{});  // memory of the data before the split
  LoaderOptions held_out{.batch_size = config.data.batch_size,
                         .shuffle = false,
                         .seed = static_cast<std::uint64_t>(config.seed),
                         .prefetch = config.data.prefetch};
  LoaderOptions training = held_out;
  training.shuffle = config.data.shuffle;
  training.crop_padding = config.data.augment.crop_padding;
  training.mirror = config.data.augment.mirror;
  training.part = share.rank();
  training.parts = share.size();
  setup.train = loader_of(std::move(splits.train), training);
  setup.val_images = splits.val.size();
  setup.test_images = splits.test.size();
  if (share.group != nullptr) {
    check_same(*share.group, "training data", checksum_of(setup.train->dataset()));
    const std::int64_t batch = config.data.batch_size;
    if (setup.val_images > 0) splits.val = batches_of_rank(splits.val, batch, share);
    if (setup.test_images > 0) splits.test = batches_of_rank(splits.test, batch, share);
  }
  setup.val = loader_of(std::move(splits.val), held_out);
  setup.test = loader_of(std::move(splits.test), held_out);
  setup.data_bytes = memory_stats(config.device).live_bytes - before;
}

void build_network(const ExperimentConfig& config, TrainingSetup& setup) {
  const Dataset& data = setup.train->dataset();
  const std::int64_t batches = setup.train->batches_per_epoch();
  const std::int64_t steps = batches * config.train.epochs;
  setup.model = build_model(config, data.sample_shape(), data.classes);
  check_labels_fit(config, *setup.model, {data.sample_shape(), data.classes, data.label_shape()});
  setup.optimizer = build_optimizer(config, *setup.model);
  setup.pruner =
      build_pruner(config, *setup.model, setup.optimizer.get(), data.sample_shape(), steps);
  if (config.quant) {
    setup.quant = QuantPlan{.begin_step = quant_begin_step(*config.quant, steps),
                            .calibration_batches = config.quant->calibration_batches,
                            .on_integers = config.quant->execute != QuantExecute::fake};
    setup.start_from = config.quant->start_from;
  }
  if (config.sparsity.has("start_from")) setup.start_from = config.sparsity.text("start_from");
  if (!setup.pruner) return;
  const SparsityOptions sparsity = parse_sparsity(config.sparsity);
  setup.form = sparsity.execute == SparseExecution::sparse ? Form::sparse : Form::masked;
  setup.remove_when_final = sparsity.remove;
  if (sparsity.remove && !setup.pruner->finished(steps - batches)) {
    fail(ErrorKind::kConfig, "sparsity",
         cat("expected masks that are final before the last epoch begins, because remove: true "
             "trains the smaller network from then on, got end ",
             config.sparsity.number("end"), " of ", config.train.epochs, " epochs"));
  }
}

void take_settings(const ExperimentConfig& config, TrainingSetup& setup) {
  setup.learning_rate = [config](const SchedulePoint& point) {
    return learning_rate(config, point);
  };
  setup.loss = Loss(config.train.loss);
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
  setup.evaluate_average = config.optim.ema.evaluate;
  setup.early_stop = config.early_stop;
  setup.expect = config.expect;
  setup.config_yaml = to_yaml(config);
}

void state_facts(const ExperimentConfig& config, TrainingSetup& setup) {
  RunSummary& facts = setup.facts;
  facts.name = config.name;
  facts.data = config.data.set;
  facts.model = config.model.type.empty() ? "layers" : config.model.type;
  facts.batch_size = config.data.batch_size;
  facts.execution =
      execution_text(setup.quant ? setup.quant->arithmetic(0) : Arithmetic::f32, setup.form);
  facts.seed = config.seed;
  facts.tags = join(config.tags, ", ");
  facts.note = config.note;
  facts.device = config.device.str();
  facts.device_name = backend_of(config.device).facts(config.device.index).name;
  facts.precision = name_of(config.precision);
  facts.threads = num_threads();
  facts.ranks = setup.share.size();
  facts.isa = name_of(current_isa());
  facts.version = CONVSCOPE_VERSION;
}

}  // namespace

void check_data_sizes(const DataConfig& data, std::int64_t training_images) {
  if (data.val_split > 0 && data.val_split >= training_images) {
    fail(ErrorKind::kConfig, "data.val_split",
         cat("expected fewer than the ", training_images, " training images of ", data.set,
             ", got ", data.val_split));
  }
  std::int64_t left = training_images - data.val_split;
  if (data.limit > 0) left = std::min(left, data.limit);
  if (left > 0 && data.batch_size > left) {
    fail(ErrorKind::kConfig, "data.batch_size",
         cat("expected at most the ", left, " training images that there are, got ",
             data.batch_size));
  }
}

void check_batches(const TrainingSetup& setup) {
  const std::int64_t all = setup.train->dataset().size();
  const std::int64_t size = setup.train->options().batch_size;
  const Share& share = setup.share;
  for (const std::int64_t whole : {std::min(size, all), all % size}) {
    for (int part = 0; part < share.parts(); ++part) {  // all processes refuse the same configs
      check_batch(
          setup,
          first_of_part(whole, part + 1, share.parts()) - first_of_part(whole, part, share.parts()),
          whole);
    }
  }
}

Shape TrainingSetup::input(std::int64_t images) const {
  return batch_shape(images, train->dataset().sample_shape());
}

Shape TrainingSetup::input() const {
  return input(images_at_once(train->options().batch_size, share));
}

void TrainingSetup::describe_network() {
  const LayerTable layers = layer_table(*model, input(), device, plan, loss);
  layers_csv = layers.csv;
  facts.kernel_size = layers.kernel_sizes;
  facts.algorithm = layers.algorithms;
  facts.params = model->parameter_count();
}

TrainingSetup setup_training(const ExperimentConfig& config) {
  set_num_threads(static_cast<int>(config.threads));
  ProcessGroup* const group = process_group();
  if (config.threads == 0 && group != nullptr) {
    set_num_threads(std::max(1, num_threads() / group->sharers()));
  }
  if (group != nullptr) check_device_of_rank(*group, config.device);
  backend_of(config.device);  // fails before the data are read
  check_precision(config);
  TrainingSetup setup;
  setup.device = config.device;
  setup.share = share_of(config, group);
  load_data(config, setup);
  build_network(config, setup);
  take_settings(config, setup);
  setup.describe_network();
  state_facts(config, setup);
  return setup;
}

}  // namespace convscope
