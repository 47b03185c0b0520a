// SPDX-License-Identifier: Apache-2.0
// masks_test.cpp: tests which weights are pruned: counts, ranking, blocks, groups, and layers that
// must be pruned together.
#include <cmath>

#include "sparsity/criteria.h"
#include "sparsity/distribution.h"
#include "sparsity/structured.h"
#include "tests/sparsity/networks.h"

namespace convscope::testing {
namespace {

using Text = std::string;
using Integers = std::vector<std::int64_t>;

std::vector<const PrunableLayer*> pointers(const PrunableNetwork& network) {
  std::vector<const PrunableLayer*> out;
  for (const PrunableLayer& layer : network.layers) out.push_back(&layer);
  return out;
}

TEST(PrunableNetwork, finds_who_reads_whose_channels) {
  const auto model = small_network();
  const PrunableNetwork network = prunable_network(*model, kImage);
  ASSERT_TRUE(network.in_line()) << network.no_sequence_reason;
  ASSERT_EQ(network.layers.size(), 4u);
  const PrunableLayer& c2 = network.layers[1];
  EXPECT_EQ(c2.name, "c2");
  EXPECT_EQ(c2.inputs, 4);
  EXPECT_EQ(c2.span, 9);
  EXPECT_EQ(c2.positions, 4);  // 10 -> 8 -> 4 -> 2 pixels a side
  const PrunableLayer& f3 = network.layers[2];
  EXPECT_EQ(f3.inputs, 6) << "the channels of c2, not the features";
  EXPECT_EQ(f3.span, 4);
  EXPECT_EQ(f3.positions, 1);
}

TEST(PrunableNetwork, every_activation_keeps_channels_apart) {
  for (const char* const activation :
       {"relu", "relu6", "tanh", "sigmoid", "silu", "hard_swish", "gelu", "layer_scale"}) {
    LayerContext context;
    const auto model =
        build_layers({layer("conv2d", "c1", 4), layer(activation, "a"), layer("conv2d", "c2", 3)},
                     kImage, context);
    const PrunableNetwork network = prunable_network(*model, kImage);
    EXPECT_TRUE(network.in_line()) << activation << ": " << network.no_sequence_reason;
  }
}

TEST(Magnitude, density_is_exact_to_one_weight_in_every_layer_and_in_total) {
  const auto model = small_network();
  const PrunableNetwork network = prunable_network(*model, kImage);
  for (const char* distribution : {"uniform", "erk", "global"}) {
    for (const double target : {0.0, 0.1, 0.333, 0.5, 0.77, 0.9, 0.97}) {
      const SparsityOptions options = options_of({{"method", Text("magnitude")},
                                                  {"target", target},
                                                  {"distribution", Text(distribution)}});
      const auto layers = pointers(network);
      const std::vector<Tensor> masks = weakest_masks(layers, options, target);
      const std::vector<double> wanted = layer_sparsities(layers, options.distribution, target);
      double zeros = 0, all = 0, layers_wanted = 0;
      for (std::size_t l = 0; l < layers.size(); ++l) {
        const auto n = static_cast<double>(layers[l]->weights());
        const auto in_layer = static_cast<double>(zeros_in(masks[l]));
        if (Text(distribution) != "global") {
          EXPECT_LT(std::fabs(in_layer - wanted[l] * n), 1.0) << distribution << " " << target;
        }
        zeros += in_layer;
        all += n;
        layers_wanted += wanted[l] * n;
      }
      EXPECT_NEAR(layers_wanted, target * all, 1e-6 * all) << distribution << " " << target;
      EXPECT_LE(std::fabs(zeros - target * all), 0.5 + 1e-9) << distribution << " " << target;
    }
  }
}

TEST(Magnitude, every_weight_that_stays_is_at_least_as_large_as_every_one_that_goes) {
  const auto model = small_network();
  const PrunableNetwork network = prunable_network(*model, kImage);
  const std::vector<Tensor> masks =
      weakest_masks(pointers(network), options_of({{"method", Text("magnitude")}}), 0.6);
  for (std::size_t l = 0; l < masks.size(); ++l) {
    float largest_out = 0, smallest_in = 1e9f;
    const Tensor w = network.layers[l].weight();
    for (std::int64_t i = 0; i < w.numel(); ++i) {
      const float strength = std::fabs(w.data<float>()[i]);
      if (masks[l].data<float>()[i] == 0) {
        largest_out = std::max(largest_out, strength);
      } else {
        smallest_in = std::min(smallest_in, strength);
      }
    }
    EXPECT_LE(largest_out, smallest_in);
  }
}

TEST(Magnitude, removes_the_first_of_equal_weights) {
  EXPECT_EQ(drop_weakest({1, 1, 1, 1, 0}, 3), (std::vector<std::uint8_t>{0, 0, 1, 1, 0}));
}

TEST(Distribution, erk_keeps_small_layers_denser_and_none_above_one) {
  const auto model = small_network();
  const PrunableNetwork network = prunable_network(*model, kImage);
  const auto layers = pointers(network);
  const std::vector<double> share = layer_sparsities(layers, SparsityDistribution::erk, 0.5);
  for (const double s : share) {
    EXPECT_GE(s, 0);
    EXPECT_LE(s, 1);
  }
  EXPECT_EQ(share[3], 0) << "f4 has 24 of 504 weights: ERK wants it whole";
  // In pruned layers the share of kept weights is proportional to (K + C + R + S) / (K C R S).
  const double c2 = (6 + 4 + 3 + 3) / 216.0, f3 = (8 + 24) / 192.0;
  EXPECT_NEAR((1 - share[1]) / (1 - share[2]), c2 / f3, 1e-9);
}

TEST(Block, ranks_tiles_by_their_norm_and_drops_them_whole) {
  // A ranking of single weights would drop all weights of the left tile except one. A ranking of
  // tiles must keep the left tile, because its norm is the larger one.
  LayerContext context;
  const auto model = build_layers({layer("linear", "f", 2)}, {1, 4}, context);
  const Tensor w = model->modules()[1].module->weight().value();
  w.copy_from(Tensor::from({9, 0, 1, 1, 0, 0, 1, 1}, {2, 4}));
  const PrunableNetwork network = prunable_network(*model, {1, 4});
  const std::vector<Tensor> masks = weakest_masks(
      pointers(network),
      options_of({{"method", Text("block")}, {"block", Integers{2, 2}}, {"target", 0.5}}), 0.5);
  EXPECT_EQ(values_of(masks[0]), (std::vector<float>{1, 1, 0, 0, 1, 1, 0, 0}));
}

TEST(Block, that_does_not_divide_is_padded) {
  LayerContext context;
  const auto model = build_layers({layer("linear", "f", 5)}, {1, 7}, context);
  const PrunableNetwork network = prunable_network(*model, {1, 7});
  const PieceScores scores = block_scores(network.layers[0].weight(), 5, 7, 4, 3);
  EXPECT_EQ(scores.sizes, (Integers{12, 12, 4, 3, 3, 1}));
  const SparsityOptions options =
      options_of({{"method", Text("block")}, {"block", Integers{4, 3}}, {"target", 0.5}});
  const std::vector<Tensor> masks = weakest_masks(pointers(network), options, 0.5);
  int dropped = 0;
  for (const std::int64_t row : {0, 4}) {
    for (const std::int64_t col : {0, 3, 6}) dropped += masks[0].at(row * 7 + col) == 0 ? 1 : 0;
  }
  EXPECT_EQ(dropped, 3) << "half of six tiles";
  for (std::int64_t k = 0; k < 5; ++k) {
    for (std::int64_t c = 0; c < 7; ++c) {
      EXPECT_EQ(masks[0].at(k * 7 + c), masks[0].at(k / 4 * 4 * 7 + c / 3 * 3));
    }
  }
}

TEST(Block, is_exact_to_one_block_for_any_size) {
  const auto model = small_network();
  const PrunableNetwork network = prunable_network(*model, kImage);
  for (const Integers& block : {Integers{16, 1}, {4, 1}, {1, 8}, {2, 2}, {1, 1}, {3, 5}}) {
    const SparsityOptions options =
        options_of({{"method", Text("block")}, {"block", block}, {"target", 0.8}});
    const std::vector<Tensor> masks = weakest_masks(pointers(network), options, 0.8);
    for (std::size_t l = 0; l < masks.size(); ++l) {
      const PrunableLayer& layer = network.layers[l];
      std::int64_t blocks = 0, dropped = 0;
      for (std::int64_t k = 0; k < layer.rows; k += block[0]) {
        for (std::int64_t c = 0; c < layer.columns; c += block[1]) {
          ++blocks;
          dropped += masks[l].at(k * layer.columns + c) == 0 ? 1 : 0;
        }
      }
      EXPECT_LT(std::fabs(static_cast<double>(dropped) - 0.8 * static_cast<double>(blocks)), 1.0);
    }
  }
}

TEST(Block, that_covers_a_whole_layer_is_refused_with_its_name) {
  const auto model = small_network();
  try {
    Pruner(*model, kImage,
           options_of({{"method", Text("block")}, {"block", Integers{8, 30}}, {"target", 0.5}}), 10,
           1);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(Text(error.what()).find("'c1'"), Text::npos) << error.what();
    EXPECT_NE(Text(error.what()).find("8x30"), Text::npos) << error.what();
  }
}

TEST(NOfM, keeps_the_two_largest_of_each_four_and_pads_the_last_group) {
  LayerContext context;
  const auto model = build_layers({layer("linear", "f", 2)}, {1, 7}, context);
  const Tensor w = model->modules()[1].module->weight().value();
  w.copy_from(Tensor::from({1, -4, 3, 2, 5, 6, 7, 0, 0, 0, 1, 1, 2, 3}, {2, 7}));
  const PrunableNetwork network = prunable_network(*model, {1, 7});
  const SparsityOptions options = options_of({{"method", Text("n_m")}});
  const std::vector<Tensor> masks = weakest_masks(pointers(network), options, options.target);
  EXPECT_EQ(values_of(masks[0]), (std::vector<float>{0, 1, 1, 0, 0, 1, 1,  //
                                                     1, 0, 0, 1, 0, 1, 1}));
  // Half way to 2:4 is 3:4.
  EXPECT_EQ(zeros_in(weakest_masks(pointers(network), options, 0.25)[0]), 2);
}

// Expects that layer l+1 has no unpruned weights for dropped outputs of layer l, and that layer l
// computes no output which layer l+1 does not read.
void expect_tied(const PrunableNetwork& network, const std::vector<Tensor>& masks) {
  for (std::size_t l = 0; l + 1 < network.layers.size(); ++l) {
    const PrunableLayer& made = network.layers[l];
    const PrunableLayer& reads = network.layers[l + 1];
    for (std::int64_t k = 0; k < made.rows; ++k) {
      bool is_made = false, is_read = false;
      for (std::int64_t c = 0; c < made.columns; ++c) {
        is_made = is_made || masks[l].at(k * made.columns + c) != 0;
      }
      for (std::int64_t row = 0; row < reads.rows; ++row) {
        for (std::int64_t c = 0; c < reads.span; ++c) {
          is_read = is_read || masks[l + 1].at(row * reads.columns + k * reads.span + c) != 0;
        }
      }
      EXPECT_EQ(is_made, is_read) << made.name << " output " << k;
    }
  }
}

// A block at the edge has fewer weights and so a smaller norm. A global ranking compares root mean
// squares, so the block with the larger weights is kept.
TEST(Block, at_the_edge_is_not_weaker_for_being_smaller) {
  const auto model = small_network();
  const PrunableNetwork network = prunable_network(*model, kImage);
  std::vector<const PrunableLayer*> layers;
  for (const PrunableLayer& one : network.layers) {
    layers.push_back(&one);
    const Tensor w = one.weight();
    for (std::int64_t k = 0; k < one.rows; ++k) {  // the last row is a separate block row
      for (std::int64_t c = 0; c < one.columns; ++c) {
        w.data<float>()[k * one.columns + c] = k + 1 == one.rows ? 1.2f : 1.0f;
      }
    }
  }
  const auto masks = weakest_masks(layers,
                                   options_of({{"method", Text("block")},
                                               {"block", Integers{7, 1}},
                                               {"target", 0.3},
                                               {"distribution", Text("global")}}),
                                   0.3);
  // f3 has 8 rows, so one block has 7 rows and the other block has 1 row.
  const PrunableLayer& f3 = network.layers[2];
  ASSERT_EQ(f3.rows, 8);
  for (std::int64_t c = 0; c < f3.columns; ++c) {
    EXPECT_EQ(masks[2].at(7 * f3.columns + c), 1) << c;
  }
}

TEST(Structured, what_a_layer_drops_the_next_does_not_read) {
  for (const char* method : {"filter", "channel"}) {
    for (const char* distribution : {"uniform", "global", "erk"}) {
      for (const double target : {0.25, 0.5}) {
        const auto model = small_network();
        const PrunableNetwork network = prunable_network(*model, kImage);
        const SparsityOptions options = options_of(
            {{"method", Text(method)}, {"target", target}, {"distribution", Text(distribution)}});
        const auto kept = kept_outputs(network, std::vector<bool>(4, false), options, target);
        const std::vector<Tensor> masks = tied_masks(network, kept);
        expect_tied(network, masks);
        if (Text(distribution) == "uniform") {
          const std::int64_t dropped = std::count(kept[1].begin(), kept[1].end(), 0);
          EXPECT_LT(std::fabs(static_cast<double>(dropped) - target * 6), 1.0);
        }
        EXPECT_EQ(std::count(kept[3].begin(), kept[3].end(), 0), 0) << "classes stay";
        EXPECT_EQ(connectivity(network, masks).cut_at, "");
      }
    }
  }
}

TEST(Structured, filters_go_by_what_makes_them_channels_by_what_reads_them) {
  const auto model = small_network();
  PrunableNetwork network = prunable_network(*model, kImage);
  const Tensor c1 = network.layers[0].weight(), c2 = network.layers[1].weight();
  for (std::int64_t i = 0; i < 18; ++i) c1.data<float>()[2 * 18 + i] = 1e-6f;  // filter 2 is weak
  for (std::int64_t k = 0; k < 6; ++k) {
    for (std::int64_t i = 0; i < 9; ++i) c2.data<float>()[k * 36 + 9 + i] = 1e-6f;  // 1 is not read
  }
  const std::vector<bool> only_c1 = {false, false, true, true};
  const auto by_filter = kept_outputs(network, {false, true, true, true},
                                      options_of({{"method", Text("filter")}}), 0.25);
  EXPECT_EQ(by_filter[0], (std::vector<std::uint8_t>{1, 1, 0, 1}));
  const auto by_channel = kept_outputs(network, {true, false, true, true},
                                       options_of({{"method", Text("channel")}}), 0.25);
  EXPECT_EQ(by_channel[0], (std::vector<std::uint8_t>{1, 0, 1, 1}));
  EXPECT_EQ(by_channel[1], std::vector<std::uint8_t>(6, 1));
}

TEST(Structured, grouped_convolutions_are_refused_with_their_name) {
  LayerContext context;
  LayerSpec grouped = layer("conv2d", "c2", 4);
  grouped.options.set("groups", std::int64_t{2});
  const auto model = build_layers(
      {layer("conv2d", "c1", 4), grouped, layer("flatten", "flat"), layer("linear", "f", 3)},
      kImage, context);
  EXPECT_THROW(
      Pruner(*model, kImage, options_of({{"method", Text("filter")}, {"target", 0.5}}), 10, 1),
      Error);
}

TEST(Connectivity, tells_where_two_masks_that_do_not_meet_cut_the_network) {
  // A network can be cut off although each layer keeps weights: here c1 keeps filters 0 and 1,
  // while c2 reads only 2 and 3.
  const auto model = small_network();
  const PrunableNetwork network = prunable_network(*model, kImage);
  std::vector<Tensor> masks(4);
  masks[0] = Tensor::zeros(network.layers[0].weight().shape());
  for (std::int64_t i = 0; i < 2 * 18; ++i) masks[0].data<float>()[i] = 1;
  masks[1] = Tensor::zeros(network.layers[1].weight().shape());
  for (std::int64_t k = 0; k < 6; ++k) {
    for (std::int64_t i = 18; i < 36; ++i) masks[1].data<float>()[k * 36 + i] = 1;
  }
  const Connectivity paths = connectivity(network, masks);
  EXPECT_EQ(paths.cut_at, "c2");
  EXPECT_EQ(paths.alive_count, (Integers{0, 0, 0, 0}));
  masks[1].data<float>()[0] = 1;  // filter 0 of c2 now reads channel 0
  const Connectivity joined = connectivity(network, masks);
  EXPECT_EQ(joined.cut_at, "");
  EXPECT_EQ(joined.alive_count, (Integers{1, 1, 8, 3}));
}

TEST(Connectivity, each_group_of_a_convolution_reads_its_own_channels) {
  LayerContext context;
  LayerSpec grouped = layer("conv2d", "c2", 4);
  grouped.options.set("groups", std::int64_t{2});
  const auto model = build_layers(
      {layer("conv2d", "c1", 4), grouped, layer("flatten", "flat"), layer("linear", "f", 3)},
      kImage, context);
  const PrunableNetwork network = prunable_network(*model, kImage);
  std::vector<Tensor> masks(3);  // c1 keeps channels 0 and 1, which group 0 reads
  masks[0] = Tensor::zeros(network.layers[0].weight().shape());
  for (std::int64_t i = 0; i < 2 * 18; ++i) masks[0].data<float>()[i] = 1;
  EXPECT_EQ(connectivity(network, masks).alive_count, (Integers{2, 2, 3}));
}

// A pruned weight gets no gradient, but with the option `dense` it gets its full gradient.
TEST(Mask, decides_which_weights_get_a_gradient) {
  Variable w(Tensor::from({1, 2, 3, 4}, {2, 2}), true);
  Mask mask(w.value());
  mask.set_keep(Tensor::from({1, 0, 0, 1}, {2, 2}));
  for (const bool dense : {false, true}) {
    mask.set_dense_gradient(dense);
    w.zero_grad();
    const Variable y = mask.forward(w);
    EXPECT_EQ(values_of(y.value()), (std::vector<float>{1, 0, 0, 4}));
    y.backward(Tensor::from({5, 6, 7, 8}, {2, 2}));
    const float out = dense ? 1 : 0;
    EXPECT_EQ(values_of(w.grad()), (std::vector<float>{5, 6 * out, 7 * out, 8}));
  }
}

}  // namespace
}  // namespace convscope::testing
