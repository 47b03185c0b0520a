// SPDX-License-Identifier: Apache-2.0
// explained_kernels_test.cpp: tests that `convscope explain` names the kernels that run. The
// program explains every config of the repository. The test trains two steps, evaluates two
// batches, and compares the kernels' own counters with the explanation of each layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "experiments/config/build.h"
#include "experiments/config/sweep_block.h"
#include "experiments/run_folder/layer_table.h"
#include "experiments/trainer/evaluation/evaluator.h"
#include "experiments/trainer/train_step.h"
#include "framework/parallel.h"
#include "framework/random.h"
#include "layers/conv2d/select.h"
#include "layers/conv_transpose2d/problem.h"
#include "quant/quantize_network.h"
#include "tests/support/call_program.h"
#include "tests/support/kernel_tally.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using Json = nlohmann::json;
using testing::call_program;
using testing::differences;
using testing::KernelTally;

const std::filesystem::path kConfigs = CONVSCOPE_SOURCE_DIR "/experiments/configs";
constexpr std::int64_t kSteps = 2;

// Returns a config with a small batch size. For a sweep, returns the config of its first member.
ExperimentConfig config_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  ExperimentConfig config = text.str().find("\nsweep:") != std::string::npos
                                ? load_sweep(path).members.at(0).config
                                : load_config(path);
  config.data.batch_size = std::min<std::int64_t>(config.data.batch_size, 2);
  if (config.quant) config.quant->start_from.clear();
  return config;
}

// Returns the text of a problem with a key for the layout of the images, inserted after the keys
// that every convolution has.
std::string in_layout(std::string problem, const std::string& layout) {
  if (layout == "nchw") return problem;
  const std::size_t others = std::min(problem.find(",offset_groups="), problem.size());
  return problem.insert(others, ",layout=" + layout);
}

// Removes the site counts from the text of a sparse problem. `explain` cannot know the sites, which
// differ from batch to batch, so `auto` may choose another algorithm in the run
// (sparse_config_test.cpp compares named algorithms). The remaining text has direction, kind,
// kernel size and channels.
std::string without_sites(const std::string& problem) {
  const std::size_t grid = problem.find(",grid="), pairs = problem.find(",pairs=");
  if (grid == std::string::npos || pairs == std::string::npos) return problem;
  return problem.substr(0, grid) + problem.substr(problem.find(',', pairs + 1));
}

KernelTally without_sites(const KernelTally& tally) {
  KernelTally out;
  for (const auto& [run, times] : tally) {
    const std::string problem = without_sites(run.problem);
    const bool is_sparse = problem != run.problem;
    out[{is_sparse ? "of any sparse algorithm" : run.kernel, run.direction, problem}] += times;
  }
  return out;
}

// Returns the direction and the problem that a kernel counts. A transposed convolution runs the
// kernels of the convolution whose gradient it is: its forward is their backward_data.
std::pair<std::string, std::string> as_counted(const std::string& direction,
                                               const std::string& problem) {
  if (problem.find(",opad=") == std::string::npos) return {direction, problem};
  const auto of = std::ranges::find(kDirections, direction, [](Direction d) { return name_of(d); });
  return {std::string(name_of(exchanged(*of))),
          ConvTranspose2dProblem::parse(problem).convolution().text()};
}

// Returns the kernel runs that `explain` predicts for `times` steps of this config in the given
// mode.
KernelTally said_by(const Json& explained, const char* mode, std::int64_t times) {
  std::map<std::string, std::string> problems;
  for (const Json& conv : explained.at("convolutions")) {
    problems[conv.at("layer")] = conv.at("problem");
  }
  KernelTally tally;
  for (const Json& step : explained.at("steps")) {
    if (step.at("mode") != mode) continue;
    for (const Json& kernel : step.at("kernels")) {
      const auto problem = problems.find(kernel.at("layer"));
      if (problem == problems.end()) continue;  // linear layers do not count themselves
      const auto [direction, counted] = as_counted(kernel.at("direction"), problem->second);
      testing::add_said(tally, kernel.at("kernel"), direction,
                        in_layout(counted, kernel.at("layout")), times);
    }
  }
  return without_sites(tally);
}

// A LeNet whose two convolutions run as one fused chain. The config names the chain, because `auto`
// may choose another algorithm on another CPU.
ExperimentConfig config_with_a_chain() {
  ExperimentConfig config = config_of(kConfigs / "quickstart.yaml");
  const char* const lanes = "direct_batch_lanes";
  config.conv.policy = {.forward = lanes, .backward_data = lanes, .backward_weight = lanes};
  return config;
}

Json explained(const ExperimentConfig& config) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "config.yaml") << to_yaml(config);
  const testing::Called answer = call_program("explain --json " + (folder / "config.yaml"));
  EXPECT_EQ(answer.code, 0) << answer.err;
  return answer.code == 0 ? Json::parse(answer.out) : Json();
}

// Makes samples of 20 points at random positions, and one sample without points.
std::shared_ptr<const PointSet> random_points(const ExperimentConfig& config,
                                              const SampleInfo& sample, std::int64_t count) {
  auto set = std::make_shared<PointSet>();
  set->grid = dataset_types().get(config.data.set).point_grid(config.data.options);
  set->most = sample.shape[0];
  set->channels = sample.shape[1] - static_cast<std::int64_t>(set->grid.size());
  Generator random(1, 2);
  for (std::int64_t n = 0; n < count; ++n) {
    std::set<std::int32_t> places;
    while (n != 1 && places.size() < 20) {
      const std::uint32_t most = static_cast<std::uint32_t>(set->places_of_grid());
      places.insert(static_cast<std::int32_t>(random.below(most)));
    }
    const auto numbers = places.size() * static_cast<std::size_t>(set->channels);
    set->add({places.begin(), places.end()}, std::vector<float>(numbers, 1), "random");
  }
  return set;
}

Dataset random_images(const ExperimentConfig& config, const SampleInfo& sample,
                      std::int64_t count) {
  Dataset data;
  if (sample.shape.rank() == 2) {
    data.name = "random";
    data.classes = sample.classes;
    data.labels = Tensor::zeros({count}, DType::i32);
    data.points = random_points(config, sample, count);
    return data;
  }
  data.name = "random";
  data.classes = sample.classes;
  data.images =
      Tensor::empty({count, sample.shape[0], sample.shape[1], sample.shape[2]}, DType::u8);
  Shape labels{count};
  for (const std::int64_t size : sample.labels) labels.push_back(size);
  data.labels = Tensor::zeros(labels, DType::i32);
  Generator random(1, 2);
  for (std::int64_t i = 0; i < data.images.numel(); ++i) {
    data.images.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.below(256));
  }
  data.mean.assign(static_cast<std::size_t>(sample.shape[0]), 0.5);
  data.std.assign(static_cast<std::size_t>(sample.shape[0]), 0.3);
  return data;
}

// Counts how often each kernel runs in two training steps and in the evaluation of two batches.
struct Ran {
  KernelTally training, inference;
};
Ran run_steps(const ExperimentConfig& config) {
  const SampleInfo sample = sample_info(config);
  const std::shared_ptr<Module> model = build_model(config, sample.shape, sample.classes);
  const auto optimizer = build_optimizer(config, *model);
  const auto pruner = build_pruner(config, *model, optimizer.get(), sample.shape, 1000);
  for (const QuantizedTensor& tensor : quantized_tensors(*model)) tensor.quantizer->begin();
  Loader loader(random_images(config, sample, kSteps * config.data.batch_size),
                {.batch_size = config.data.batch_size, .shuffle = false, .prefetch = false});
  TrainStep step(*model, *optimizer, 0, config.device, 0, config.train.plan);
  Ran out;
  KernelCounter counter;
  // The first step is not counted, because kernels run in it for other reasons: it compiles the
  // graph, and the policy "measure" times candidate algorithms.
  for (const bool counted : {false, true}) {
    counter.forget();
    loader.start_epoch(0);
    Batch batch;
    for (std::int64_t i = 0; i < kSteps && loader.next(batch); ++i) {
      model->set_step(i);
      if (pruner) pruner->before_step(i);
      step.run(batch, 1e-4);
      if (!counted) break;
    }
  }
  out.training = without_sites(counter.runs());
  Evaluator evaluator(*model, loader, config.device, config.train.plan);
  counter.forget();
  evaluator.run(nullptr);
  out.inference = without_sites(counter.runs());
  return out;
}

void expect_none(const std::vector<std::string>& sentences, const char* what) {
  for (const std::string& sentence : sentences) ADD_FAILURE() << what << ": " << sentence;
}

TEST(ExplainedKernels, EveryConfigRunsWhatExplainSays) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(kConfigs)) {
    const std::string name = file.path().filename();
    if (name.starts_with("base_")) continue;  // names no data set
    SCOPED_TRACE(name);
    const ExperimentConfig config = config_of(file.path());
    // Sets the number of threads to that of a run, because `auto` depends on the number and another
    // test may have changed it.
    set_num_threads(static_cast<int>(config.threads));
    const Json said = explained(config);
    if (said.is_null()) continue;
    const Ran ran = run_steps(config);
    EXPECT_FALSE(ran.training.empty());
    expect_none(differences(said_by(said, "training", kSteps), ran.training), "training");
    expect_none(differences(said_by(said, "inference", kSteps), ran.inference), "inference");
    ++count;
  }
  EXPECT_GE(count, 20);
}

// The comparison must fail for a wrong explanation. The test makes three wrong explanations: one
// names a wrong kernel, one names a direction that does not run, and one lacks a layer.
TEST(ExplainedKernels, ALieIsFound) {
  const ExperimentConfig config = config_with_a_chain();
  const Json honest = explained(config);
  const Ran ran = run_steps(config);
  ASSERT_TRUE(differences(said_by(honest, "training", kSteps), ran.training).empty());
  Json lie = honest;  // the algorithm for the single layer, although a chain runs
  for (Json& kernel : lie.at("steps").at(0).at("kernels")) {
    if (kernel.at("layer") == "c1") kernel["kernel"] = "depthwise";
  }
  EXPECT_FALSE(differences(said_by(lie, "training", kSteps), ran.training).empty());
  lie = honest;
  lie["steps"][0]["kernels"].push_back({{"layer", "c1"},
                                        {"direction", "backward_data"},
                                        {"kernel", "lanes_chain: c1+c2"},
                                        {"layout", "nchw"},
                                        {"step", "planned"}});
  EXPECT_EQ(differences(said_by(lie, "training", kSteps), ran.training).size(), 1u);
  lie = honest;
  Json& kernels = lie["steps"][0]["kernels"];
  kernels.erase(kernels.begin());
  EXPECT_EQ(differences(said_by(lie, "training", kSteps), ran.training).size(), 1u);
}

// If a config names an algorithm, either this algorithm runs or the config is refused.
TEST(ExplainedKernels, ANamedAlgorithmIsHonouredOrRefused) {
  int honoured = 0, refused = 0;
  for (const std::string& name : conv2d_algorithms(DeviceType::cpu).names()) {
    for (const bool plan : {true, false}) {
      SCOPED_TRACE(name + (plan ? ", planned" : ", dynamic"));
      ExperimentConfig config = config_of(kConfigs / "quickstart.yaml");
      config.conv.policy = {.forward = name, .backward_data = name, .backward_weight = name};
      config.train.plan = plan;
      try {
        const Ran ran = run_steps(config);
        ++honoured;
        for (const KernelTally* tally : {&ran.training, &ran.inference}) {
          EXPECT_FALSE(tally->empty());
          for (const auto& [run, times] : *tally) {
            // The lanes' chain consists of its algorithm's kernels.
            const bool chain = name == "direct_batch_lanes" && run.kernel == "lanes_chain";
            EXPECT_TRUE(run.kernel == name || chain) << run.kernel << " " << run.direction;
          }
        }
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(error.kind(), ErrorKind::kUnavailable) << error.what();
        EXPECT_NE(std::string(error.what()).find("'" + name + "'"), std::string::npos)
            << error.what();
      }
    }
  }
  EXPECT_GE(honoured, 8);
  EXPECT_GE(refused, 4);  // 5x5 kernels do not fit gemm_1x1 and Winograd
}

TEST(ExplainedKernels, TheProgramHonoursOrRefusesANamedAlgorithm) {
  const testing::TemporaryFolder folder;
  const std::string config = (kConfigs / "quickstart.yaml").string() + " conv.algorithm=";
  testing::Called answer = call_program("explain --all " + config + "im2col_gemm_eigen");
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_NE(answer.out.find("forward (im2col_gemm_eigen)"), std::string::npos);
  EXPECT_NE(answer.out.find("runs im2col_gemm_eigen, planned"), std::string::npos) << answer.out;
  EXPECT_EQ(answer.out.find("runs lanes_chain"), std::string::npos) << answer.out;
  for (const char* command : {"explain ", "run "}) {
    answer = call_program(command + config + "winograd_f4x3");
    EXPECT_EQ(answer.code, 5) << command << answer.out;
    EXPECT_NE(answer.err.find(" c1"), std::string::npos) << answer.err;
    EXPECT_NE(answer.err.find("'winograd_f4x3' expects"), std::string::npos) << answer.err;
  }
  answer = call_program("explain --all " + config + "direct_batch_lanes");
  EXPECT_NE(answer.out.find("runs lanes_chain: c1+c2, planned"), std::string::npos) << answer.out;
  EXPECT_NE(answer.out.find("not run: this gradient is not needed"), std::string::npos)
      << answer.out;
}

TEST(ExplainedKernels, TheLayerTableNamesWhatRunsAndHow) {
  const ExperimentConfig config = config_with_a_chain();
  const SampleInfo sample = sample_info(config);
  const auto model = build_model(config, sample.shape, sample.classes);
  const Shape input = {4, sample.shape[0], sample.shape[1], sample.shape[2]};
  const LayerTable planned = layer_table(*model, input, config.device);
  EXPECT_NE(planned.csv.find(",lanes_chain: c1+c2,-,lanes_chain: c1+c2,planned,,,,,,,nchw\n"),
            std::string::npos)
      << planned.csv;
  EXPECT_EQ(planned.algorithms, "lanes_chain");
  const LayerTable dynamic = layer_table(*model, input, config.device, /*plans=*/false);
  EXPECT_EQ(dynamic.csv.find("lanes_chain"), std::string::npos) << dynamic.csv;
  EXPECT_NE(dynamic.csv.find(",dynamic,,,,,,,\n"), std::string::npos) << dynamic.csv;
  // Every line has the same number of columns.
  std::istringstream lines(planned.csv + dynamic.csv);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 15) << line;
  }
}

}  // namespace
}  // namespace convscope
