// SPDX-License-Identifier: Apache-2.0
// sparsity_options.cpp: the block `sparsity:` of a config, which says what to prune, how far and
// when.
#include "sparsity/sparsity_options.h"

#include <algorithm>

namespace convscope {
namespace {

const std::vector<std::string> kMethods = {"none", "magnitude", "filter", "channel",
                                           "n_m",  "block",     "rigl"};
const std::vector<std::string> kDistributions = {"uniform", "erk", "global"};
const std::vector<std::string> kSchedules = {"one_shot", "cubic", "iterative"};
const std::vector<std::string> kGradients = {"masked", "dense"};
const std::vector<std::string> kExecutions = {"masked", "sparse"};

template <class Enum>
Enum word(const Options& options, const char* name, const std::vector<std::string>& words) {
  const auto found = std::find(words.begin(), words.end(), options.text(name));
  CONVSCOPE_CHECK(found != words.end(), "sparsity", "expected ", name, " to be one of ",
                  to_text(OptionValue(words)), ", got '", options.text(name), "'");
  return static_cast<Enum>(found - words.begin());
}

OptionField choice(const char* name, const char* otherwise, const std::vector<std::string>& words,
                   const char* doc) {
  return {.name = name,
          .type = OptionType::text,
          .default_value = std::string(otherwise),
          .doc = doc,
          .choices = words};
}

// A number from 0 to 1.
OptionField share(const char* name, double otherwise, const char* doc) {
  return {.name = name,
          .type = OptionType::number,
          .default_value = otherwise,
          .doc = doc,
          .min = 0,
          .max = 1};
}

OptionField count(const char* name, std::int64_t otherwise, const char* doc, double min,
                  double max) {
  return {.name = name,
          .type = OptionType::integer,
          .default_value = otherwise,
          .doc = doc,
          .min = min,
          .max = max};
}

template <class... Args>
void expect(bool condition, const Args&... sentence) {
  if (!condition) fail(ErrorKind::kConfig, "sparsity", cat(sentence...));
}

}  // namespace

const std::vector<OptionField>& sparsity_fields() {
  using enum OptionType;
  using Integers = std::vector<std::int64_t>;
  static const std::vector<OptionField> fields = {
      choice(
          "method", "none", kMethods,
          "what is pruned: weights (magnitude, rigl), n of m weights, blocks, filters or channels"),
      share("target", 0.9,
            "fraction of zeros in the pruned layers at the end, 0 to 1; of filters or channels"),
      choice("distribution", "uniform", kDistributions,
             "distribution over layers: uniform, erk (small layers stay denser) or global (one "
             "ranking)"),
      choice(
          "schedule", "cubic", kSchedules,
          "one_shot (at start), cubic (from start to end) or iterative (rounds with fine-tuning)"),
      share("start", 0.15, "when pruning starts, share of all training steps"),
      share("end", 0.75, "when the masks become final, share of all training steps"),
      count("every_steps", 50, "steps between two mask updates", 1, 1e12),
      count("rounds", 5, "schedule iterative: number of pruning rounds, evenly from start to end",
            1, 1e6),
      {.name = "block",
       .type = integers,
       .default_value = Integers{16, 1},
       .doc = "method block: rows and columns of the matrix [K, C R S]; edge blocks are padded",
       .min = 1,
       .max = 1 << 20},
      count("n", 2, "method n_m: weights kept in each group", 1, 1 << 20),
      count("m", 4, "method n_m: weights in a group, along a row of [K, C R S]", 2, 1 << 20),
      share("drop_fraction", 0.3,
            "method rigl: fraction of the weights that the first update replaces"),
      choice("gradient", "masked", kGradients,
             "of pruned weights: masked (none, they keep their value) or dense"),
      choice("execute", "masked", kExecutions,
             "masked: dense kernels multiply the zeros; sparse (not for filter, channel): "
             "convolutions and linear layers skip zeros where this is estimated to be faster"),
      {.name = "remove",
       .type = boolean,
       .default_value = false,
       .doc = "methods filter, channel: remove pruned outputs from the network once the masks are "
              "final"},
      {.name = "exclude",
       .type = texts,
       .default_value = std::vector<std::string>{},
       .doc = "layers that stay dense"},
      {.name = "start_from",
       .type = text,
       .doc = "checkpoint or run folder with the initial weights"},
  };
  return fields;
}

SparsityOptions parse_sparsity(const Options& options) {
  SparsityOptions out;
  out.method = word<PruneMethod>(options, "method", kMethods);
  out.distribution = word<SparsityDistribution>(options, "distribution", kDistributions);
  out.schedule = word<PruneSchedule>(options, "schedule", kSchedules);
  out.gradient = word<MaskGradient>(options, "gradient", kGradients);
  out.execute = word<SparseExecution>(options, "execute", kExecutions);
  out.target = options.number("target");
  out.start = options.number("start");
  out.end = options.number("end");
  out.every_steps = options.integer("every_steps");
  out.rounds = options.integer("rounds");
  out.n = options.integer("n");
  out.m = options.integer("m");
  out.drop_fraction = options.number("drop_fraction");
  out.exclude = options.texts("exclude");
  out.remove = options.flag("remove");
  if (options.has("start_from")) out.start_from = options.text("start_from");
  const std::vector<std::int64_t>& block = options.integers("block");
  expect(block.size() == 2, "expected block to be [rows, columns], got ",
         to_text(options.get("block")));
  expect(block[0] * block[1] >= 1, "expected a block of at least 1x1, got ",
         to_text(options.get("block")));
  out.block_rows = block[0];
  out.block_cols = block[1];
  expect(out.target >= 0 && out.target <= 1,
         "expected target to be a share of zeros from 0 to 1, got ", out.target);
  expect(out.start <= out.end, "expected start <= end, shares of all training steps, got start ",
         out.start, " and end ", out.end);
  if (out.method == PruneMethod::n_m) {
    expect(out.n < out.m, "expected n below m because n of m weights stay, got n ", out.n,
           " and m ", out.m);
    expect(out.distribution == SparsityDistribution::uniform,
           "expected distribution uniform because every group keeps n of m, got ",
           options.text("distribution"));
    out.target = 1.0 - static_cast<double>(out.n) / static_cast<double>(out.m);
  }
  expect(!out.remove || out.structured() || out.method == PruneMethod::none,
         "expected remove with method filter or channel, because only whole outputs can leave a "
         "dense network, got ",
         options.text("method"));
  expect(out.execute == SparseExecution::masked || !out.structured(),
         "expected execute masked with method filter or channel, because their outputs leave the "
         "network (remove, export --compact), got sparse with ",
         options.text("method"));
  if (out.method == PruneMethod::rigl) {
    expect(out.distribution != SparsityDistribution::global,
           "expected distribution uniform or erk because rigl keeps each layer's share, got "
           "global");
    expect(out.gradient == MaskGradient::masked,
           "expected gradient masked because rigl grows weights from zero, got dense");
  }
  return out;
}

}  // namespace convscope
