// SPDX-License-Identifier: Apache-2.0
// pruner_test.cpp: tests pruning during training: the values and the optimiser state of weights
// while they are pruned, and after they return.
#include "sparsity/pruner.h"

#include <cmath>

#include "optim/optimizer.h"
#include "sparsity/rigl.h"
#include "tests/sparsity/networks.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

using Text = std::string;
using Given = std::map<std::string, OptionValue>;

struct Training {
  Training(const Given& given, std::int64_t steps, const Text& optimizer_name = "sgd",
           bool batch_norm = false)
      : model(small_network(3, batch_norm)), pruner(*model, kImage, options_of(given), steps, 5) {
    ParameterGroup group{.parameters = {}, .weight_decay = 0.01};
    for (const NamedParameter& parameter : model->parameters()) {
      group.parameters.push_back({parameter.name, parameter.variable});
    }
    const OptimizerType& type = optimizer_types().get(optimizer_name);
    Options options(type.fields);
    if (optimizer_name == "sgd") options.set("momentum", 0.9);
    optimizer = type.build({group}, options);
    std::vector<NamedTensor> state;
    for (const OptimState& entry : optimizer->state()) state.push_back({entry.name, entry.tensor});
    pruner.bind_optimizer_state(state);
  }

  bool step() {
    bool changed = pruner.before_step(done);
    model->zero_grad();
    const Variable x(random_tensor({4, 2, 10, 10}, 100 + static_cast<std::uint64_t>(done)));
    const Variable y = model->forward(x);
    y.backward(random_tensor(y.shape(), 200 + static_cast<std::uint64_t>(done)));
    optimizer->step(0.01);
    ++done;
    return pruner.after_step(done) || changed;
  }

  Tensor weight(std::size_t layer) const { return pruner.network().layers[layer].weight(); }
  Tensor keep(std::size_t layer) const { return pruner.masks()[layer]; }
  Tensor state(const Text& name) const {
    for (const OptimState& entry : optimizer->state()) {
      if (entry.name == name) return entry.tensor;
    }
    ADD_FAILURE() << name;
    return {};
  }

  std::shared_ptr<Module> model;
  Pruner pruner;
  std::unique_ptr<Optimizer> optimizer;
  std::int64_t done = 0;
};

TEST(Pruner, weights_that_are_out_keep_their_value_bit_by_bit_and_their_state_is_zero) {
  for (const char* optimizer : {"sgd", "adam", "adamw", "lion"}) {
    Training training({{"method", Text("magnitude")},
                       {"schedule", Text("one_shot")},
                       {"target", 0.5},
                       {"start", 0.2}},
                      10, optimizer);
    training.step();
    EXPECT_TRUE(training.step()) << "two of ten steps";
    const std::vector<float> before = values_of(training.weight(1));
    const std::vector<float> keep = values_of(training.keep(1));
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(training.step());
    const std::vector<float> after = values_of(training.weight(1));
    const std::vector<float> state = values_of(training.state(
        Text(optimizer).starts_with("adam") ? "square.c2.weight" : "momentum.c2.weight"));
    int moved = 0, at_work = 0;
    for (std::size_t i = 0; i < keep.size(); ++i) {
      if (keep[i] == 0) {
        EXPECT_EQ(after[i], before[i]) << optimizer << " moved weight " << i;
        EXPECT_EQ(state[i], 0) << optimizer;
      } else {
        moved += after[i] != before[i] ? 1 : 0;
        at_work += state[i] != 0 ? 1 : 0;
      }
    }
    EXPECT_GT(moved, 50) << optimizer;
    EXPECT_GT(at_work, 50) << optimizer;
  }
}

TEST(Pruner, a_weight_that_returns_has_its_old_value) {
  Training training({{"method", Text("magnitude")},
                     {"target", 0.5},
                     {"start", 0.0},
                     {"end", 1.0},
                     {"every_steps", std::int64_t{1}},
                     {"schedule", Text("cubic")}},
                    40);
  for (int i = 0; i < 20; ++i) training.step();
  const float* momentum = training.state("momentum.f3.weight").data<float>();
  const std::vector<float> keep = values_of(training.keep(2));
  const std::vector<float> values = values_of(training.weight(2));
  // The test makes all kept weights tiny. Then all pruned weights have larger magnitudes, so the
  // next update of the mask must keep them again.
  float* w = training.weight(2).data<float>();
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (keep[i] != 0) w[i] = 1e-7f * static_cast<float>(i + 1);
  }
  training.step();
  const std::vector<float> now = values_of(training.keep(2));
  int returned = 0;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (keep[i] != 0 || now[i] == 0) continue;
    ++returned;
    EXPECT_EQ(w[i], values[i]);
    EXPECT_EQ(momentum[i], 0) << "it returns at rest";
  }
  EXPECT_GT(returned, 20);
}

TEST(Pruner, the_network_computes_with_the_masked_weights) {
  Training training({{"method", Text("magnitude")},
                     {"schedule", Text("one_shot")},
                     {"target", 0.6},
                     {"start", 0.0}},
                    10);
  training.pruner.before_step(0);
  training.model->eval();
  const Variable x(random_tensor({2, 2, 10, 10}, 9));
  const NoGrad no_grad;
  const std::vector<float> masked = values_of(training.model->forward(x).value());
  const auto plain = small_network(3);
  const PrunableNetwork network = prunable_network(*plain, kImage);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Tensor w = network.layers[l].weight();
    for (std::int64_t i = 0; i < w.numel(); ++i)
      w.data<float>()[i] *= training.keep(l).data<float>()[i];
  }
  EXPECT_EQ(values_of(plain->forward(x).value()), masked);
}

TEST(Pruner, transposed_convolutions_are_pruned_like_the_others_but_not_by_whole_filters) {
  const auto build = [] {
    LayerContext context;
    return build_layers(
        {layer("conv2d", "c1", 4), layer("conv_transpose2d", "up", 6), layer("conv2d", "c2", 3)},
        kImage, context);
  };
  const auto model = build(), plain = build();
  Pruner pruner(*model, kImage, options_of({{"method", Text("magnitude")}, {"target", 0.6}}), 10,
                1);
  pruner.prune_now();
  const std::vector<Tensor> masks = pruner.masks();
  const PrunableNetwork network = prunable_network(*plain, kImage);
  ASSERT_EQ(network.layers.size(), 3u);
  for (std::size_t l = 0; l < masks.size(); ++l) {
    EXPECT_GT(zeros_in(masks[l]), 0) << network.layers[l].name;
    const Tensor w = network.layers[l].weight();
    for (std::int64_t i = 0; i < w.numel(); ++i) {
      w.data<float>()[i] *= masks[l].data<float>()[i];
    }
  }
  const Variable x(random_tensor(kImage, 9));
  EXPECT_EQ(values_of(plain->forward(x).value()), values_of(model->forward(x).value()));
  EXPECT_ERROR(
      ErrorKind::kConfig,
      "cut the next layer too, got: 'up' (conv_transpose2d) has its input channels in the "
      "rows of its weight",
      Pruner(*build(), kImage, options_of({{"method", Text("filter")}, {"target", 0.5}}), 10, 1));
}

TEST(Pruner, dense_gradient_goes_on_training_pruned_weights) {
  for (const bool dense : {false, true}) {
    Training training({{"method", Text("magnitude")},
                       {"schedule", Text("one_shot")},
                       {"target", 0.5},
                       {"start", 0.0},
                       {"gradient", Text(dense ? "dense" : "masked")}},
                      10);
    training.pruner.before_step(0);
    const std::vector<float> before = values_of(training.weight(2));
    training.step();
    const std::vector<float> after = values_of(training.weight(2));
    int moved = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      moved += training.keep(2).data<float>()[i] == 0 && after[i] != before[i] ? 1 : 0;
    }
    EXPECT_EQ(moved > 0, dense);
  }
}

TEST(Pruner, excluded_layers_have_no_mask) {
  Training training({{"method", Text("magnitude")},
                     {"exclude", std::vector<Text>{"c1", "f4"}},
                     {"schedule", Text("one_shot")},
                     {"start", 0.0},
                     {"target", 0.5}},
                    4);
  training.step();
  EXPECT_FALSE(training.keep(0).defined());
  EXPECT_FALSE(training.keep(3).defined());
  const SparsityReport report = training.pruner.report(1);
  EXPECT_EQ(report.layers[0].zeros, 0);
  EXPECT_EQ(report.pruned.weights, 216 + 192);
  EXPECT_EQ(report.pruned.zeros, 204);
  EXPECT_EQ(report.total.weights, 72 + 216 + 192 + 24);
}

TEST(Pruner, report_counts_flops_and_alive_outputs) {
  Training training({{"method", Text("filter")},
                     {"schedule", Text("one_shot")},
                     {"start", 0.0},
                     {"target", 0.5},
                     {"exclude", std::vector<Text>{"f3"}}},
                    4);
  training.step();
  const SparsityReport report = training.pruner.report(1);
  const LayerSparsity& c2 = report.layers[1];
  EXPECT_EQ(c2.alive, 3);
  EXPECT_EQ(c2.weights - c2.zeros, 3 * 2 * 9) << "half the filters read half the channels";
  EXPECT_EQ(c2.flops, 2.0 * 216 * 4);
  EXPECT_EQ(c2.flops_left, 2.0 * 54 * 4);
  EXPECT_EQ(report.layers[2].alive, 8);
  EXPECT_EQ(report.layers[2].zeros, 96) << "f3 does not read what c2 does not make";
  const Text csv = sparsity_csv_header() + sparsity_csv_rows(report);
  EXPECT_NE(csv.find("1,0.5,c2,1,216,162,0.25,6,3,1728,432\n"), Text::npos) << csv;
  EXPECT_NE(sparsity_text(report).find("3 of 6"), Text::npos) << sparsity_text(report);
}

TEST(Pruner, names_that_are_not_there_are_refused_with_the_nearest) {
  EXPECT_ERROR(ErrorKind::kConfig, "did you mean 'c1'?",
               Training({{"method", Text("magnitude")}, {"exclude", std::vector<Text>{"c11"}}}, 4));
  EXPECT_ERROR(ErrorKind::kConfig, "at least one layer to prune",
               Training({{"method", Text("magnitude")},
                         {"exclude", std::vector<Text>{"c1", "c2", "f3", "f4"}}},
                        4));
}

TEST(Pruner, a_target_that_empties_a_layer_is_refused_before_training_with_its_name) {
  EXPECT_ERROR(ErrorKind::kConfig, "layer 'c1' without any weight",
               Training({{"method", Text("magnitude")}, {"target", 1.0}}, 4));
  EXPECT_ERROR(ErrorKind::kConfig, "layer 'c1' without any filter",
               Training({{"method", Text("filter")}, {"target", 0.9}}, 4));
}

TEST(Pruner, masks_that_cut_the_network_stop_the_run_and_say_where) {
  Training training({{"method", Text("magnitude")},
                     {"schedule", Text("one_shot")},
                     {"distribution", Text("global")},
                     {"start", 0.5},
                     {"target", 0.9}},
                    4);
  training.step();
  training.weight(1).fill(1e-9);  // one ranking over all layers: c2 loses everything
  training.pruner.before_step(1);
  EXPECT_ERROR(ErrorKind::kRun, "none through layer 'c2'", training.pruner.after_step(2));
}

TEST(Rigl, keeps_the_number_of_weights_and_changes_which) {
  for (const double start : {0.0, 0.2}) {
    Training training({{"method", Text("rigl")},
                       {"target", 0.8},
                       {"distribution", Text("erk")},
                       {"start", start},
                       {"every_steps", std::int64_t{3}}},
                      20);
    std::vector<std::int64_t> zeros;
    std::vector<float> first;
    int changes = 0;
    for (int i = 0; i < 20; ++i) {
      const bool changed = training.step();
      if (training.done < training.pruner.schedule().first_update()) {
        EXPECT_EQ(zeros_in(training.keep(1)), 0);
        continue;
      }
      changes += changed ? 1 : 0;
      std::vector<std::int64_t> now;
      std::int64_t total = 0;
      for (std::size_t l = 0; l < 4; ++l) now.push_back(zeros_in(training.keep(l)));
      for (const std::int64_t z : now) total += z;
      if (zeros.empty()) {
        zeros = now;
        first = values_of(training.keep(1));
        EXPECT_EQ(total, std::llround(0.8 * 504));
      }
      EXPECT_EQ(now, zeros) << "each layer keeps its number, step " << training.done;
    }
    EXPECT_GE(changes, 4);
    EXPECT_NE(values_of(training.keep(1)), first);
  }
}

TEST(Rigl, drops_the_weakest_and_grows_the_largest_gradients_from_zero) {
  Training training({{"method", Text("rigl")},
                     {"target", 0.5},
                     {"start", 0.0},
                     {"end", 1.0},
                     {"drop_fraction", 0.4},
                     {"every_steps", std::int64_t{3}}},
                    12);
  training.step();
  training.step();
  const std::vector<float> before = values_of(training.keep(2));
  const std::vector<float> momentum_before = values_of(training.state("momentum.f3.weight"));
  EXPECT_TRUE(training.step());
  const std::vector<float> now = values_of(training.keep(2));
  int grown = 0, dropped = 0;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (before[i] == 0 && now[i] != 0) {
      ++grown;
      EXPECT_EQ(training.weight(2).data<float>()[i], 0.0f);
      EXPECT_EQ(training.state("momentum.f3.weight").data<float>()[i], 0.0f);
    }
    dropped += before[i] != 0 && now[i] == 0 ? 1 : 0;
  }
  EXPECT_EQ(grown, dropped);
  EXPECT_GT(grown, 5);
}

TEST(Rigl, grows_where_the_gradient_is_largest_and_keeps_what_it_takes_back) {
  // The kept weights are 5, 1 and 4, so the update drops the 1. The three pruned weights still hold
  // their old value, 9.
  const Tensor keep = Tensor::from({1, 1, 1, 0, 0, 0}, {6});
  const Tensor w = Tensor::from({5, 1, 4, 9, 9, 9}, {6});
  EXPECT_EQ(drop_and_grow(keep, w, Tensor::from({0, 0.5f, 0, 1, -3, 2}, {6}), 1),
            (std::vector<std::int64_t>{4}));
  EXPECT_EQ(values_of(keep), (std::vector<float>{1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(values_of(w), (std::vector<float>{5, 1, 4, 9, 0, 9}));
  // Weight 4, which the first update has grown, is now the smallest and is dropped. But its
  // gradient is the largest, so the same update grows it again, and the mask stays the same.
  w.data<float>()[4] = 0.25f;
  EXPECT_TRUE(drop_and_grow(keep, w, Tensor::from({0, 0.5f, 0, 1, -3, 2}, {6}), 1).empty());
  EXPECT_EQ(values_of(keep), (std::vector<float>{1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(w.at(4), 0.25);
}

// The share is one of the kept weights.
TEST(Rigl, replaces_the_share_that_the_schedule_says) {
  Training training({{"method", Text("rigl")},
                     {"target", 0.75},
                     {"distribution", Text("uniform")},
                     {"start", 0.0},
                     {"end", 1.0},
                     {"drop_fraction", 0.4},
                     {"every_steps", std::int64_t{3}}},
                    12);
  training.step();
  training.step();
  const std::vector<float> before = values_of(training.keep(2));
  ASSERT_TRUE(training.step());
  const std::vector<float> now = values_of(training.keep(2));
  std::int64_t in = 0, dropped = 0;
  for (std::size_t i = 0; i < now.size(); ++i) {
    in += before[i] != 0 ? 1 : 0;
    dropped += before[i] != 0 && now[i] == 0 ? 1 : 0;
  }
  // An update may drop a weight and grow it again at once. Such a weight is not counted here, so
  // the count is at most the share.
  EXPECT_GT(dropped, 0);
  EXPECT_LE(dropped,
            std::llround(training.pruner.schedule().replaced(3) * static_cast<double>(in)));
}

TEST(Pruner, the_same_steps_give_the_same_bits_and_a_copy_of_the_state_goes_on_with_them) {
  for (const char* method : {"magnitude", "filter", "rigl", "block", "n_m"}) {
    Given given = {{"method", Text(method)},
                   {"target", 0.5},
                   {"start", 0.1},
                   {"every_steps", std::int64_t{2}}};
    Training whole(given, 20), first(given, 20), rest(given, 20);
    for (int i = 0; i < 20; ++i) whole.step();
    for (int i = 0; i < 9; ++i) first.step();
    // The test copies what a checkpoint contains: parameters, buffers, optimiser state, number of
    // steps.
    const auto from = first.model->parameters(), to = rest.model->parameters();
    for (std::size_t i = 0; i < from.size(); ++i) {
      to[i].variable.value().copy_from(from[i].variable.value());
    }
    const auto buffers = first.model->buffers(), target = rest.model->buffers();
    ASSERT_EQ(buffers.size(), 4u);
    EXPECT_EQ(buffers[0].name, "c1.mask.keep");
    for (std::size_t i = 0; i < buffers.size(); ++i) target[i].tensor.copy_from(buffers[i].tensor);
    const auto state = first.optimizer->state(), into = rest.optimizer->state();
    for (std::size_t i = 0; i < state.size(); ++i) into[i].tensor.copy_from(state[i].tensor);
    rest.done = first.done;
    for (int i = 9; i < 20; ++i) rest.step();
    for (std::size_t l = 0; l < 4; ++l) {
      EXPECT_EQ(values_of(rest.weight(l)), values_of(whole.weight(l))) << method << " " << l;
      EXPECT_EQ(values_of(rest.keep(l)), values_of(whole.keep(l))) << method << " " << l;
    }
  }
}

}  // namespace
}  // namespace convscope::testing
