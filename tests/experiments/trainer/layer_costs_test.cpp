// SPDX-License-Identifier: Apache-2.0
// layer_costs_test.cpp: tests the reported times and memory of steps and layers. Some layers sleep
// for a known time and keep a known number of bytes.
#include "experiments/run_folder/layer_costs.h"

#include <map>
#include <nlohmann/json.hpp>

#include "layers/flatten.h"
#include "layers/linear/linear.h"
#include "layers/sequential.h"
#include "tests/experiments/rest_layer.h"
#include "tests/experiments/training_fixture.h"

namespace convscope {
namespace {

using testing::bright_columns;
using testing::kClasses;
using testing::RestLayer;
using testing::TemporaryFolder;
using testing::text_of;
using testing::weights_of;

constexpr std::int64_t kKept = 1 << 20;
// The layers sleep for 4 and 16 ms, far longer than the other layers take.
constexpr double kShort = 4, kLong = 16;

std::shared_ptr<Module> linear(std::int64_t out, LayerContext& context) {
  return std::make_shared<Linear>(LinearOptions{.in_features = 16, .out_features = out}, context);
}

// 16 steps per epoch: steps 8 and 16 are sampled.
TrainingSetup setup_with_rests(bool plan) {
  TrainingSetup setup;
  const auto model = std::make_shared<Sequential>();
  LayerContext context;
  model->add("flat", std::make_shared<Flatten>());
  model->add("f1", linear(16, context));
  model->add("r1", std::make_shared<RestLayer>(kShort, kLong, kKept));
  model->add("r2", std::make_shared<RestLayer>(0, 0, 0));
  model->add("f2", linear(kClasses, context));
  setup.model = model;
  ParameterGroup group;
  for (const NamedParameter& parameter : model->parameters()) {
    group.parameters.push_back({parameter.name, parameter.variable});
  }
  const OptimizerType& sgd = optimizer_types().get("sgd");
  setup.optimizer = sgd.build({group}, Options(sgd.fields));
  setup.train = std::make_unique<Loader>(bright_columns(256, 1), LoaderOptions{.batch_size = 16});
  setup.learning_rate = [](const SchedulePoint&) { return 0.01; };
  setup.epochs = 1;
  setup.plan = plan;
  setup.config_yaml = "name: rests\n";
  setup.facts.name = "rests";
  return setup;
}

using Row = std::map<std::string, std::string>;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) c == ',' ? cells.emplace_back() : cells.back() += c;
  return cells;
}

// Returns the rows of layers.csv by layer name.
std::map<std::string, Row> layers_of(const std::string& folder) {
  std::istringstream in(text_of(folder + "/layers.csv"));
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> columns = cells_of(line);
  std::map<std::string, Row> rows;
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = cells_of(line);
    EXPECT_EQ(cells.size(), columns.size()) << line;
    Row row;
    for (std::size_t i = 0; i < std::min(cells.size(), columns.size()); ++i) {
      row[columns[i]] = cells[i];
    }
    rows[row["layer"]] = row;
  }
  return rows;
}

struct Finished {
  std::map<std::string, Row> layers;
  nlohmann::json summary;
  std::vector<float> weights;
};

Finished run(TrainingSetup setup) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "rests", 1);
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  EXPECT_EQ(trainer.run(), 0);
  return {layers_of(folder.path()), nlohmann::json::parse(text_of(folder.file("summary.json"))),
          weights_of(*setup.model)};
}

class LayerCostsOfARun : public ::testing::TestWithParam<bool> {};

// The row of a sleeping layer must show the layer's sleeping time, separately for forward and
// backward.
TEST_P(LayerCostsOfARun, AreThoseOfTheLayerThatTookThem) {
  const Finished done = run(setup_with_rests(GetParam()));
  const auto number = [&](const char* layer, const char* column) {
    const std::string& cell = done.layers.at(layer).at(column);
    EXPECT_FALSE(cell.empty()) << layer << " " << column;
    return cell.empty() ? -1 : std::stod(cell);
  };
  EXPECT_GE(number("r1", "forward_ms"), kShort);
  EXPECT_GE(number("r1", "backward_ms"), kLong);
  EXPECT_LT(number("r1", "forward_ms"), number("r1", "backward_ms"));
  // A mean over the sampled steps, not their sum.
  EXPECT_LT(number("r1", "backward_ms"), 1.7e3 * done.summary.at("avg_backward").get<double>());
  for (const char* other : {"f1", "f2", "r2"}) {
    EXPECT_LT(number(other, "forward_ms"), kShort) << other;
    EXPECT_LT(number(other, "backward_ms"), kLong) << other;
    EXPECT_LT(number(other, "kept_mib"), 0.5) << other;
  }
  EXPECT_GE(number("r1", "kept_mib"), 1.0);
  EXPECT_LT(number("r1", "kept_mib"), 1.5);
  EXPECT_LT(number("loss", "forward_ms"), kShort);
}

// Compares the reported values with times and sizes that the test knows.
TEST_P(LayerCostsOfARun, AgreeWithThePhasesOfTheSummary) {
  const Finished done = run(setup_with_rests(GetParam()));
  const auto seconds = [&](const char* key) { return done.summary.at(key).get<double>(); };
  EXPECT_GE(seconds("avg_forward"), 1e-3 * kShort);
  EXPECT_GE(seconds("avg_backward"), 1e-3 * kLong);
  EXPECT_LT(seconds("avg_forward"), seconds("avg_backward"));
  EXPECT_LT(seconds("avg_update"), seconds("avg_forward"));
  EXPECT_GE(seconds("avg_step"), 1e-3 * (kShort + kLong));
  EXPECT_GE(done.summary.at("avg_forward_mem").get<double>(), 1.0);
  EXPECT_LT(done.summary.at("avg_forward_mem").get<double>(), 1.5);
  EXPECT_EQ(done.summary.at("step"), GetParam() ? "planned" : "dynamic");
}

INSTANTIATE_TEST_SUITE_P(PlannedAndDynamic, LayerCostsOfARun, ::testing::Bool());

TEST(LayerCosts, LookingAtAStepChangesNoBit) {
  TrainingSetup looked_at = setup_with_rests(true);
  TrainingSetup alone = setup_with_rests(true);
  Finished done = run(std::move(looked_at));
  // Runs the same steps without a trainer and therefore without sampling.
  TrainStep step(*alone.model, *alone.optimizer, 0, alone.device);
  alone.model->train();
  alone.train->start_epoch(0);
  Batch batch;
  while (alone.train->next(batch)) step.run(batch, 0.01);
  EXPECT_EQ(done.weights, weights_of(*alone.model));
}

TEST(LayerCosts, LooksAtEachEighthStepOnTheCpu) {
  LayerCosts costs(Device{});
  std::vector<int> looked;
  for (int step = 1; step <= 30; ++step) {
    if (costs.look(step)) looked.push_back(step);
  }
  EXPECT_EQ(looked, (std::vector<int>{8, 16, 24}));
}

TEST(LayerCosts, AFusedLayerNamesTheOneThatItIsTimedWith) {
  TrainingSetup setup = setup_with_rests(true);
  const auto model = std::make_shared<Sequential>();
  LayerContext context;
  model->add("flat", std::make_shared<Flatten>());
  model->add("f1", linear(kClasses, context));
  model->add("relu", layer_types().get("relu").build({}, {16, kClasses}, context));
  setup.model = model;
  ParameterGroup group;
  for (const NamedParameter& parameter : model->parameters()) {
    group.parameters.push_back({parameter.name, parameter.variable});
  }
  setup.optimizer =
      optimizer_types().get("sgd").build({group}, Options(optimizer_types().get("sgd").fields));
  const Finished done = run(std::move(setup));
  EXPECT_EQ(done.layers.at("relu").at("timed_with"), "f1");
  EXPECT_EQ(done.layers.at("relu").at("forward_ms"), "");
  EXPECT_NE(done.layers.at("f1").at("forward_ms"), "");
  EXPECT_EQ(done.layers.at("f1").at("timed_with"), "");
}

// c1 and c2 run as one chain; the quantisers of c2 run separately. The row of the chain includes
// the time of these quantisers.
TEST(LayerCosts, ARowIsTheWholeOfItsLayersOrEmpty) {
  const Finished done = run(setup_training(parse_config_text(
      "name: rests\ndata: {set: synthetic_digits, train_size: 640, test_size: 32, batch_size: 32}\n"
      "model: {type: lenet5}\nquant: {w_bits: 4, a_bits: 4}\ntrain: {epochs: 1}\n",
      "rests.yaml")));
  int whole = 0, empty = 0;
  for (const auto& [layer, row] : done.layers) {
    if (layer == "flatten") continue;  // costs nothing
    (row.at("timed_with").empty() ? whole : empty) += 1;
    EXPECT_EQ(row.at("forward_ms").empty(), !row.at("timed_with").empty()) << layer;
    EXPECT_EQ(row.at("kept_mib").empty(), !row.at("timed_with").empty()) << layer;
  }
  EXPECT_GT(whole, 2);
  EXPECT_GT(empty, 2);
  EXPECT_EQ(done.layers.at("c2").at("timed_with"), "c1");
}

}  // namespace
}  // namespace convscope
