// SPDX-License-Identifier: Apache-2.0
// bench_net_points_test.cpp: tests `convscope bench net` on networks on points. The batch has
// samples of the data set, the FLOPs are counted at active sites, and configs that cannot be timed
// are refused.
#include <gtest/gtest.h>

#include <fstream>

#include "datasets/loader.h"
#include "experiments/bench/net/net_bench.h"
#include "experiments/cli/cli.h"
#include "experiments/config/build.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

const std::string kPoints =
    "name: points\n"
    "data: {set: synthetic_shapes, train_size: 6, test_size: 1, size: 12, points: 60, "
    "batch_size: 4}\n"
    "layers:\n"
    "  - {type: sparse_points, name: points}\n"
    "  - {type: submanifold_conv, name: c1, out_channels: 4, kernel_size: 3}\n"
    "  - {type: relu}\n"
    "  - {type: sparse_residual, name: r2, out_channels: 6, stride: 2}\n"
    "  - {type: sparse_global_pool}\n"
    "  - {type: linear, name: f3, out_features: 8}\n"
    "optim: {type: sgd, lr: 0.1}\n";
const std::string kInk =
    "name: ink\n"
    "data: {set: synthetic_digits, train_size: 4, test_size: 1, batch_size: 2}\n"
    "layers:\n"
    "  - {type: to_sparse, name: ink}\n"
    "  - {type: submanifold_conv, name: c1, out_channels: 4, kernel_size: 3}\n"
    "  - {type: sparse_global_pool}\n"
    "  - {type: linear, name: f2, out_features: 10}\n"
    "optim: {type: sgd, lr: 0.1}\n";

struct Said {
  int code = 0;
  std::string out, errors;
};

Said run(std::vector<std::string> words) {
  words.insert(words.begin(), {"convscope", "bench", "net"});
  words.insert(words.end(), {"--min-time", "0.001", "--rounds", "2"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Said said;
  said.code = run_command_line(static_cast<int>(arguments.size()), arguments.data());
  said.out = ::testing::internal::GetCapturedStdout();
  said.errors = ::testing::internal::GetCapturedStderr();
  return said;
}

struct Net {
  ExperimentConfig config = parse_config_text(kPoints, "points.yaml");
  Dataset train = dataset_types().get("synthetic_shapes").load(config.data.options).train;
  std::shared_ptr<Module> model = build_model(config, train.sample_shape(), train.classes);
};

TEST(BenchNetOnPoints, CountsTheWorkAtTheSitesOfTheFirstSamples) {
  for (const NetMode mode : {NetMode::inference, NetMode::train}) {
    Net net;
    const NetBenchOptions options{
        .min_seconds = 1e-6, .least_samples = 3, .warm_up = 1, .samples = &net.train};
    for (const std::int64_t batch : {3, 9}) {  // in a batch of 9, the last three repeat the first
      SCOPED_TRACE(cat(name_of(mode), ", batch ", batch));
      const NetBenchRow row = bench_net(net.config, *net.model, net.train.sample_shape(),
                                        net.train.classes, mode, batch, options);
      EXPECT_EQ(row.image, (Shape{60, 4}));
      EXPECT_GE(row.time.samples, 3);
      EXPECT_EQ(row.execution, "dynamic: 'points': its sites change from batch to batch");

      std::vector<std::int64_t> numbers;
      for (std::int64_t i = 0; i < batch; ++i) numbers.push_back(i % 6);
      Loader loader(subset(net.train, numbers),
                    {.batch_size = batch, .shuffle = false, .prefetch = false});
      loader.start_epoch(0);
      Batch same;
      ASSERT_TRUE(loader.next(same));
      const Net other;
      other.model->forward(Variable(same.x));
      const NetFlops flops = net_flops(*other.model, same.x.shape());
      EXPECT_GT(flops.forward, 0);
      EXPECT_EQ(row.flops, mode == NetMode::train ? flops.step : flops.forward);
    }
  }
}

TEST(BenchNetOnPoints, NeedsASample) {
  Net net;
  const Dataset none = subset(net.train, {});
  const NetBenchOptions options{.samples = &none};
  try {
    (void)bench_net(net.config, *net.model, net.train.sample_shape(), net.train.classes,
                    NetMode::inference, 2, options);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("synthetic_shapes, got none"), std::string::npos)
        << error.what();
  }
}

TEST(BenchNetOnPoints, RunsFromTheCommandLine) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "points.yaml") << kPoints;
  const Said said = run({folder / "points.yaml", "--batch", "1,7"});
  ASSERT_EQ(said.code, 0) << said.errors;
  EXPECT_NE(said.out.find("points of synthetic_shapes [60,4], 8 classes"), std::string::npos)
      << said.out;
  EXPECT_NE(said.out.find("| inference | 1 "), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("| train     | 7 "), std::string::npos) << said.out;
}

TEST(BenchNetOnPoints, RefusesWhatItCannotTimeAndSaysWhatToDo) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "points.yaml") << kPoints;
  std::ofstream(folder / "ink.yaml") << kInk;
  const struct {
    std::vector<std::string> words;
    int code;
    std::vector<const char*> sentences;
  } cases[] = {
      {{folder / "points.yaml", "--image", "3x8x8"}, 2, {"got --image; leave it out"}},
      {{folder / "points.yaml", "--classes", "5"}, 2, {"got --classes; leave it out"}},
      {{folder / "points.yaml", "--layers"}, 5, {"'points' (sparse_points)", "leave out --layers"}},
      {{folder / "ink.yaml", "--layers"}, 5, {"'ink' (to_sparse)", "leave out --layers"}},
  };
  for (const auto& one : cases) {
    const Said said = run(one.words);
    EXPECT_EQ(said.code, one.code) << one.words.back() << ": " << said.errors;
    for (const char* sentence : one.sentences) {
      EXPECT_NE(said.errors.find(sentence), std::string::npos) << said.errors;
    }
  }
  EXPECT_EQ(run({folder / "ink.yaml"}).code, 0);  // random images have positions
}

}  // namespace
}  // namespace convscope
