// SPDX-License-Identifier: Apache-2.0
// cost_test.cpp: the cost model: counts to time, tables of devices, and the fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "framework/machine/machine.h"
#include "framework/machine/peaks.h"
#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"
#include "layers/deform_conv2d/algorithm.h"
#include "layers/dispatch/cost/choose.h"
#include "layers/dispatch/cost/fit.h"
#include "layers/sparse_conv/algorithm.h"
#include "tests/support/cache_folder.h"
#include "tests/support/environment_variable.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

constexpr CostKey kKey{"conv2d", "made_up", Direction::forward};

class CostModel : public ::testing::Test {
 protected:
  CostModel() : threads_(num_threads()) {
    set_machine_peaks({.flops_per_second = 1e9, .bytes_per_second = 1e9});
    set_num_threads(1);
  }
  ~CostModel() override {
    set_machine_peaks({});
    set_num_threads(threads_);
    use_device_table("", DeviceType::cpu);
  }
  static double ms(const Cost& cost, WeightUse use = WeightUse::once, std::size_t prepared = 0) {
    return estimated_ms(kKey, cost, DeviceType::cpu, DType::f32, use, prepared);
  }
  static DeviceTable table_with(const Coefficients& coefficients) {
    DeviceTable out{.device = cpu_model_name(), .by_isa = {}};
    out.by_isa[std::string(name_of(current_isa()))][kernel_of(kKey, "")] = coefficients;
    return out;
  }
  static Coefficients only(const char* term, double value) {
    Coefficients out{};
    for (std::size_t i = 0; i < kCpuTerms.size(); ++i) {
      if (kCpuTerms[i].name == std::string(term)) out[i] = value;
    }
    return out;
  }

  testing::EnvironmentVariable measure_{"CONVSCOPE_MEASURE", nullptr};
  testing::CacheFolder cache_;
  int threads_;
};

TEST_F(CostModel, AddsTheTermsOfAKernel) {
  Coefficients coefficients = only("issued", 2);
  coefficients[0] = 2;
  use_device_table(device_table_text(table_with(coefficients)), DeviceType::cpu);
  EXPECT_NEAR(ms({.issued = 1e6}), 2, 1e-9);
  use_device_table(device_table_text(table_with(only("tiles", 10))), DeviceType::cpu);
  EXPECT_NEAR(ms({.issued = 1e6, .tiles = 100}), 1e3 * 1000 * flops_per_cycle(DType::f32) / 1e9,
              1e-9);
  // An algorithm that no table has takes the default coefficients.
  EXPECT_NEAR(estimated_ms({"conv2d", "nobody", Direction::forward}, {.issued = 1e6},
                           DeviceType::cpu, DType::f32),
              1, 1e-9);
}

TEST_F(CostModel, WeightsThatArePreparedBeforeAreOnlyRead) {
  const Cost cost{.issued = 1e6, .prepared = 1e5};
  const double prepare = 1e3 * 1e5 * flops_per_cycle(DType::f32) / 1e9;
  EXPECT_NEAR(ms(cost), 1 + prepare, 1e-9);
  EXPECT_NEAR(ms(cost, WeightUse::often, 2000000), 1 + 2, 1e-9);
  EXPECT_NEAR(ms(cost, WeightUse::often, 0), 1 + prepare, 1e-9);  // nothing can be prepared
}

TEST_F(CostModel, ThreadsWaitForTheLastChunk) {
  set_num_threads(2);
  EXPECT_NEAR(ms({.flops = 1e6, .issued = 1e6, .chunks = 4}), 1, 1e-9);
  EXPECT_NEAR(ms({.flops = 1e6, .issued = 1e6, .chunks = 3}), 4.0 / 3, 1e-9);
  EXPECT_NEAR(ms({.flops = 1e6, .issued = 1e6, .chunks = 1}), 2, 1e-9);
  EXPECT_NEAR(ms({.flops = 1e4, .issued = 1e6, .chunks = 4}), 2, 1e-9);  // one thread
  // Results that must not depend on the machine do not depend on the number of threads.
  const testing::EnvironmentVariable off("CONVSCOPE_MEASURE", "off");
  const double two = ms({.flops = 1e6, .issued = 1e6, .chunks = 3});
  set_num_threads(1);
  EXPECT_NEAR(ms({.flops = 1e6, .issued = 1e6, .chunks = 3}), two, 1e-9);
}

TEST_F(CostModel, SaysWhatTakesMostOfTheTime) {
  EXPECT_STREQ(limit_of(kKey, {.bytes = 10, .issued = 1e6}, DeviceType::cpu, DType::f32),
               "arithmetic");
  EXPECT_STREQ(limit_of(kKey, {.bytes = 1e7, .issued = 1e6}, DeviceType::cpu, DType::f32),
               "memory");
}

TEST_F(CostModel, ATableIsReadAsItWasWritten) {
  DeviceTable table = table_with(only("loads", 0.25));
  table.cpus = {{.family = 25, .models = {1, 17}}};
  table.fitted = "100 times";
  const DeviceTable again = parse_device_table(device_table_text(table));
  EXPECT_EQ(again.by_isa, table.by_isa);
  EXPECT_EQ(again.cpus[0].models, table.cpus[0].models);
  EXPECT_EQ(again.fitted, "100 times");
  EXPECT_ERROR(ErrorKind::kInvalid, "expected the format", parse_device_table("{}"));
  EXPECT_ERROR(ErrorKind::kInvalid, "in 'conv2d x forward', got loads: -1",
               parse_device_table("{\"format\": \"convscope device 1\", \"coefficients\": "
                                  "{\"avx2\": {\"conv2d x forward\": {\"loads\": -1}}}}"));
}

TEST_F(CostModel, TheTableOfThisMachineComesFirst) {
  remember_device_table(table_with(only("issued", 3)), DeviceType::cpu);
  EXPECT_EQ(table_in_use(DeviceType::cpu).name, "this machine");
  EXPECT_NEAR(ms({.issued = 1e6}), 3, 1e-9);
  // A process that continues a run uses the table of the run.
  const std::string kept = text_of_table_in_use(DeviceType::cpu);
  remember_device_table(table_with(only("issued", 5)), DeviceType::cpu);
  EXPECT_NEAR(ms({.issued = 1e6}), 5, 1e-9);
  use_device_table(kept, DeviceType::cpu);
  EXPECT_NEAR(ms({.issued = 1e6}), 3, 1e-9);
  // A home folder may be shared by machines.
  DeviceTable other = table_with(only("issued", 7));
  other.device = "another processor";
  remember_device_table(other, DeviceType::cpu);
  EXPECT_NE(table_in_use(DeviceType::cpu).name, "this machine");
  // Results that must not depend on the machine use the generic table.
  const testing::EnvironmentVariable off("CONVSCOPE_MEASURE", "off");
  remember_device_table(table_with(only("issued", 3)), DeviceType::cpu);
  EXPECT_EQ(table_in_use(DeviceType::cpu).name, "generic");
}

class GpuCostModel : public ::testing::Test {
 protected:
  GpuCostModel() { set_machine_peaks(kGpu, DeviceType::cuda); }
  ~GpuCostModel() override { set_machine_peaks({}, DeviceType::cuda); }

  // An SM does 256 FLOPs in a cycle, so a cycle is 1 us.
  static constexpr MachinePeaks kGpu{.flops_per_second = 256 * 10 * 1e6,
                                     .bytes_per_second = 1e9,
                                     .tf32_flops_per_second = 256 * 20 * 1e6,
                                     .half_flops_per_second = 256 * 40 * 1e6,
                                     .launch_seconds = 5e-6,
                                     .processors = 10,
                                     .l2_bytes = 1e6};
  // Returns the microseconds of one term.
  static double us(const char* term, const Cost& cost, DType operand_type = DType::f32,
                   bool prepared = false) {
    const Coefficients seconds =
        seconds_per_coefficient(cost, DeviceType::cuda, kGpu, operand_type,
                                prepared ? WeightUse::often : WeightUse::once, prepared ? 1 : 0);
    for (std::size_t i = 0; i < kGpuTerms.size(); ++i) {
      if (kGpuTerms[i].name == std::string(term)) return 1e6 * seconds[i];
    }
    ADD_FAILURE() << "no term " << term;
    return 0;
  }
};

TEST_F(GpuCostModel, BlocksRunInRounds) {
  const Cost cost{.blocks = 25, .resident = 2, .chain = 7, .copies = 5, .waits = 3};
  EXPECT_NEAR(us("rounds", cost), 2, 1e-9);  // 3 blocks of an SM, 2 at a time
  EXPECT_NEAR(us("chain", cost), 14, 1e-9);
  EXPECT_NEAR(us("copies", cost), 10, 1e-9);
  EXPECT_NEAR(us("waits", cost), 6, 1e-9);
  EXPECT_NEAR(us("blocks", cost), 3, 1e-9);
  EXPECT_NEAR(us("steps", cost), 21, 1e-9);
}

TEST_F(GpuCostModel, TheMultiprocessorWithMostBlocksCounts) {
  const Cost even{.issued = 256e3, .blocks = 20, .listed_warps = 1000, .stored = 500};
  EXPECT_NEAR(us("issued", even), 100, 1e-9);
  EXPECT_NEAR(us("listed_warps", even), 100, 1e-9);
  EXPECT_NEAR(us("stored", even), 50, 1e-9);
  Cost uneven = even;
  uneven.blocks = 11;  // one SM has 2 of 11
  EXPECT_NEAR(us("issued", uneven), 100 * 20.0 / 11, 1e-9);
  EXPECT_NEAR(us("alone", uneven), 2 * 1000.0 / 11, 1e-9);  // rounds of one block
  const Cost spread{.issued = 256e3};
  EXPECT_NEAR(us("issued", spread), 100, 1e-9);
  EXPECT_NEAR(us("rounds", spread), 0, 1e-9);
}

TEST_F(GpuCostModel, EachTypeHasItsPeak) {
  const Cost cost{.issued = 256e3, .tensor_cores = true};
  EXPECT_NEAR(us("issued", cost), 50, 1e-9);
  EXPECT_NEAR(us("issued", cost, DType::bf16), 25, 1e-9);
  EXPECT_NEAR(us("issued", cost, DType::i8), 12.5, 1e-9);
}

TEST_F(GpuCostModel, BytesBeyondL2AreApart) {
  EXPECT_NEAR(us("bytes_in_l2", {.bytes = 4e5}), 400, 1e-9);
  EXPECT_NEAR(us("bytes", {.bytes = 4e5}), 0, 1e-9);
  EXPECT_NEAR(us("bytes", {.bytes = 2e6}), 2000, 1e-9);
  EXPECT_NEAR(us("pass_bytes", {.pass_bytes = 2e6}), 2000, 1e-9);
}

TEST_F(GpuCostModel, PreparedWeightsTakeNoTime) {
  const Cost cost{.launches = 2, .prepared_bytes = 1e6, .prepare_launches = 3};
  EXPECT_NEAR(us("launches", cost, DType::f32, true), 10, 1e-9);
  EXPECT_NEAR(us("prepared_bytes", cost), 1000, 1e-9);
  EXPECT_NEAR(us("prepare_launches", cost), 15, 1e-9);
  EXPECT_NEAR(us("prepared_bytes", cost, DType::f32, true), 0, 1e-9);
  EXPECT_NEAR(us("prepare_launches", cost, DType::f32, true), 0, 1e-9);
}

TEST(Schedules, TheCheapestIsFound) {
  Cheapest<int> best(kKey, DeviceType::cpu, DType::f32);
  EXPECT_EQ(best.found(), 0);
  best.offer(1, {.issued = 3e6});
  best.offer(2, {.issued = 1e6});
  best.offer(3, {.issued = 2e6});
  EXPECT_EQ(best.found(), 2);
}

TEST(Schedules, ExplorationTriesOthersAndRepeatsItself) {
  const auto choose = [] {
    Cheapest<int> best(kKey, DeviceType::cpu, DType::f32);
    for (int i = 1; i <= 8; ++i) best.offer(i, {.issued = 1e6 + i});
    best.offer(9, {.issued = 4e6});  // hopeless
    return best.found();
  };
  EXPECT_EQ(choose(), 1);
  std::set<int> found;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const ExploreSchedules other(seed);
    const std::uint64_t state = cost_state();
    found.insert(choose());
    EXPECT_EQ(choose(), choose());
    EXPECT_NE(choose(), 9);
    EXPECT_EQ(cost_state(), state);
  }
  EXPECT_GT(found.size(), 4u);
  EXPECT_EQ(choose(), 1);
}

// A kernel without an entry would be estimated at the peak, and chosen.
TEST_F(CostModel, EveryAlgorithmOfTheCpuHasAnEstimateInTheGenericTable) {
  const DeviceTable& generic = device_tables().at("generic");
  const auto expect = [&](const CostKey& key) {
    const std::string kernel = kernel_of(key, "");
    EXPECT_TRUE(std::ranges::any_of(generic.by_isa, [&](const auto& kernels) {
      return std::ranges::any_of(kernels.second, [&](const auto& one) {
        return one.first == kernel || one.first.starts_with(kernel + " ");
      });
    })) << kernel;
  };
  const auto expect_all = [&](const char* operation, const auto& table) {
    for (const auto& [name, algorithm] : table.entries()) {
      for (const Direction direction : kDirections) {
        if (name.starts_with("test") || !algorithm.auto_ok || !algorithm.offers(direction))
          continue;
        expect({operation, name.c_str(), direction});
      }
    }
  };
  expect_all("conv2d", Operator<Conv2dProblem>::algorithms(DeviceType::cpu));
  expect_all("deform_conv2d", Operator<DeformConv2dProblem>::algorithms(DeviceType::cpu));
  expect_all("sparse_conv", Operator<SparseConvProblem>::algorithms(DeviceType::cpu));
  for (const Direction direction : kDirections) expect({"linear", "gemm", direction});
}

TEST_F(CostModel, AKernelThatATableLacksTakesTheNearestEntry) {
  use_device_table("generic", DeviceType::cpu);
  const Coefficients direct =
      coefficients_of({"conv2d", "direct", Direction::forward}, "", DeviceType::cpu);
  EXPECT_EQ(
      coefficients_of({"conv2d", "direct", Direction::forward}, "a new schedule", DeviceType::cpu),
      direct);
  EXPECT_EQ(coefficients_of({"conv2d", "nobody", Direction::forward}, "", DeviceType::cpu),
            kDefaultOfCpu);
}

TEST_F(CostModel, AScheduleThatWasNeverTimedTakesTheEntryOfItsAlgorithm) {
  use_device_table(device_table_text(table_with(only("issued", 3))), DeviceType::cpu);
  EXPECT_EQ(coefficients_of(kKey, "a new schedule", DeviceType::cpu), only("issued", 3));
}

TEST_F(CostModel, EveryShippedTableIsSound) {
  ASSERT_TRUE(device_tables().contains("generic"));
  for (const auto& [name, table] : device_tables()) {
    EXPECT_EQ(table.cpus.empty() && table.gpus.empty(), name == "generic") << name;
    EXPECT_FALSE(table.by_isa.empty()) << name;
  }
}

// Times that follow the model exactly, with noise of a few percent.
std::vector<CostSample> made_samples(const Coefficients& truth, double noise) {
  std::vector<CostSample> out;
  std::uint32_t state = 1;
  const auto draw = [&state] {
    state = state * 1664525u + 1013904223u;
    return static_cast<double>(state >> 8) / (1 << 24);
  };
  for (int i = 0; i < 200; ++i) {
    CostSample sample{.isa = "avx2", .kernel = "a", .algorithm = "a", .question = cat("q", i)};
    for (std::size_t j = 0; j < kCpuTerms.size(); ++j) sample.terms[j] = std::exp(6 * draw() - 12);
    sample.seconds = predicted_seconds(sample, truth) * std::exp(noise * (2 * draw() - 1));
    sample.held_out = i % 4 == 3;
    out.push_back(sample);
  }
  return out;
}

TEST(CostFit, FindsTheCoefficients) {
  Coefficients truth{};
  truth[0] = 1.2;
  truth[4] = 0.5;
  truth[6] = 3;
  const auto table = fit_table(made_samples(truth, 0));
  const Coefficients& found = table.at("avx2").at("a");
  for (std::size_t i = 0; i < kCpuTerms.size(); ++i) {
    EXPECT_NEAR(found[i], truth[i], 0.02) << kCpuTerms[i].name;
  }
}

TEST(CostFit, AScheduleWithFewTimesFollowsItsAlgorithm) {
  Coefficients truth{};
  truth[0] = 1.2;
  truth[4] = 0.5;
  std::vector<CostSample> samples = made_samples(truth, 0);
  for (CostSample& sample : samples) sample.kernel = "conv2d a forward many";
  CostSample rare = samples[0];  // one time does not say how its two terms share it
  rare.kernel = "conv2d a forward rare";
  rare.terms = {};
  rare.terms[0] = rare.terms[4] = 1;
  rare.seconds = 1.7;
  samples.push_back(rare);
  const auto table = fit_table(samples).at("avx2");
  EXPECT_NEAR(table.at("conv2d a forward")[4], 0.5, 0.02);
  EXPECT_NEAR(table.at("conv2d a forward rare")[0], 1.2, 0.02);
  EXPECT_NEAR(table.at("conv2d a forward rare")[4], 0.5, 0.02);
}

TEST(CostFit, OutliersHaveLittleInfluence) {
  Coefficients truth{};
  truth[0] = 1.2;
  truth[4] = 0.5;
  std::vector<CostSample> samples = made_samples(truth, 0.05);
  for (std::size_t i = 0; i < samples.size(); i += 20) samples[i].seconds *= 5;
  const auto table = fit_table(samples);
  EXPECT_NEAR(table.at("avx2").at("a")[0], 1.2, 0.15);
  EXPECT_LT(report_of(samples, table).median_error, 0.06);
}

// Half of the times are 25 % longer than the model says; there, another algorithm is faster.
TEST(CostFit, ErrorsCountLittleWhereAnotherAlgorithmIsFaster) {
  Coefficients truth{};
  truth[0] = 1;
  std::vector<CostSample> samples = made_samples(truth, 0);
  for (std::size_t i = samples.size() / 2; i > 0; --i) {
    samples[i].seconds *= 1.25;
    CostSample fast = samples[i];
    fast.kernel = fast.algorithm = "b";
    fast.seconds /= 25;
    samples.push_back(fast);
  }
  EXPECT_LT(fit_table(samples).at("avx2").at("a")[0], 1.06);  // 1.10 with equal weights
}

TEST(CostFit, TimesThatCheckTheFitAreNotFitted) {
  Coefficients truth{};
  truth[0] = 1;
  std::vector<CostSample> samples = made_samples(truth, 0);
  for (CostSample& sample : samples) sample.seconds *= sample.held_out ? 2 : 1;
  const auto table = fit_table(samples);
  EXPECT_NEAR(table.at("avx2").at("a")[0], 1, 1e-2);
  EXPECT_NEAR(report_of(samples, table).median_error, std::log(2), 1e-2);
}

TEST(CostFit, ReportsTheLossOfTheChoices) {
  std::vector<CostSample> samples;
  for (const char* algorithm : {"a", "b"}) {
    for (int i = 0; i < 40; ++i) {
      CostSample sample{.isa = "avx2",
                        .kernel = algorithm,
                        .algorithm = algorithm,
                        .question = cat("q", i),
                        .held_out = i >= 20};
      sample.terms[0] = i + 1;
      sample.seconds = i + 1;
      // In three of the checked cases b takes half as long, which its counts do not say.
      if (*algorithm == 'b') sample.seconds *= i >= 37 ? 0.5 : 1.2;
      samples.push_back(sample);
    }
  }
  const FitReport report = report_of(samples, fit_table(samples));
  EXPECT_EQ(report.questions, 20u);
  EXPECT_NEAR(report.within_10_percent, 17.0 / 20, 1e-9);
  EXPECT_NEAR(report.worst, 2, 1e-9);
  EXPECT_EQ(report.worst_choice, "a");
  EXPECT_EQ(report.worst_fastest, "b");
}

TEST(CostFit, SamplesAreReadAsTheyWereWritten) {
  Coefficients truth{};
  truth[2] = 1;
  const std::vector<CostSample> samples = made_samples(truth, 0.1);
  const std::vector<CostSample> again = parse_samples(samples_text(samples), "file");
  ASSERT_EQ(again.size(), samples.size());
  EXPECT_EQ(again[5].terms, samples[5].terms);
  EXPECT_EQ(again[7].held_out, samples[7].held_out);
  EXPECT_ERROR(ErrorKind::kInvalid, "in file, got in line 1", parse_samples("{}", "file"));
}

}  // namespace
}  // namespace convscope
