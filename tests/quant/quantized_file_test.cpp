// SPDX-License-Identifier: Apache-2.0
// quantized_file_test.cpp: tests files that store a quantised network as integer codes. The loaded
// network has the same bits, for every number of bits, and each kind of damage has an error
// message.
#include "quant/quantized_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "framework/random.h"
#include "layers/layer_types.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using namespace testing;

const Shape kInput{2, 3, 8, 8};

bool keep_all(std::string_view) { return false; }

// Convolution, batch norm, residual block with a shortcut, linear layer.
std::shared_ptr<Module> network(const QuantConfig& config, std::uint64_t seed) {
  LayerContext context;
  context.seed = seed;
  const auto conv = [](std::int64_t k) {
    Options out;
    out.set("out_channels", k);
    out.set("kernel_size", std::vector<std::int64_t>{3});
    return out;
  };
  Options block, linear;
  block.set("out_channels", std::int64_t{7});
  block.set("stride", std::int64_t{2});
  linear.set("out_features", std::int64_t{5});
  const auto model = build_layers({{.type = "conv2d", .name = "c1", .options = conv(5)},
                                   {.type = "batch_norm2d", .name = "bn1", .options = {}},
                                   {.type = "tanh", .name = "t1", .options = {}},
                                   {.type = "residual", .name = "block", .options = block},
                                   {.type = "flatten", .name = "flat", .options = {}},
                                   {.type = "linear", .name = "f1", .options = linear}},
                                  kInput, context);
  apply_quantization(*model, config, Device{});
  return model;
}

std::shared_ptr<Module> trained(const QuantConfig& config) {
  const auto out = network(config, 3);
  for (const QuantizedTensor& tensor : quantized_tensors(*out)) tensor.quantizer->begin();
  out->forward(Variable(normal(kInput, DType::f32)));  // calibrates, and changes the running means
  return out;
}

SafetensorsFile through_a_file(const SafetensorsFile& file) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/m.safetensors";
  write_safetensors(path, file.tensors, file.metadata);
  return read_safetensors(path);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<std::size_t>(a.size_bytes())) == 0;
}

Tensor output(Module& model) {
  const NoGrad no_grad;
  model.eval();
  return model.forward(Variable(normal(kInput, DType::f32, 9))).value();
}

TEST(QuantizedFile, GivesTheSameBitsForEveryNumberOfBits) {
  for (std::int64_t bits = kMinBits; bits <= kMaxBits; ++bits) {
    for (const bool per_channel : {false, true}) {
      for (const QuantStep step : {QuantStep::log, QuantStep::floored}) {
        for (const QuantMethod method : {QuantMethod::lsq, QuantMethod::minmax}) {
          // The blocks use another number of bits for their sums than for their layers. So the
          // input of a block is rounded twice, once for the sum and once for the layers.
          const QuantConfig config{.method = method,
                                   .w_bits = bits,
                                   .a_bits = bits,
                                   .first_last_bits = bits,
                                   .residual_bits = bits == 8 ? 4 : 8,
                                   .per_channel = per_channel,
                                   .step = step,
                                   .begin = 0.5};
          const auto from = trained(config);
          const auto to = network(config, 4);
          load_quantized_file(through_a_file(to_quantized_file(*from, keep_all)), "file", *to);
          const auto a = quantized_tensors(*from), b = quantized_tensors(*to);
          ASSERT_EQ(a.size(), b.size());
          for (std::size_t i = 0; i < a.size(); ++i) {
            EXPECT_TRUE(same_bits(a[i].quantizer->steps(), b[i].quantizer->steps()))
                << a[i].layer << " " << a[i].tensor << ", " << bits << " bits";
          }
          const auto from_parts = from->modules(), to_parts = to->modules();
          for (std::size_t i = 0; i < from_parts.size(); ++i) {
            if (!from_parts[i].module->weight().defined()) continue;
            const NoGrad no_grad;
            // -0 and 0 have the code 0.
            const Tensor v = from_parts[i].module->used_weight().value();
            const Tensor w = to_parts[i].module->used_weight().value();
            for (std::int64_t e = 0; e < v.numel(); ++e) ASSERT_EQ(v.at(e), w.at(e)) << bits;
          }
          const Tensor y = output(*from);
          const Tensor again = output(*to);
          for (std::int64_t e = 0; e < y.numel(); ++e) ASSERT_EQ(y.at(e), again.at(e));
          // If the loaded network is written again, the file is the same, byte for byte.
          const SafetensorsFile first = to_quantized_file(*from, keep_all);
          const SafetensorsFile second = to_quantized_file(*to, keep_all);
          EXPECT_EQ(first.metadata, second.metadata);
          for (const NamedTensor& tensor : first.tensors) {
            ASSERT_NE(second.find(tensor.name), nullptr) << tensor.name;
            EXPECT_TRUE(same_bits(tensor.tensor, *second.find(tensor.name))) << tensor.name;
          }
        }
      }
    }
  }
}

TEST(QuantizedFile, PacksEveryCodeOfEveryGrid) {
  Generator random(5, 1);
  for (int bits = kMinBits; bits <= kMaxBits; ++bits) {
    const IntegerGrid grid = integer_grid(bits, true);
    for (const std::int64_t count : {0, 1, 2, 3, 4, 5, 7, 8, 300}) {
      std::vector<std::int8_t> codes;
      for (std::int64_t i = 0; i < count; ++i) {
        const int spread = grid.qp + grid.qn + 1;
        const int code =
            count == 300 ? static_cast<int>(i) % spread : static_cast<int>(random.below(spread));
        codes.push_back(static_cast<std::int8_t>(code - grid.qn));
      }
      const Tensor packed = pack_codes(codes, bits, {count});
      EXPECT_EQ(packed.size_bytes(), bits == 2   ? (count + 3) / 4
                                     : bits <= 4 ? (count + 1) / 2
                                                 : count);
      EXPECT_EQ(unpack_codes(packed, bits, {count}, "codes"), codes) << bits << " bits, " << count;
    }
  }
}

// Tests the bit order that the header documents, so that other programs can read the file.
TEST(QuantizedFile, PutsTheFirstCodeIntoTheLowestBits) {
  const Tensor four = pack_codes({1, -1, -8}, 4, {3});
  EXPECT_EQ(static_cast<const std::uint8_t*>(four.raw_data())[0], 0xf1);
  EXPECT_EQ(static_cast<const std::uint8_t*>(four.raw_data())[1], 0x08);
  const Tensor two = pack_codes({1, -1, -2, 0, 1}, 2, {5});
  EXPECT_EQ(static_cast<const std::uint8_t*>(two.raw_data())[0], 0x2d);
  EXPECT_EQ(static_cast<const std::uint8_t*>(two.raw_data())[1], 0x01);
}

TEST(QuantizedFile, HoldsWhatItsHeaderSaysAndNothingElse) {
  const auto from = trained({.w_bits = 4, .a_bits = 4, .residual_bits = 8, .per_channel = true});
  const SafetensorsFile file = to_quantized_file(*from, [](std::string_view name) {
    return name == "f1.bias";  // as if it were a mask
  });
  std::string text;
  for (const NamedTensor& tensor : file.tensors) {
    text += cat(tensor.name, " ", name_of(tensor.tensor.dtype()), tensor.tensor.shape(), "\n");
  }
  for (const char* line :
       {"c1.weight.codes i8[5,3,3,3]\n", "c1.weight.step f32[5]\n", "c1.input.step f32[1]\n",
        "block.conv1.weight.codes u8[158]\n",  // 7 x 5 x 3 x 3 = 315 codes
        "block.conv1.input.step f32[1]\n", "block.input.step f32[1]\n",
        "block.shortcut.step f32[1]\n", "bn1.running_var f32[5]\n", "c1.bias f32[5]\n",
        "f1.weight.codes i8[5,63]\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
  }
  for (const char* part : {"quantizer", "c1.weight f32", "f1.bias"}) {
    EXPECT_EQ(text.find(part), std::string::npos) << text;
  }
  EXPECT_NE(file.metadata.at("quantisers")
                .find(R"("block.conv1.weight":{"bits":4,"by_channel":true,"shape":[7,5,3,3],)"
                      R"("signed":true})"),
            std::string::npos)
      << file.metadata.at("quantisers");
}

// Sets nine of ten weights to zero, like a mask.
std::shared_ptr<Module> pruned(const QuantConfig& config) {
  const auto out = network(config, 3);
  for (const NamedParameter& p : out->parameters()) {
    const Tensor& values = p.variable.value();
    if (values.rank() < 2) continue;
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      if (i % 10 != 3) values.data<float>()[i] = 0;
    }
  }
  for (const QuantizedTensor& tensor : quantized_tensors(*out)) tensor.quantizer->begin();
  out->forward(Variable(normal(kInput, DType::f32)));
  return out;
}

TEST(QuantizedFile, LeavesOutZerosWhereThatIsSmaller) {
  for (std::int64_t bits = kMinBits; bits <= kMaxBits; ++bits) {
    const QuantConfig config{
        .w_bits = bits, .a_bits = 8, .first_last_bits = bits, .per_channel = true};
    const auto from = pruned(config);
    const SafetensorsFile file = through_a_file(to_quantized_file(*from, keep_all));
    const Tensor* const kept = file.find("block.conv1.weight.kept");
    ASSERT_NE(kept, nullptr) << bits << " bits";
    EXPECT_EQ(kept->numel(), (315 + 7) / 8);
    const Tensor* const codes = file.find("block.conv1.weight.codes");
    ASSERT_NE(codes, nullptr);
    EXPECT_LE(codes->numel(), 32);
    const auto to = network(config, 4);
    load_quantized_file(file, "file", *to);
    const Tensor y = output(*from), again = output(*to);
    for (std::int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), again.at(i)) << bits;
    if (bits < 4) continue;  // with 4 bits and more, few codes are zero without pruning
    EXPECT_EQ(to_quantized_file(*trained(config), keep_all).find("f1.weight.kept"), nullptr)
        << bits;
  }
}

TEST(QuantizedFile, SaysWhatIsWrongWithKeptCodes) {
  const QuantConfig config{.w_bits = 8, .a_bits = 8, .first_last_bits = 8};
  const SafetensorsFile good = to_quantized_file(*pruned(config), keep_all);
  const auto to = network(config, 4);
  const auto with = [&](std::size_t byte, std::uint8_t bits, std::int64_t length) {
    SafetensorsFile file;
    file.metadata = good.metadata;
    for (const NamedTensor& tensor : good.tensors) {
      file.tensors.push_back({tensor.name, tensor.tensor.clone()});
      if (tensor.name != "block.conv1.weight.kept") continue;
      if (length > 0) file.tensors.back().tensor = Tensor::zeros({length}, DType::u8);
      auto* const bytes = static_cast<std::uint8_t*>(file.tensors.back().tensor.raw_data());
      bytes[byte] = static_cast<std::uint8_t>(bytes[byte] | bits);
    }
    load_quantized_file(file, "m.safetensors", *to);
  };
  with(0, 0, 0);
  EXPECT_ERROR(
      ErrorKind::kData,
      "expected zeros after the last of 315 bits of 'block.conv1.weight.kept', got a 1 at 316",
      with(39, 0x10, 0));
  EXPECT_ERROR(ErrorKind::kData, "'block.conv1.weight.codes': expected i8[33]", with(0, 1, 0));
  EXPECT_ERROR(ErrorKind::kData, "expected 'block.conv1.weight.kept' to be u8[40]", with(0, 0, 39));
}

TEST(QuantizedFile, NeedsCalibratedSteps) {
  EXPECT_ERROR(ErrorKind::kConfig,
               "expected calibrated steps, because codes are counted in them, got 'c1.input' whose "
               "quantiser has not begun",
               to_quantized_file(*network({}, 3), keep_all));
  const auto waiting = network({.begin = 0.5}, 3);
  waiting->forward(Variable(normal(kInput, DType::f32)));
  EXPECT_ERROR(ErrorKind::kConfig, "whose quantiser has not begun",
               to_quantized_file(*waiting, keep_all));
}

TEST(QuantizedFile, SaysWhatIsWrongWithABadOne) {
  const QuantConfig config{.w_bits = 3, .a_bits = 4, .first_last_bits = 6};
  const SafetensorsFile good = to_quantized_file(*trained(config), keep_all);
  const auto to = network(config, 4);
  const auto with = [&](const std::function<void(SafetensorsFile&)>& damage) {
    SafetensorsFile file;
    for (const NamedTensor& tensor : good.tensors) {
      file.tensors.push_back({tensor.name, tensor.tensor.clone()});
    }
    file.metadata = good.metadata;
    damage(file);
    load_quantized_file(file, "m.safetensors", *to);
  };
  const auto named = [](SafetensorsFile& file, const std::string& name) -> Tensor& {
    return std::ranges::find(file.tensors, name, &NamedTensor::name)->tensor;
  };
  const auto bytes = [&](SafetensorsFile& file, const std::string& name) {
    return static_cast<std::uint8_t*>(named(file, name).raw_data());
  };
  with([](SafetensorsFile&) {});
  const auto drop = [&](const char* name) {
    return [name](SafetensorsFile& file) {
      std::erase_if(file.tensors, [&](const NamedTensor& t) { return t.name == name; });
    };
  };
  EXPECT_ERROR(ErrorKind::kData,
               "[quantised model] m.safetensors, 'c1.weight.codes': expected codes from -32 to 31 "
               "because they have 6 bits, got 32 at 2",
               with([&](SafetensorsFile& f) { bytes(f, "c1.weight.codes")[2] = 32; }));
  EXPECT_ERROR(ErrorKind::kData,
               "'block.conv1.weight.codes': expected codes from -4 to 3 because they have 3 bits, "
               "got -5 at 1",
               with([&](SafetensorsFile& f) { bytes(f, "block.conv1.weight.codes")[0] = 0xb0; }));
  EXPECT_ERROR(ErrorKind::kData, "expected zeros after the last of 315 codes, got 1",
               with([&](SafetensorsFile& f) {
                 std::uint8_t& last = bytes(f, "block.conv1.weight.codes")[157];
                 last = static_cast<std::uint8_t>((last & 15) | 0x10);
               }));
  EXPECT_ERROR(ErrorKind::kData, "m.safetensors: expected a tensor 'block.input.step', got none",
               with(drop("block.input.step")));
  EXPECT_ERROR(ErrorKind::kData, "m.safetensors: expected a tensor 'c1.weight.codes', got none",
               with(drop("c1.weight.codes")));
  EXPECT_ERROR(ErrorKind::kData, "m.safetensors: expected a tensor 'bn1.running_mean', got none",
               with(drop("bn1.running_mean")));
  EXPECT_ERROR(ErrorKind::kData,
               "expected u8[158] because 3-bit codes of [7,5,3,3] take as many bytes, got u8[157]",
               with([&](SafetensorsFile& f) {
                 named(f, "block.conv1.weight.codes") = Tensor::zeros({157}, DType::u8);
               }));
  EXPECT_ERROR(ErrorKind::kData, "take as many bytes, got i8[315]", with([&](SafetensorsFile& f) {
                 named(f, "block.conv1.weight.codes") = Tensor::zeros({315}, DType::i8);
               }));
  for (const float step : {0.0f, -1.0f, std::nanf(""), INFINITY, 3e37f}) {
    EXPECT_ERROR(ErrorKind::kData, "expected finite steps above 0 in 'f1.input.step', got ",
                 with([&](SafetensorsFile& f) { named(f, "f1.input.step").fill(step); }));
  }
  EXPECT_ERROR(ErrorKind::kData, "expected 'c1.input.step' to be f32[1]",
               with([&](SafetensorsFile& f) { named(f, "c1.input.step") = Tensor::zeros({2}); }));
  EXPECT_ERROR(ErrorKind::kData, "expected no tensor 'more' because the config has none",
               with([&](SafetensorsFile& f) {
                 f.tensors.push_back({"more", Tensor::zeros({1})});
               }));
  EXPECT_ERROR(ErrorKind::kData,
               "expected the format convscope-quantised-1, got convscope-quantised-2, which this "
               "version does not read",
               with([](SafetensorsFile& f) { f.metadata["format"] = "convscope-quantised-2"; }));
  EXPECT_ERROR(ErrorKind::kData, "expected a JSON object 'quantisers' in the metadata, got other",
               with([](SafetensorsFile& f) { f.metadata["quantisers"] = "{"; }));
  EXPECT_ERROR(ErrorKind::kData, "expected 'c1.input' in 'quantisers', got none",
               with([](SafetensorsFile& f) { f.metadata["quantisers"] = "{}"; }));
  EXPECT_ERROR(ErrorKind::kData, "expected 'block.conv1.input' to be", with([](SafetensorsFile& f) {
                 std::string& text = f.metadata["quantisers"];
                 const std::size_t at = text.find("\"bits\":4");
                 text.replace(at, 8, "\"bits\":5");
               }));
  LayerContext context;
  Options linear;
  linear.set("out_features", std::int64_t{3});
  const auto plain =
      build_layers({{.type = "linear", .name = "f1", .options = linear}}, {1, 4}, context);
  EXPECT_ERROR(ErrorKind::kData, "expected a config with a block 'quant', got one without",
               load_quantized_file(good, "m.safetensors", *plain));
}

TEST(Quantizer, TakesStepsThatItHasGiven) {
  Generator random(7, 1);
  for (const QuantStep form : {QuantStep::log, QuantStep::floored}) {
    Quantizer from({.step = form, .channels = 500}), to({.step = form, .channels = 500});
    const Tensor v = Tensor::empty({500, 3});
    for (std::int64_t i = 0; i < v.numel(); ++i) {
      // From 1e-12 to 1e12, so that log s covers all magnitudes.
      v.data<float>()[i] =
          random.normal() * std::pow(10.0f, static_cast<float>(i / 3 % 25) - 12.0f);
    }
    from.forward(Variable(v));
    to.set_steps(from.steps());
    EXPECT_TRUE(same_bits(from.steps(), to.steps()));
    EXPECT_TRUE(to.is_calibrated());
    to.eval();
    from.eval();
    EXPECT_TRUE(same_bits(from.forward(Variable(v)).value(), to.forward(Variable(v)).value()));
    EXPECT_TRUE(same_bits(from.steps(), to.steps())) << "no bound moves them";
  }
  Quantizer one({});
  EXPECT_ERROR(ErrorKind::kInvalid, "[quantizer] expected steps of type f32 and shape [1], got",
               one.set_steps(Tensor::zeros({2})));
}

}  // namespace
}  // namespace convscope
