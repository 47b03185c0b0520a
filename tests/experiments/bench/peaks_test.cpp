// SPDX-License-Identifier: Apache-2.0
// peaks_test.cpp: tests that the measured peaks of a machine are stored on disk and used by
// `auto`.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "experiments/bench/bench_report.h"
#include "experiments/bench/peaks/measure_peaks.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/select.h"
#include "tests/support/cache_folder.h"
#include "tests/support/numbers.h"
#include "tests/support/some_peaks.h"

namespace convscope {
namespace {

using testing::CacheFolder;
using testing::some_peaks;

TEST(Peaks, GrowWithTheThreadsUpToWhatAllReach) {
  const Peak peak{10, 35};
  EXPECT_EQ(peak.with(1, 4), 10);
  EXPECT_EQ(peak.with(2, 4), 20);
  EXPECT_EQ(peak.with(3, 4), 30);
  EXPECT_EQ(peak.with(4, 4), 35);
  EXPECT_EQ(peak.with(9, 4), 35);
  EXPECT_EQ((Peak{10, 25}).with(3, 4), 25);
  EXPECT_EQ((Peak{10, 10}).with(1, 1), 10);
}

TEST(Peaks, AreMeasuredForEachInstructionSet) {
  const testing::MachineScope scope;
  for (int i = 0; i < kIsaCount; ++i) {
    if (!supports_isa(static_cast<Isa>(i))) continue;
    set_isa(static_cast<Isa>(i));
    const CpuPeaks measured = measure_cpu_peaks(/*share=*/0.01);
    EXPECT_GE(measured.cores, 1);
    EXPECT_GT(measured.flops.one_thread, 1e8);
    EXPECT_GE(measured.flops.all_threads, measured.flops.one_thread);
    EXPECT_GT(measured.int8.one_thread, 1e8);
    EXPECT_GE(measured.int8.all_threads, measured.int8.one_thread);
    for (const Peak& bandwidth :
         {measured.l2_read, measured.l2_copy, measured.dram_read, measured.dram_copy}) {
      EXPECT_GT(bandwidth.one_thread, 1e7);
      EXPECT_LT(bandwidth.one_thread, 1e13);
    }
  }
}

// The measurement with one thread reads DRAM in slices. With 12 threads, the memory of each thread
// is smaller than such a slice.
TEST(Peaks, AreMeasuredWithManyCores) {
  const CpuPeaks measured = measure_cpu_peaks(/*share=*/0.001, /*cores=*/12);
  EXPECT_EQ(measured.cores, 12);
  for (const Peak& bandwidth : {measured.dram_read, measured.dram_copy}) {
    EXPECT_GT(bandwidth.all_threads, 1e7);
    EXPECT_LT(bandwidth.all_threads, 1e14);
  }
}

TEST(Peaks, AreRememberedForThisMachineAndInstructionSet) {
  const CacheFolder folder;
  const testing::MachineScope scope;
  EXPECT_FALSE(remembered_cpu_peaks());
  remember_cpu_peaks(some_peaks());
  CacheFolder::forget();  // so it is read from the file
  const auto again = remembered_cpu_peaks();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->cores, 2);
  EXPECT_EQ(again->flops.all_threads, 150e9);
  EXPECT_EQ(again->dram_copy.one_thread, 10e9);
  EXPECT_EQ(again->l2_bytes, 1u << 20);
  if (current_isa() != Isa::scalar) {
    set_isa(Isa::scalar);
    EXPECT_FALSE(remembered_cpu_peaks());
  }
}

TEST(Peaks, ADamagedFileIsAsGoodAsNone) {
  const CacheFolder folder;
  remember_cpu_peaks(some_peaks());
  std::stringstream good;
  good << std::ifstream(cpu_peaks_path()).rdbuf();
  const std::string text = good.str();
  const auto with = [&](const std::string& content) {
    std::ofstream(cpu_peaks_path()) << content;
    CacheFolder::forget();
    return remembered_cpu_peaks().has_value();
  };
  EXPECT_TRUE(with(text));
  EXPECT_FALSE(with(text.substr(0, text.size() / 2)));
  EXPECT_FALSE(with("[1, 2]"));
  EXPECT_FALSE(with("{\"format\": 3, \"machines\": []}"));
  std::string negative = text;
  negative.replace(negative.find("100000000000"), 12, "-10000000000");
  EXPECT_FALSE(with(negative));
  std::string word = text;
  word.replace(word.find("100000000000"), 12, "\"many\"");
  EXPECT_FALSE(with(word));
  remember_cpu_peaks(some_peaks());  // replaces damaged data
  CacheFolder::forget();
  EXPECT_TRUE(remembered_cpu_peaks());
}

// A file of measured peaks may lack the two int8 peaks (with VNNI and without), because earlier
// versions did not store them.
TEST(Peaks, ThePeakOfBytesMayBeMissing) {
  const CacheFolder folder;
  const testing::EnvironmentVariable measure("CONVSCOPE_MEASURE", nullptr);
  const testing::MachineScope scope;
  set_num_threads(1);
  const auto guess = [] { return 100e9 * peak_of_bytes(); };
  const auto seconds_of = [](DType operand_type) {  // as `auto` estimates
    return 1e-3 * estimated_ms(Cost{.flops = 1e9, .issued = 1e9}, DeviceType::cpu, operand_type);
  };
  remember_cpu_peaks(some_peaks());
  CacheFolder::forget();
  ASSERT_TRUE(remembered_cpu_peaks());
  EXPECT_EQ(remembered_cpu_peaks()->int8.one_thread, 0);
  EXPECT_EQ(remembered_cpu_peaks()->peak(DType::f32).one_thread, 100e9);
  EXPECT_EQ(remembered_cpu_peaks()->peak(DType::i8).one_thread, guess());
  EXPECT_DOUBLE_EQ(seconds_of(DType::i8), 1e9 / guess());
  EXPECT_DOUBLE_EQ(seconds_of(DType::f32), 0.01);
  CpuPeaks measured = some_peaks();
  measured.int8 = {390e9, 700e9};
  remember_cpu_peaks(measured);
  CacheFolder::forget();
  EXPECT_EQ(remembered_cpu_peaks()->peak(DType::u8).all_threads, 700e9);
  EXPECT_DOUBLE_EQ(seconds_of(DType::i8), 1.0 / 390);
  EXPECT_NE(peaks_text(measured).find("u8 x i8       390.0    700.0  GOP/s"), std::string::npos)
      << peaks_text(measured);
  EXPECT_NE(peaks_json_text(measured).find("int8_ops_per_second"), std::string::npos);
  if (!uses_vnni()) GTEST_SKIP() << "no VNNI here";
  EXPECT_EQ(peak_of_bytes(), 4);
  set_vnni(false);
  EXPECT_EQ(remembered_cpu_peaks()->int8.one_thread, 0);
  measured.int8 = {120e9, 200e9};
  remember_cpu_peaks(measured);  // in addition to the other
  CacheFolder::forget();
  EXPECT_EQ(remembered_cpu_peaks()->int8.one_thread, 120e9);
  set_vnni(true);
  EXPECT_EQ(remembered_cpu_peaks()->int8.one_thread, 390e9);
}

TEST(Peaks, AutoTakesThemWhenTheyAreThere) {
  const CacheFolder folder;
  const testing::EnvironmentVariable measure("CONVSCOPE_MEASURE", nullptr);
  const testing::MachineScope scope;
  set_num_threads(1);
  const MachinePeaks built_in = machine_peaks();
  remember_cpu_peaks(some_peaks());
  EXPECT_EQ(machine_peaks().flops_per_second, 100e9);
  EXPECT_EQ(machine_peaks().bytes_per_second, 10e9);
  // With two threads, `auto` doubles both peaks of one thread, although two threads measure only
  // 150e9 FLOP/s and 15e9 bytes/s. Equal scaling keeps the order of the algorithms, so results do
  // not depend on the number of threads.
  set_num_threads(2);
  EXPECT_EQ(machine_peaks().flops_per_second, 200e9);
  EXPECT_EQ(machine_peaks().bytes_per_second, 20e9);
  set_machine_peaks({1e9, 2e9});  // explicit values have priority
  EXPECT_EQ(machine_peaks().flops_per_second, 1e9);
  set_machine_peaks({});
  measure.assign("off");  // then measured values are ignored
  set_num_threads(1);
  EXPECT_EQ(machine_peaks().flops_per_second, built_in.flops_per_second);
  measure.assign(nullptr);
  EXPECT_EQ(machine_peaks().flops_per_second, 100e9);
  std::filesystem::remove(cpu_peaks_path());
  CacheFolder::forget();
  set_num_threads(1);
  EXPECT_EQ(machine_peaks().flops_per_second, built_in.flops_per_second);
}

TEST(Peaks, AreMeasuredOnceWhenAbsent) {
  const CacheFolder folder;
  remember_cpu_peaks(some_peaks());
  bool told = false;
  EXPECT_EQ(cpu_peaks([&] { told = true; }).flops.one_thread, 100e9);
  EXPECT_FALSE(told);
}

TEST(Peaks, AreATableWithoutTheCachesThatAreNotThere) {
  const std::string text = peaks_text(some_peaks());
  EXPECT_NE(text.find("FMA f32       100.0    150.0  GFLOP/s"), std::string::npos) << text;
  EXPECT_EQ(text.find("L3"), std::string::npos) << text;
}

}  // namespace
}  // namespace convscope
