// SPDX-License-Identifier: Apache-2.0
// config_mistakes_test.cpp: tests that every mistake in a config is reported in one sentence with
// file, line and column.
#include <gtest/gtest.h>

#include "datasets/dataset.h"
#include "experiments/config/experiment_config.h"
#include "layers/conv2d/algorithm.h"
#include "tests/experiments/config_test_types.h"

namespace convscope {
namespace {

const char* kRest = "data: {set: mnist}\nmodel: {type: test_model, size: 3}\n";

// Returns the error messages for a config text, or "" when the text loads.
std::string mistakes_of(const std::string& yaml, const std::vector<std::string>& overrides = {},
                        const std::map<std::string, std::string>& files = {}) {
  const ConfigReader reader = [&](const std::string& path) {
    if (!files.contains(path)) fail(ErrorKind::kConfig, "config", "no such file");
    return files.at(path);
  };
  try {
    parse_config_text(yaml, "exp.yaml", reader, overrides);
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
  std::string yaml;
  std::string expected;  // all lines
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

class ConfigMistake : public ::testing::TestWithParam<Case> {};

TEST_P(ConfigMistake, IsNamedWithItsPlace) {
  EXPECT_EQ(mistakes_of(GetParam().yaml), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Syntax, ConfigMistake,
    ::testing::Values(
        Case{"duplicate key", cat("seed: 1\nname: a\nseed: 2\n", kRest),
             "exp.yaml:3:1: error: duplicate key 'seed', first given in line 1"},
        Case{"duplicate key in a flow map",
             "data: {set: mnist, set: cifar10}\nmodel: {type: test_model, size: 1}\n",
             "exp.yaml:1:20: error: duplicate key 'set', first given in line 1"},
        Case{"merge key", "<<: {seed: 1}\n",
             "exp.yaml:1:1: error: expected no merge key (<<); use 'extends' to build on a file"},
        Case{"two documents", "seed: 1\n---\nseed: 2\n",
             "exp.yaml:2:1: error: expected one YAML document, got a second one ('---')"},
        Case{"tab as indentation", "train:\n\tepochs: 3\n",
             "exp.yaml:2:1: error: expected spaces as indentation, got a tab"},
        Case{"anchor", "seed: &s 1\n",
             "exp.yaml:1:7: error: expected no anchor (&name): a config contains each value, or "
             "uses 'extends'"},
        Case{"tag", "seed: !!int 1\n",
             "exp.yaml:1:7: error: expected no tag (!name): the type of a value follows from its "
             "key"},
        Case{"list as a file", "- 1\n",
             "exp.yaml:1:1: error: expected a map of keys and values, got a list"},
        Case{"text as a file", "hello\n",
             "exp.yaml:1:1: error: expected a map of keys and values, got 'hello'"},
        Case{"list as a key", "? [a]\n: 1\n",
             "exp.yaml:1:3: error: expected a word as key, got a list"},
        Case{"open bracket", "data: [1, 2\n",
             "exp.yaml:2:1: error: expected YAML, got: end of sequence flow not found"},
        Case{"byte that is not text", "name: \xff\n",
             "exp.yaml:1:7: error: expected UTF-8 text, got the byte 255"},
        Case{"zero byte", std::string("name: a\0b\n", 10),
             "exp.yaml:1:8: error: expected text without control characters, got the byte 0"},
        Case{"too deep", "seed: " + std::string(60, '[') + std::string(60, ']') + "\n",
             "exp.yaml:1:38: error: expected at most 32 levels of lists and maps"}));

INSTANTIATE_TEST_SUITE_P(
    Keys, ConfigMistake,
    ::testing::Values(
        Case{"mistyped key", cat(kRest, "train:\n  epohcs: 3\n"),
             "exp.yaml:4:3: error: unknown key 'train.epohcs'; did you mean 'epochs'?"},
        Case{"key in the wrong block", cat(kRest, "epochs: 3\n"),
             "exp.yaml:3:1: error: unknown key 'epochs'; did you mean 'train.epochs'?"},
        Case{"key like no other", cat(kRest, "train: {zzzzzz: 3}\n"),
             "exp.yaml:3:9: error: unknown key 'train.zzzzzz' (known: accumulate, "
             "bucket_mib, deterministic_ranks, epochs, eval_every, loss, plan, rank_parts)"},
        Case{"no data set", "model: {type: test_model, size: 1}\n",
             "exp.yaml:1:1: error: missing key 'data' (the data set and its batches)"},
        Case{"block without its set", "data: {batch_size: 3}\nmodel: {type: test_model, size: 1}\n",
             "exp.yaml:1:7: error: missing key 'data.set' (the data set)"},
        Case{"no network", "data: {set: mnist}\n",
             "exp.yaml:1:1: error: missing key 'model' (a whole network) or 'layers' (a list)"},
        Case{"two networks", cat(kRest, "layers: [{type: test_layer, size: 1}]\n"),
             "exp.yaml:3:1: error: expected either 'model' or 'layers', got both"},
        Case{"required key of a model", "data: {set: mnist}\nmodel: {type: test_model}\n",
             "exp.yaml:2:8: error: missing key 'model.size' (an integer)"},
        Case{"unknown data set", "data: {set: mnits}\nmodel: {type: test_model, size: 1}\n",
             "exp.yaml:1:13: error: data.set: unknown dataset 'mnits'; did you mean 'mnist'? "
             "(known: " +
                 join(dataset_types().names()) + ")"},
        Case{"list where a map belongs", cat(kRest, "train: [1, 2]\n"),
             "exp.yaml:3:8: error: train: expected a map, got a list"},
        Case{"map where a list belongs", "data: {set: mnist}\nlayers: {type: test_layer}\n",
             "exp.yaml:2:9: error: layers: expected a list of layers, got a map"},
        Case{"scalar as a layer", "data: {set: mnist}\nlayers:\n  - relu\n",
             "exp.yaml:3:5: error: layers.0: expected a map such as {type: relu}, got 'relu'"},
        Case{"same name twice",
             "data: {set: mnist}\nlayers:\n  - {type: test_layer, size: 1, name: a}\n"
             "  - {type: test_layer, size: 1, name: a}\n",
             "exp.yaml:4:39: error: layers.1.name: expected layers with different names, got 'a' "
             "twice"}));

const char* kData = "data: {set: mnist}\n";

INSTANTIATE_TEST_SUITE_P(
    Branches, ConfigMistake,
    ::testing::Values(
        Case{"unknown layer in from",
             cat(kData,
                 "layers:\n  - {type: relu, name: first}\n"
                 "  - {type: add, from: [input, frist]}\n"),
             "exp.yaml:4:31: error: layers.1.from: unknown layer 'frist'; did you mean 'first'?"},
        Case{"layer that follows",
             cat(kData,
                 "layers:\n  - {type: add, name: a, from: [input, b]}\n"
                 "  - {type: relu, name: b}\n"),
             "exp.yaml:3:40: error: layers.0.from: expected a layer above this one, because layers "
             "run in the order of the list (so a cycle is impossible), got 'b', which follows"},
        Case{
            "result that nothing reads",
            cat(kData, "layers:\n  - {type: relu, name: a}\n  - {type: tanh, from: input}\n"),
            "exp.yaml:3:5: error: layers.0: expected a layer that reads the result of 'a', because "
            "only the result of the last layer leaves the network, got none"},
        Case{"map in from", cat(kData, "layers:\n  - {type: relu, from: {a: 1}}\n"),
             "exp.yaml:3:24: error: layers.0.from: expected a list of words, got a map"},
        Case{"empty from", cat(kData, "layers:\n  - {type: relu, from: []}\n"),
             "exp.yaml:3:24: error: from: expected the name of a layer, got an empty list"},
        Case{"parameter outside of a block", cat(kData, "layers:\n  - {type: $kind}\n"),
             "exp.yaml:3:12: error: unknown parameter '$kind', because only a block has "
             "parameters"}));

// Returns a config with the block `b`, whose layers and uses are given.
std::string with_block(const std::string& layers, const std::string& uses) {
  return cat(kData, "blocks:\n  b:\n    parameters: {mode: null, width: 4}\n    layers:\n", layers,
             "layers:\n", uses);
}

const char* kBlockOfOne = "      - {type: relu, name: r}\n";

INSTANTIATE_TEST_SUITE_P(
    Blocks, ConfigMistake,
    ::testing::Values(
        Case{"unknown block", with_block(kBlockOfOne, "  - {block: bb, mode: x}\n"),
             "exp.yaml:8:13: error: unknown block 'bb'; did you mean 'b'?"},
        Case{"block of itself",
             with_block("      - {block: b, mode: x}\n", "  - {block: b, mode: x}\n"),
             "exp.yaml:6:17: error: expected a block that does not use itself, got b > b"},
        Case{"unknown parameter", with_block(kBlockOfOne, "  - {block: b, mode: x, widht: 8}\n"),
             "exp.yaml:8:25: error: unknown parameter 'widht' of the block 'b'; did you mean "
             "'width'?"},
        Case{"missing parameter", with_block(kBlockOfOne, "  - {block: b}\n"),
             "exp.yaml:8:5: error: missing parameter 'mode' of the block 'b'"},
        Case{"unknown $parameter, reported once",
             with_block("      - {type: relu, name: $widht}\n",
                        "  - {block: b, mode: x, repeat: 3}\n"),
             "exp.yaml:6:28: error: unknown parameter '$widht'; did you mean '$width'?"},
        Case{"unknown layer in a block, whose names are whole",
             with_block(cat(kBlockOfOne, "      - {type: add, from: [q, input]}\n"),
                        "  - {block: b, name: one, mode: x}\n"),
             "exp.yaml:7:28: error: blocks.b.layers.1.from: unknown layer 'one.q'; did you mean "
             "'one.r'?"},
        Case{"third input of two",
             with_block("      - {type: relu, from: input.2}\n",
                        "  - {block: b, mode: x, from: [input, input]}\n"),
             "exp.yaml:6:28: error: from: expected an input of the block from input.0 to input.1, "
             "got 'input.2'"},
        Case{"same name twice",
             with_block(kBlockOfOne,
                        "  - {block: b, name: n, mode: x}\n  - {block: b, name: n, mode: x}\n"),
             "exp.yaml:9:22: error: expected layers with different names, got 'n' twice"},
        Case{"zero repetitions", with_block(kBlockOfOne, "  - {block: b, mode: x, repeat: 0}\n"),
             "exp.yaml:8:33: error: repeat: expected 1 to 1000, got 0"},
        Case{"type and block", with_block(kBlockOfOne, "  - {block: b, mode: x, type: relu}\n"),
             "exp.yaml:8:25: error: expected either 'type' or 'block', got both"},
        Case{"value of a parameter",
             with_block("      - {type: test_layer, size: $width}\n",
                        "  - {block: b, mode: x, width: 0, repeat: 2}\n"),
             "exp.yaml:8:32: error: blocks.b.layers.0.size: expected at least 1, got 0"},
        Case{"block without layers",
             cat(kData, "blocks: {b: {parameter: {}}}\nlayers: [{type: relu}]\n"),
             "exp.yaml:2:10: error: blocks.b: expected a map with a list 'layers', got a map\n"
             "exp.yaml:2:14: error: unknown key 'blocks.b.parameter'; did you mean 'parameters'?"},
        Case{"parameter with the name of a key",
             cat(kData,
                 "blocks: {b: {parameters: {name: 1}, layers: [{type: relu}]}}\n"
                 "layers: [{type: relu}]\n"),
             "exp.yaml:2:27: error: blocks.b.parameters: expected another name because 'name' is a "
             "key of each entry that uses a block"}));

// Returns the case of an expression in a block whose parameters are mode = tanh and width = 4.
Case expression_case(const char* what, const std::string& expression, const std::string& sentence) {
  return {what,
          with_block("      - {type: test_layer, size: " + expression + "}\n",
                     "  - {block: b, mode: tanh, repeat: 2}\n"),
          "exp.yaml:6:34: error: " + sentence};
}

INSTANTIATE_TEST_SUITE_P(
    Arithmetic, ConfigMistake,
    ::testing::Values(
        expression_case("unknown parameter", "2 * $widht",
                        "unknown parameter '$widht'; did you mean '$width'?"),
        expression_case("remainder", "$width / 3",
                        "expected a division without a remainder in '$width / 3', got 4 / 3; "
                        "4 / 3.0 is a real number"),
        expression_case("division by zero", "1 / ($width - 4)",
                        "expected a divisor other than 0 in '1 / ($width - 4)', got 1 / 0"),
        expression_case("overflow", "9223372036854775807 + $width",
                        "expected a result that 64 bits hold in '9223372036854775807 + $width', "
                        "got 9223372036854775807 + 4"),
        expression_case("overflow of a division", "(-9223372036854775807 - $width / 4) / -1",
                        "expected a result that 64 bits hold in '(-9223372036854775807 - $width / "
                        "4) / -1', got 0 - -9223372036854775808"),
        expression_case("overflow of a real number", "1e308 * 10 * $width",
                        "expected a finite result in '1e308 * 10 * $width', got 1.0e+308 * 10"),
        expression_case("text", "$width + $mode",
                        "expected a number as '$mode' in '$width + $mode', got 'tanh'"),
        expression_case("missing operand", "$width *",
                        "expected a number, a $parameter or '(' in '$width *', got its end"),
        expression_case("missing operator", "$width 2",
                        "expected one of + - * / in '$width 2', got '2'"),
        expression_case("missing bracket", "($width", "expected ')' in '($width', got its end"),
        expression_case("text around a parameter", "conv_$width",
                        "expected a number, a $parameter or '(' in 'conv_$width', got "
                        "'conv_$width'; write \"conv_$width\" if text is meant"),
        expression_case("number that YAML 1.1 reads as another", "010 + $width",
                        "expected a number in '010 + $width', got '010'"),
        expression_case("long expression", std::string(200, '(') + "$width",
                        "expected an expression of at most 200 characters, got 206"),
        expression_case("result that the layer refuses", "4 - $width",
                        "blocks.b.layers.0.size: expected at least 1, got 0"),
        Case{"repetitions", with_block(kBlockOfOne, "  - {block: b, mode: x, repeat: 2 * $n}\n"),
             "exp.yaml:8:33: error: unknown parameter '$n', because only a block has parameters"},
        Case{"default that uses a later parameter",
             cat(kData,
                 "blocks: {b: {parameters: {n: $m * 2, m: 1}, layers: [{type: relu}]}}\n"
                 "layers: [{block: b}]\n"),
             "exp.yaml:2:30: error: unknown parameter '$m'"},
        Case{"name that no expression can hold",
             cat(kData,
                 "blocks: {b: {parameters: {n-1: 2}, layers: [{type: relu}]}}\n"
                 "layers: [{type: relu}]\n"),
             "exp.yaml:2:27: error: blocks.b.parameters: expected a name of letters, digits and _ "
             "that does not begin with a digit, got 'n-1'"}));

// A block of blocks may stand for more layers than memory holds.
TEST(ConfigMistakes, BlocksOfBlocksAreLimited) {
  std::string yaml = cat(kData, "blocks:\n  b0: {layers: [{type: relu}]}\n");
  for (int i = 1; i <= 12; ++i) {
    yaml += cat("  b", i, ": {layers: [{block: b", i - 1, ", repeat: 1000}]}\n");
  }
  EXPECT_NE(mistakes_of(yaml + "layers: [{block: b12}]\n").find("expected at most 5000 layers"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Values, ConfigMistake,
    ::testing::Values(
        Case{"text for an integer", cat(kRest, "seed: 64abc\n"),
             "exp.yaml:3:7: error: seed: expected an integer, got '64abc'"},
        Case{"real for an integer", cat(kRest, "seed: 1.5\n"),
             "exp.yaml:3:7: error: seed: expected an integer, got '1.5'"},
        Case{"quoted integer", cat(kRest, "seed: '1'\n"),
             "exp.yaml:3:7: error: seed: expected an integer, got the text '1'; leave the quotes "
             "out"},
        Case{"octal or not", cat(kRest, "seed: 010\n"),
             "exp.yaml:3:7: error: seed: expected an integer, got '010'; write 10, or 0o10 for "
             "octal"},
        Case{"more than 64 bits", cat(kRest, "seed: 99999999999999999999\n"),
             "exp.yaml:3:7: error: seed: expected an integer, got '99999999999999999999', more "
             "than 64 bits hold"},
        Case{"no as a boolean",
             "data: {set: mnist, shuffle: no}\nmodel: {type: test_model, size: 1}",
             "exp.yaml:1:29: error: data.shuffle: expected true or false, got 'no'; write true or "
             "false"},
        Case{"number as a text", cat(kRest, "name: 12\n"),
             "exp.yaml:3:7: error: name: expected text, got '12'; write \"12\" if text is meant"},
        Case{"not a number", cat(kRest, "optim: {lr: .nan}\n"),
             "exp.yaml:3:13: error: optim.lr: expected a finite number, got '.nan'"},
        Case{"out of range", cat(kRest, "expect: {test_acc_min: 120}\n"),
             "exp.yaml:3:24: error: expect.test_acc_min: expected 0 to 100, got 120"},
        Case{"list entry out of range",
             "data: {set: mnist}\nmodel: {type: test_model, size: 1, padding: [1, -2]}\n",
             "exp.yaml:2:49: error: model.padding: expected at least 0, got -2"},
        Case{"word that is no choice",
             "data: {set: mnist}\nmodel: {type: test_model, size: 1, mode: reflct}\n",
             "exp.yaml:2:42: error: model.mode: expected one of zeros, reflect, got 'reflct'; did "
             "you mean 'reflect'?"},
        Case{"loss that does not exist", cat(kRest, "train: {loss: bee}\n"),
             "exp.yaml:3:15: error: train.loss: expected one of bce, cross_entropy, dice, focal, "
             "mse, got 'bee'; did you mean 'bce'?"},
        Case{"loss of a sum that does not exist",
             cat(kRest, "train: {loss: [dice, {type: bee}]}\n"),
             "exp.yaml:3:29: error: train.loss.1.type: expected one of bce, cross_entropy, dice, "
             "focal, mse, got 'bee'; did you mean 'bce'?"},
        Case{"option of another loss", cat(kRest, "train: {loss: {type: mse, gamma: 1}}\n"),
             "exp.yaml:3:27: error: unknown key 'train.loss.gamma'; it belongs to focal (known "
             "here: type, weight)"},
        Case{"negative class weight", cat(kRest, "train: {loss: {class_weights: [1, -2]}}\n"),
             "exp.yaml:3:35: error: train.loss.class_weights: expected at least 0, got -2"},
        Case{
            "class weight that is not finite",
            cat(kRest, "train: {loss: {class_weights: [1, .inf]}}\n"),
            "exp.yaml:3:35: error: train.loss.class_weights: expected a finite number, got '.inf'"},
        Case{"class weight that is a word", cat(kRest, "train: {loss: {class_weights: [1, a]}}\n"),
             "exp.yaml:3:35: error: train.loss.class_weights: expected a number, got 'a'"},
        Case{"class weights that are one number", cat(kRest, "train: {loss: {class_weights: 2}}\n"),
             "exp.yaml:3:31: error: train.loss.class_weights: expected a list of numbers, got '2'"},
        Case{"no class with a weight", cat(kRest, "train: {loss: {class_weights: [0, 0]}}\n"),
             "exp.yaml:3:31: error: train.loss: expected at least one weight above 0, got [0.0, "
             "0.0]"},
        Case{"sum of no losses", cat(kRest, "train: {loss: []}\n"),
             "exp.yaml:3:15: error: train.loss: expected at least one loss, got an empty list"},
        Case{"device", cat(kRest, "device: gpu\n"),
             "exp.yaml:3:9: error: device: expected cpu, cuda or cuda:<index>, got 'gpu'"},
        Case{"newer format", cat(kRest, "schema: 2\n"),
             "exp.yaml:3:9: error: schema: expected schema 1, the only format of configs that this "
             "version reads, got 2"},
        Case{"name that is a path", cat(kRest, "name: ../../etc\n"),
             "exp.yaml:3:7: error: name: expected at most 100 letters, digits and any of '._-', a "
             "letter or digit first, because the folder of the runs gets this name, got "
             "'../../etc'"},
        Case{"unknown algorithm", cat(kRest, "conv: {per_layer: {c1: {forward: im2col_gem}}}\n"),
             "exp.yaml:3:34: error: conv.per_layer.c1.forward: expected auto, measure, "
             "check:<a>,<b> "
             "or an algorithm for device cpu (" +
                 join(conv2d_algorithms(DeviceType::cpu).names()) +
                 "), got 'im2col_gem'; did you mean 'im2col_gemm'?"},
        Case{"two warm-ups", cat(kRest, "optim: {schedule: {warmup_epochs: 1, warmup_steps: 5}}\n"),
             "exp.yaml:3:38: error: optim.schedule: expected either warmup_epochs or warmup_steps, "
             "got both"}));

TEST(ConfigMistakes, AreReportedAllTogetherInTheOrderOfTheFile) {
  EXPECT_EQ(mistakes_of("seed: x\ndata: {set: mnist, batch_size: 0}\n"
                        "model: {type: test_model, size: 1}\ntrain: {epohcs: 1}\n"),
            "exp.yaml:1:7: error: seed: expected an integer, got 'x'\n"
            "exp.yaml:2:32: error: data.batch_size: expected 1 to 1000000, got 0\n"
            "exp.yaml:4:9: error: unknown key 'train.epohcs'; did you mean 'epochs'?");
}

TEST(ConfigMistakes, AfterADuplicateKeyAreReportedToo) {
  EXPECT_EQ(mistakes_of("data: {set: mnist}\nseed: 1\nseed: 2\nmodel: {type: test_model, size: 1}\n"
                        "train: {epohcs: 1}\n"),
            "exp.yaml:3:1: error: duplicate key 'seed', first given in line 2\n"
            "exp.yaml:5:9: error: unknown key 'train.epohcs'; did you mean 'epochs'?");
}

TEST(ConfigMistakes, OfOverridesNameTheOverride) {
  const auto of = [](const std::string& text) { return mistakes_of(kRest, {text}); };
  EXPECT_EQ(of("train.epohcs=3"),
            "error: override 'train.epohcs=3': unknown key 'train.epohcs'; did you mean "
            "'train.epochs'?");
  EXPECT_EQ(of("train.epochs=many"),
            "error: override 'train.epochs=many': train.epochs: expected an integer, got 'many'");
  EXPECT_EQ(of("epochs"), "error: override 'epochs': expected KEY=VALUE, such as train.epochs=3");
  EXPECT_EQ(of("train..epochs=3"),
            "error: override 'train..epochs=3': expected KEY=VALUE with a name between the dots");
  EXPECT_EQ(of("seed.x=3").substr(0, 28), "error: override 'seed.x=3': ");
  EXPECT_EQ(of("extends=a.yaml"),
            "error: override 'extends=a.yaml': expected 'extends' in a file, it cannot be "
            "overridden");
  EXPECT_EQ(of("data.set=["),
            "error: override 'data.set=[': expected YAML, got: end of sequence flow not found");
}

// An override such as `key=value` holds one value: YAML comments, directives, tags, anchors and
// document marks in it are plain text.
TEST(ConfigMistakes, OfOverridesSeeTheWholeValue) {
  for (const char* value :
       {"#0.3", "0.1 # x", "0.1 #", "%5",   "!x", "!!int 3", "---", "...", "--- 1", "&a 1",
        "*a",   "- 1",     "? 1",   "a: 1", "|",  ">",       "@1",  "`1",  "1, 2",  "x]"}) {
    EXPECT_EQ(mistakes_of(kRest, {cat("optim.lr=", value)}),
              cat("error: override 'optim.lr=", value, "': optim.lr: expected a number, got '",
                  value, "'"));
  }
  EXPECT_EQ(
      mistakes_of(kRest, {"optim=lr: 0.1"}),
      "error: override 'optim=lr: 0.1': optim: expected a map, got 'lr: 0.1'; write {lr: 0.1}");
  EXPECT_EQ(mistakes_of(kRest, {"optim.lr= "}),
            "error: override 'optim.lr= ': expected a value, got nothing; optim.lr=null takes the "
            "default");
  const auto quotes = "; text with such characters needs its own quotes";
  EXPECT_EQ(
      mistakes_of(kRest, {"note=[a] b"}),
      cat("error: override 'note=[a] b': expected one value, got '[a]' and then ' b'", quotes));
  for (const char* value : {"[0.1] # x", "[1, #2\n3]", "{a: 1, #b\n}", "'a' #b", "[#1\n]"}) {
    EXPECT_NE(mistakes_of(kRest, {cat("note=", value)}).find("expected one value, got "),
              std::string::npos)
        << value;
  }
  EXPECT_NE(mistakes_of(kRest, {"note=\"a\": b"}).find("got '\"a\"' and then ': b'"),
            std::string::npos);
  EXPECT_NE(mistakes_of(kRest, {"note=a\x01"}).find("control characters, got the byte 1"),
            std::string::npos);
}

TEST(ConfigMistakes, OfNumbersThatNoFormatHolds) {
  const auto of = [](const std::string& value) {
    const std::string text = mistakes_of(cat(kRest, "optim: {lr: ", value, "}\n"));
    return text.substr(text.find("optim.lr: ") + std::min<std::size_t>(10, text.size()));
  };
  EXPECT_EQ(of("1e-310"),
            "expected 0 or a size from 1.4e-45 to 3.4e+38, because f32 holds no smaller one, got "
            "1.0e-310");
  EXPECT_EQ(of("1e-999"), "expected a number, got '1e-999', which 64 bits cannot hold");
  EXPECT_EQ(of("1e999"), "expected a number, got '1e999', which 64 bits cannot hold");
  EXPECT_EQ(of("0x1p-3"), "expected a number, got '0x1p-3'");
  EXPECT_EQ(of(".inf"), "expected a finite number, got '.inf'");
  EXPECT_EQ(mistakes_of(cat(kRest, "optim: {lr: 1e-40}\n")), "");
}

// If two keys conflict, the reported position is that of the key which the error sentence names.
TEST(ConfigMistakes, OfKeysAtOddsNameTheOneThatIsMeant) {
  const std::string text =
      mistakes_of(kRest, {"sparsity.exclude=[c1]", "sparsity.method=n_m", "sparsity.n=4"});
  EXPECT_EQ(text,
            "error: override 'sparsity.n=4': sparsity: expected n below m because n of m weights "
            "stay, got n 4 and m 4");
}

TEST(ConfigMistakes, OfAMissingExtendedFileNameTheLineAndTheChain) {
  EXPECT_EQ(mistakes_of("extends: base.yaml\n"),
            "exp.yaml:1:10: error: expected the extended file 'base.yaml', got no such file");
  EXPECT_EQ(mistakes_of("extends: sub/base.yaml\n", {}, {{"sub/base.yaml", "extends: top.yaml\n"}}),
            "sub/base.yaml:1:10: error: expected the extended file 'sub/top.yaml', got no such "
            "file (exp.yaml -> sub/base.yaml)");
}

TEST(ConfigMistakes, OfACycleShowTheWholeCycle) {
  EXPECT_EQ(mistakes_of("extends: a.yaml\n", {}, {{"a.yaml", "extends: [./exp.yaml]\n"}}),
            "a.yaml:1:11: error: expected 'extends' without a cycle, got exp.yaml -> a.yaml -> "
            "exp.yaml");
}

TEST(ConfigMistakes, InAnExtendedFileNameThatFile) {
  EXPECT_EQ(mistakes_of(cat("extends: a.yaml\n", kRest), {}, {{"a.yaml", "\nseed: x\n"}}),
            "a.yaml:2:7: error: seed: expected an integer, got 'x'");
}

// If two files each define keys of one block, a missing key is reported at the end of the block in
// the later file.
TEST(ConfigMistakes, OfAMergedBlockNameTheLaterFile) {
  const std::string text =
      mistakes_of("extends: a.yaml\nname: x\nmodel: {type: lenet5}\ndata: {batch_size: 4}\n", {},
                  {{"a.yaml", "\n\ndata: {batch_size: 3}\n"}});
  EXPECT_TRUE(text.starts_with("exp.yaml:4:")) << text;
}

TEST(ConfigMistakes, OfHostileTextsAreErrorsAndNotCrashes) {
  std::string many;
  for (int i = 0; i < 30000; ++i) many += cat("k", i, ":\n");
  EXPECT_EQ(mistakes_of(many), "exp.yaml:10001:1: error: expected at most 20000 values");
  EXPECT_NE(mistakes_of(std::string(1000000, 'a')).find("bytes"), std::string::npos);
  EXPECT_NE(mistakes_of(std::string(100000, '[')), "");
  EXPECT_NE(mistakes_of(std::string(100000, '{')), "");
  EXPECT_NE(mistakes_of(std::string(50000, '-') + "\n"), "");
  std::string dashes;
  for (int i = 0; i < 50000; ++i) dashes += "- ";
  EXPECT_NE(mistakes_of(dashes), "");
  std::map<std::string, std::string> wide = {{"a.yaml", "extends: [b.yaml, b.yaml, b.yaml]\n"},
                                             {"b.yaml", "extends: [c.yaml, c.yaml, c.yaml]\n"},
                                             {"c.yaml", "extends: [d.yaml, d.yaml, d.yaml]\n"},
                                             {"d.yaml", "extends: [e.yaml, e.yaml, e.yaml]\n"},
                                             {"e.yaml", "seed: 1\n"}};
  EXPECT_NE(mistakes_of("extends: a.yaml\n", {}, wide).find("expected at most 64 files"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
