// SPDX-License-Identifier: Apache-2.0
// sparse_file_test.cpp: tests files of pruned networks, which omit pruned weights. For every kind
// of mask the loaded network has the same bits and the file has the fewest bytes. Each kind of
// damage has an error message.
#include "sparsity/file/sparse_file.h"

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "sparsity/mask.h"
#include "tests/sparsity/networks.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

using Given = std::map<std::string, OptionValue>;

const Given kBlocks = {{"method", std::string("block")},
                       {"block", std::vector<std::int64_t>{4, 1}},
                       {"target", 0.5},
                       {"exclude", std::vector<std::string>{"f4"}}};
Given given_method(const std::string& method, double target) {
  return {{"method", method}, {"target", target}};
}

// f1 is a matrix of 4 x 200. If few weights are left, storing their positions takes fewer bytes
// than a mask of 800 bits.
std::shared_ptr<Module> wide_network(std::uint64_t seed) {
  LayerContext context;
  context.seed = seed;
  return build_layers({layer("flatten", "flat"), layer("linear", "f1", 4), layer("relu", "r1"),
                       layer("linear", "f2", 3)},
                      kImage, context);
}

// A network with pruned weights that keep their values.
struct Pruned {
  explicit Pruned(const Given& given, std::uint64_t seed = 1, bool wide = false)
      : model(wide ? wide_network(seed) : small_network(seed, /*batch_norm=*/true)),
        pruner(*model, kImage, options_of(given), 0, 5) {
    pruner.prune_now();
    model->eval();
  }
  Tensor answer() const {
    const NoGrad no_grad;
    return model->forward(Variable(random_tensor({4, 2, 10, 10}, 9))).value();
  }
  std::shared_ptr<Module> model;
  Pruner pruner;
};

// Prunes f1 to three weights, which are in the first and in the last row.
Pruned few_weights() {
  Pruned out(given_method("magnitude", 0), 1, /*wide=*/true);
  float* const keep = out.pruner.masks()[0].data<float>();
  std::fill_n(keep, 800, 0.0f);
  keep[1] = keep[7] = keep[799] = 1;
  return out;
}

SafetensorsFile through_a_file(const SafetensorsFile& file) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/m.safetensors";
  write_safetensors(path, file.tensors, file.metadata);
  return read_safetensors(path);
}

std::int64_t bytes_of(const SafetensorsFile& file, const std::string& prefix) {
  std::int64_t bytes = 0;
  for (const NamedTensor& tensor : file.tensors) {
    if (tensor.name.starts_with(prefix)) {
      bytes += static_cast<std::int64_t>(tensor.tensor.size_bytes());
    }
  }
  return bytes;
}

TEST(SparseFile, GivesTheSameBitsForEveryFormOfMasks) {
  Given n_m = given_method("n_m", 0);
  for (const Given& given :
       {kBlocks, given_method("magnitude", 0.8), given_method("magnitude", 0.1),
        given_method("filter", 0.5), given_method("rigl", 0.7), n_m}) {
    SCOPED_TRACE(std::get<std::string>(given.at("method")));
    Pruned trained(given);
    const SafetensorsFile file = through_a_file(to_sparse_file(*trained.model));
    EXPECT_TRUE(is_sparse_file(file));
    Pruned other(given, 2);
    load_sparse_file(file, "f", *other.model);
    EXPECT_EQ(values_of(other.answer()), values_of(trained.answer()));
    // The loaded masks equal the original ones. If a weight was stored dense, it has no mask, and
    // its pruned elements are 0.
    for (std::size_t l = 0; l < trained.pruner.network().layers.size(); ++l) {
      const Tensor keep = trained.pruner.masks()[l];
      if (!keep.defined()) continue;
      const std::string& name = trained.pruner.network().layers[l].name;
      const bool whole = file.find(name + ".weight") != nullptr;
      const Tensor now = other.pruner.masks()[l],
                   weight = other.pruner.network().layers[l].weight();
      for (std::int64_t i = 0; i < keep.numel(); ++i) {
        EXPECT_EQ(now.data<float>()[i], whole ? 1 : keep.data<float>()[i]) << name << " at " << i;
        EXPECT_TRUE(keep.data<float>()[i] != 0 || weight.data<float>()[i] == 0) << name;
      }
    }
  }
}

// c2 is a matrix of 6 x 36, f3 one of 8 x 24.
TEST(SparseFile, TakesTheFormWithTheFewestBytes) {
  Pruned blocks(kBlocks);
  const SafetensorsFile file = to_sparse_file(*blocks.model);
  const auto facts = nlohmann::json::parse(file.metadata.at("sparse"));
  EXPECT_EQ(facts.at("f3.weight").at("piece"), (nlohmann::json{4, 1}));
  EXPECT_EQ(facts.at("f3.weight").at("index"), "bits");
  EXPECT_EQ(bytes_of(file, "f3.weight"), 4 * 8 * 24 / 2 + 2 * 24 / 8);
  EXPECT_FALSE(facts.contains("f4.weight"));  // it has no mask
  EXPECT_EQ(bytes_of(file, "f4.weight"), 4 * 8 * 3);
  for (const SparseWeightFacts& row : sparse_weight_facts(file, *blocks.model)) {
    EXPECT_EQ(row.bytes, bytes_of(file, row.name));
    EXPECT_LE(row.bytes, 4 * row.weights);
  }
  // Few single weights are left, so storing their positions takes fewer bytes than one bit for each
  // weight.
  const Pruned few = few_weights();
  const SafetensorsFile small = to_sparse_file(*few.model);
  EXPECT_EQ(nlohmann::json::parse(small.metadata.at("sparse")).at("f1.weight").at("index"),
            "columns");
  EXPECT_EQ(bytes_of(small, "f1.weight"), 4 * 3 + 4 * 3 + 4 * (4 + 1));
  Pruned again(given_method("magnitude", 0), 2, /*wide=*/true);
  load_sparse_file(through_a_file(small), "f", *again.model);
  EXPECT_EQ(values_of(again.answer()), values_of(few.answer()));
  // Where nearly all weights stay, the weight is stored dense.
  Pruned many(given_method("magnitude", 0));
  many.pruner.masks()[0].data<float>()[0] = 0;
  const SafetensorsFile whole = to_sparse_file(*many.model);
  EXPECT_EQ(bytes_of(whole, "c1.weight"), 4 * 4 * 2 * 9);
  Pruned third(given_method("magnitude", 0), 2);
  load_sparse_file(through_a_file(whole), "f", *third.model);
  EXPECT_EQ(values_of(third.answer()), values_of(many.answer()));
}

TEST(SparseFile, OfANetworkWithoutMasksIsRefused) {
  const auto model = small_network();
  EXPECT_ERROR(ErrorKind::kConfig,
               "[sparse model] expected a network with masks, because the file leaves out what "
               "they do, got one without",
               to_sparse_file(*model));
}

TEST(SparseFile, RefusesDamageInOneSentence) {
  Pruned trained(kBlocks);
  const SafetensorsFile good = to_sparse_file(*trained.model);
  const auto refused = [&](const std::function<void(SafetensorsFile&)>& damage,
                           const std::string& sentence) {
    SafetensorsFile file = through_a_file(good);
    damage(file);
    Pruned other(kBlocks, 2);
    EXPECT_ERROR(ErrorKind::kData, sentence, load_sparse_file(file, "f", *other.model));
  };
  const auto tensor = [](SafetensorsFile& file, const std::string& name) -> Tensor& {
    for (NamedTensor& one : file.tensors) {
      if (one.name == name) return one.tensor;
    }
    ADD_FAILURE() << name;
    return file.tensors[0].tensor;
  };
  const auto with_facts = [](SafetensorsFile& file, const std::string& from,
                             const std::string& to) {
    std::string& text = file.metadata["sparse"];
    ASSERT_NE(text.find(from), std::string::npos) << text;
    text.replace(text.find(from), from.size(), to);
  };
  refused([](SafetensorsFile& f) { f.metadata["format"] = "convscope-sparse-9"; },
          "expected the format convscope-sparse-1, got convscope-sparse-9, which this version does "
          "not read");
  refused([](SafetensorsFile& f) { f.metadata["sparse"] = "[1"; },
          "expected a JSON object 'sparse' in the metadata, got other text");
  refused([&](SafetensorsFile& f) { with_facts(f, "[8,24]", "[8,25]"); },
          "expected 'f3.weight' of shape [8,24] because the config makes it so, got ");
  refused([&](SafetensorsFile& f) { with_facts(f, "\"bits\"", "\"bites\""); },
          "pieces that fit its matrix and the index bits or columns");
  refused([&](SafetensorsFile& f) { with_facts(f, "\"piece\":[4,1]", "\"piece\":[0,1]"); },
          "pieces that fit its matrix");
  refused([&](SafetensorsFile& f) { with_facts(f, "\"f3.weight\"", "\"f9.weight\""); },
          "expected pieces of weights that the config prunes, got 'f9.weight', which it does not");
  refused([&](SafetensorsFile& f) { tensor(f, "f3.weight.values") = Tensor::zeros({3}); },
          "expected 'f3.weight.values' to be f32");
  refused(
      [&](SafetensorsFile& f) {
        std::erase_if(f.tensors, [](const NamedTensor& t) { return t.name == "f3.weight.bits"; });
      },
      "expected a tensor 'f3.weight.bits', got none");
  refused(
      [&](SafetensorsFile& f) {  // of 24 bits six are unused
        Tensor& bits = tensor(f, "c1.weight.bits");
        static_cast<std::uint8_t*>(bits.raw_data())[2] |= 0x80;
      },
      "expected zeros after the last of 18 bits of 'c1.weight', got a one");
  refused(
      [&](SafetensorsFile& f) {
        f.tensors.push_back({"more", Tensor::zeros({2})});
      },
      "expected no tensor 'more' because the config has none");
  refused([&](SafetensorsFile& f) { tensor(f, "f4.bias") = Tensor::zeros({4}); },
          "expected 'f4.bias' to be f32[3], got f32[4]");
}

TEST(SparseFile, RefusesColumnsThatDoNotFit) {
  const SafetensorsFile good = to_sparse_file(*few_weights().model);
  const auto refused = [&](const std::string& name, std::int64_t at, std::int32_t value,
                           const std::string& sentence) {
    SafetensorsFile file = through_a_file(good);
    for (NamedTensor& one : file.tensors) {
      if (one.name == name) one.tensor.data<std::int32_t>()[at] = value;
    }
    Pruned other(given_method("magnitude", 0), 2, /*wide=*/true);
    EXPECT_ERROR(ErrorKind::kData, sentence, load_sparse_file(file, "f", *other.model));
  };
  ASSERT_NE(good.find("f1.weight.columns"), nullptr);
  const std::string ascend = "expected 'f1.weight.columns' to ascend below 200 in each row, got ";
  refused("f1.weight.columns", 0, 200, ascend + "200 at 0");
  refused("f1.weight.columns", 0, -1, ascend + "-1 at 0");
  refused("f1.weight.columns", 1, 1, ascend + "1 at 1");
  const std::string begin =
      "expected 'f1.weight.row_begin' from 0 with at most 200 pieces in a row";
  refused("f1.weight.row_begin", 0, 1, begin);
  refused("f1.weight.row_begin", 1, 2000000000, begin);
  refused("f1.weight.row_begin", 1, -5, begin);
  refused("f1.weight.row_begin", 4, 2, "expected 'f1.weight.columns' to be i32[2], got i32[3]");
}

}  // namespace
}  // namespace convscope::testing
