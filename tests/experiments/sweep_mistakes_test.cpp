// SPDX-License-Identifier: Apache-2.0
// sweep_mistakes_test.cpp: tests that every mistake in a sweep is reported before training, in one
// sentence with file, line and column.
#include <gtest/gtest.h>

#include <random>

#include "experiments/config/sweep_block.h"
#include "experiments/sweep/sweep_check.h"

namespace convscope {
namespace {

const std::string kBase = "data: {set: synthetic_digits}\nmodel: {type: lenet5}\n";

// Returns the lines of the error, "" without one.
std::string mistakes_of(const std::string& sweep, const std::vector<std::string>& overrides = {}) {
  try {
    check_members(parse_sweep_text(kBase + sweep, "s.yaml", {}, overrides));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("[config] ")) << text;
    return text.substr(9);
  }
  return "";
}

struct Case {
  const char* what;
  std::string sweep;  // from line 3 on
  std::string expected;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

class SweepMistake : public ::testing::TestWithParam<Case> {};

TEST_P(SweepMistake, is_named_with_its_place) {
  EXPECT_EQ(mistakes_of(GetParam().sweep), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Block, SweepMistake,
    ::testing::Values(
        Case{"no block", "",
             "s.yaml:1:1: error: missing key 'sweep' (what differs between the members); "
             "`convscope run` trains a single config"},
        Case{"a list", "sweep: [1]\n",
             "s.yaml:3:8: error: sweep: expected a map with members, zip or grid, got a list"},
        Case{"an empty block", "sweep: {}\n",
             "s.yaml:3:8: error: sweep: expected members, zip, grid or seeds, got none of them"},
        Case{"an unknown key of the block", "sweep: {gird: {optim.lr: [1]}, seeds: [1]}\n",
             "s.yaml:3:9: error: unknown key 'sweep.gird'; did you mean 'grid'?"},
        Case{"too many members",
             "sweep:\n  grid: {optim.lr: [1,2,3,4,5,6,7,8,9,10], train.epochs: "
             "[1,2,3,4,5,6,7,8,9,10], data.limit: [1,2,3,4,5,6,7,8,9,10], data.batch_size: "
             "[1,2,3,4,5,6,7,8,9,10], seeds: [1]}\n  seeds: [1, 2]\n",
             "s.yaml:4:3: error: sweep: expected at most 10000 members in all"}));

INSTANTIATE_TEST_SUITE_P(
    Lists, SweepMistake,
    ::testing::Values(
        Case{"an empty grid", "sweep: {grid: {}}\n",
             "s.yaml:3:15: error: sweep.grid: expected at least one key with a list of values, got "
             "an empty map"},
        Case{"a grid with an empty list", "sweep: {grid: {optim.lr: []}}\n",
             "s.yaml:3:26: error: sweep.grid.optim.lr: expected a list of at least one value, got "
             "an empty list"},
        Case{"one value instead of a list", "sweep: {grid: {optim.lr: 0.1}}\n",
             "s.yaml:3:26: error: sweep.grid.optim.lr: expected a list of at least one value, got "
             "'0.1'"},
        Case{"a map instead of a key with dots", "sweep: {grid: {optim: {lr: [1]}}}\n",
             "s.yaml:3:23: error: sweep.grid.optim: expected a list of at least one value, under a "
             "key with dots such as optim.lr, got a map"},
        Case{"an unknown key in the grid, once for all members",
             "sweep: {grid: {optim.lrr: [1, 2], data.batch_size: [4, 8]}}\n",
             "s.yaml:3:16: error: unknown key 'optim.lrr'; did you mean 'optim.lr'?"},
        Case{"a value that does not fit", "sweep: {grid: {data.batch_size: [4, none]}}\n",
             "s.yaml:3:37: error: data.batch_size: expected an integer, got 'none'"},
        Case{"a value twice", "sweep: {grid: {optim.lr: [0.1, 1, 1.0]}}\n",
             "s.yaml:3:35: error: sweep.grid.optim.lr: expected different values, got 1.0 twice"},
        Case{"lists of different lengths",
             "sweep: {zip: {optim.lr: [0.1, 0.2], train.epochs: [1, 2, 3]}}\n",
             "s.yaml:3:51: error: sweep.zip: expected lists of one length, because they are taken "
             "side by side, got 2 values of 'optim.lr' and 3 of 'train.epochs'"},
        Case{"a key in two places", "sweep: {zip: {optim.lr: [1]}, grid: {optim.lr: [2]}}\n",
             "s.yaml:3:38: error: sweep.grid: expected each key in one of members, zip and grid, "
             "got 'optim.lr', which is in sweep.zip too"},
        Case{"seed in the grid", "sweep: {grid: {seed: [1, 2]}}\n",
             "s.yaml:3:16: error: sweep.grid: expected a key that may differ between the members, "
             "got 'seed'; use sweep.seeds"}));

INSTANTIATE_TEST_SUITE_P(
    Members, SweepMistake,
    ::testing::Values(
        Case{"no list", "sweep: {members: {name: a}}\n",
             "s.yaml:3:18: error: sweep.members: expected a list of at least one member, got a "
             "map"},
        Case{"no members", "sweep: {members: []}\n",
             "s.yaml:3:18: error: sweep.members: expected a list of at least one member, got an "
             "empty list"},
        Case{"no name", "sweep: {members: [{optim.lr: 1}]}\n",
             "s.yaml:3:19: error: missing key 'sweep.members.0.name' (the name of the row)"},
        Case{"one name twice", "sweep: {members: [{name: a}, {name: a}]}\n",
             "s.yaml:3:37: error: sweep.members.1.name: expected members with different names, got "
             "'a' twice, first in line 3"},
        Case{
            "a name that is no folder", "sweep: {members: [{name: a/b}]}\n",
            "s.yaml:3:26: error: sweep.members.0.name: expected at most 100 letters, digits and "
            "any of '._-', a letter or digit first, because the folder of the runs gets this name, "
            "got 'a/b'"},
        Case{"a name of the sweep's own files", "sweep: {members: [{name: sweep.csv}]}\n",
             "s.yaml:3:19: error: sweep: expected a row's name that does not begin with 'sweep.', "
             "because the files of the sweep do, got 'sweep.csv'"},
        Case{"a mistake in a block of a member",
             "sweep:\n  members:\n    - {name: a, quant: {w_bits: 9}}\n"
             "    - {name: b, sparsity: {method: magnitude, target: 1.5}}\n",
             "s.yaml:5:33: error: quant.w_bits: expected 2 to 8, got 9\n"
             "s.yaml:6:55: error: sparsity.target: expected 0 to 1, got 1.5"},
        Case{"an unknown reference", "sweep: {members: [{name: a, reference: {ac: 5}}]}\n",
             "s.yaml:3:41: error: unknown key 'sweep.members.0.reference.ac'; did you mean "
             "'acc'?"},
        Case{"a layer that the network does not have",
             "sweep: {members: [{name: a}, {name: b, sparsity: {method: magnitude, target: 0.5, "
             "exclude: [c9]}}]}\n",
             "s.yaml:3: error: member 'b': [sparsity] expected the name of a convolution or linear "
             "layer of the network, got 'c9'; did you mean 'c1'? (known: c1, c2, f3, f4, f5)"}));

INSTANTIATE_TEST_SUITE_P(
    ExcludeAndSeeds, SweepMistake,
    ::testing::Values(
        Case{"an exclude that matches nothing",
             "sweep: {grid: {optim.lr: [0.1]}, exclude: [{optim.lr: 0.2}]}\n",
             "s.yaml:3:44: error: sweep.exclude.0: expected values that some member has, got a map "
             "that fits none"},
        Case{"an exclude with an unknown key",
             "sweep: {grid: {optim.lr: [0.1]}, exclude: [{optim.l: 0.1}]}\n",
             "s.yaml:3:45: error: sweep.exclude.0: expected a key that members, zip or grid set, "
             "got 'optim.l'; did you mean 'optim.lr'?"},
        Case{"an empty exclude", "sweep: {grid: {optim.lr: [0.1]}, exclude: [{}]}\n",
             "s.yaml:3:44: error: sweep.exclude.0: expected a map such as {data.batch_size: 4}, "
             "got an empty one"},
        Case{"everything excluded",
             "sweep: {grid: {optim.lr: [0.1, 0.2]}, exclude: [{optim.lr: 0.1}, {optim.lr: 0.2}]}\n",
             "s.yaml:3:49: error: sweep.exclude: expected at least one member to be left, got all "
             "of them excluded"},
        Case{"every seed excluded", "sweep: {seeds: [1, 2], exclude: [{seed: 1}, {seed: 2}]}\n",
             "s.yaml:3:34: error: sweep.exclude: expected at least one member to be left, got all "
             "of them excluded"},
        Case{"no seeds", "sweep: {grid: {optim.lr: [0.1]}, seeds: []}\n",
             "s.yaml:3:41: error: sweep.seeds: expected a list of at least one seed such as "
             "[1, 2, 3], got an empty list"},
        Case{"a seed twice", "sweep: {seeds: [1, 1]}\n",
             "s.yaml:3:16: error: sweep.seeds: expected different seeds, got 1 twice"},
        Case{"a seed that is none", "sweep: {seeds: [1, -2]}\n",
             "s.yaml:3:20: error: sweep.seeds: expected at least 0, got -2"}));

TEST(SweepOverride, is_refused_for_keys_that_the_grid_sets) {
  const std::string sweep = "sweep: {grid: {optim.lr: [0.1, 0.2]}, seeds: [1, 2]}\n";
  EXPECT_EQ(mistakes_of(sweep, {"optim.lr=1", "seed=3"}),
            "error: override 'optim.lr=1': expected sweep.grid.optim.lr=[...], because the sweep "
            "sets this key\n"
            "error: override 'seed=3': expected sweep.seeds=[...], because the sweep sets the "
            "seeds");
  EXPECT_EQ(mistakes_of(sweep, {"train.epohcs=1"}),
            "error: override 'train.epohcs=1': unknown key 'train.epohcs'; did you mean "
            "'train.epochs'?");
}

TEST(SweepBlock, in_the_config_of_one_run_is_refused_unless_it_is_null) {
  const std::string text = kBase + "sweep: {seeds: [1, 2]}\n";
  try {
    parse_config_text(text, "s.yaml");
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("s.yaml:3:1: error: expected the config of one run, "
                        "got a sweep; `convscope sweep` trains its members"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(parse_config_text(text, "s.yaml", {}, {"sweep=null"}).name, "s");
}

TEST(SweepBlock, is_read_or_refused_for_any_text) {
  const std::string good =
      kBase +
      "sweep:\n  members: [{name: a, reference: {acc: 5}}, {name: b, quant: "
      "{w_bits: 4}}]\n  zip: {optim.lr: [1, 2], train.epochs: [1, 2]}\n  grid: "
      "{data.batch_size: [4, 8]}\n  exclude: [{name: a, seed: 1}, {optim.lr: "
      "2}]\n  seeds: [1, 2]\n";
  EXPECT_EQ(parse_sweep_text(good, "s.yaml").members.size(), 6u);
  const std::string pieces[] = {"{}", "[]", "null",   ": ",    ",", "-1",
                                "[",  "}",  "a.b..c", "1e400", ""};
  std::mt19937 random(7);
  int read = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (int edits = 0; edits < 2; ++edits) {
      const std::size_t at = kBase.size() + random() % (text.size() - kBase.size());
      text.replace(at, random() % 6, pieces[random() % std::size(pieces)]);
    }
    try {
      parse_sweep_text(text, "s.yaml");
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << text;
    }
  }
  EXPECT_GT(read, 0);
}

TEST(SweepBlock, that_would_take_long_to_read_is_refused_at_once) {
  std::string keys, values;
  for (int i = 0; i < 5000; ++i) {
    keys += cat("k", i, ": [1], ");
    values += cat(i, ", ");
  }
  EXPECT_EQ(mistakes_of("sweep: {grid: {" + keys + "}}\n"),
            "s.yaml:3:15: error: sweep.grid: expected at most 64 keys, got 5000");
  EXPECT_EQ(mistakes_of("sweep: {grid: {optim.lr: [" + values + "]}}\n"),
            "s.yaml:3:26: error: sweep.grid.optim.lr: expected at most 1000 values, got 5000");
}

}  // namespace
}  // namespace convscope
