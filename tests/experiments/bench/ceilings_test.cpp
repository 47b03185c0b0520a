// SPDX-License-Identifier: Apache-2.0
// ceilings_test.cpp: tests that the measured peaks of a machine are stored on disk and used by
// `auto`.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "experiments/bench/bench_report.h"
#include "experiments/bench/ceilings/measure_ceilings.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/select.h"
#include "tests/support/cache_folder.h"
#include "tests/support/numbers.h"
#include "tests/support/some_ceilings.h"

namespace convscope {
namespace {

using testing::CacheFolder;
using testing::some_ceilings;

TEST(Ceilings, GrowWithTheThreadsUpToWhatAllReach) {
  const Ceiling ceiling{10, 35};
  EXPECT_EQ(ceiling.with(1, 4), 10);
  EXPECT_EQ(ceiling.with(2, 4), 20);
  EXPECT_EQ(ceiling.with(3, 4), 30);
  EXPECT_EQ(ceiling.with(4, 4), 35);
  EXPECT_EQ(ceiling.with(9, 4), 35);
  EXPECT_EQ((Ceiling{10, 25}).with(3, 4), 25);
  EXPECT_EQ((Ceiling{10, 10}).with(1, 1), 10);
}

TEST(Ceilings, AreMeasuredForEachInstructionSet) {
  const testing::MachineScope scope;
  for (int i = 0; i < kIsaCount; ++i) {
    if (!supports_isa(static_cast<Isa>(i))) continue;
    set_isa(static_cast<Isa>(i));
    const CpuCeilings measured = measure_cpu_ceilings(/*share=*/0.01);
    EXPECT_GE(measured.cores, 1);
    EXPECT_GT(measured.flops.one_thread, 1e8);
    EXPECT_GE(measured.flops.all_threads, measured.flops.one_thread);
    EXPECT_GT(measured.int8.one_thread, 1e8);
    EXPECT_GE(measured.int8.all_threads, measured.int8.one_thread);
    for (const Ceiling& bandwidth :
         {measured.l2_read, measured.l2_copy, measured.dram_read, measured.dram_copy}) {
      EXPECT_GT(bandwidth.one_thread, 1e7);
      EXPECT_LT(bandwidth.one_thread, 1e13);
    }
  }
}

// A single thread reads its memory in slices. With 12 threads, each thread has less memory than one
// such slice.
TEST(Ceilings, AreMeasuredWithManyCores) {
  const CpuCeilings measured = measure_cpu_ceilings(/*share=*/0.001, /*cores=*/12);
  EXPECT_EQ(measured.cores, 12);
  for (const Ceiling& bandwidth : {measured.dram_read, measured.dram_copy}) {
    EXPECT_GT(bandwidth.all_threads, 1e7);
    EXPECT_LT(bandwidth.all_threads, 1e14);
  }
}

TEST(Ceilings, AreRememberedForThisMachineAndInstructionSet) {
  const CacheFolder folder;
  const testing::MachineScope scope;
  EXPECT_FALSE(remembered_cpu_ceilings());
  remember_cpu_ceilings(some_ceilings());
  CacheFolder::forget();  // so it is read from the file
  const auto again = remembered_cpu_ceilings();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->cores, 2);
  EXPECT_EQ(again->flops.all_threads, 150e9);
  EXPECT_EQ(again->dram_copy.one_thread, 10e9);
  EXPECT_EQ(again->l2_bytes, 1u << 20);
  if (current_isa() != Isa::scalar) {
    set_isa(Isa::scalar);
    EXPECT_FALSE(remembered_cpu_ceilings());
  }
}

TEST(Ceilings, ADamagedFileIsAsGoodAsNone) {
  const CacheFolder folder;
  remember_cpu_ceilings(some_ceilings());
  std::stringstream good;
  good << std::ifstream(cpu_ceilings_path()).rdbuf();
  const std::string text = good.str();
  const auto with = [&](const std::string& content) {
    std::ofstream(cpu_ceilings_path()) << content;
    CacheFolder::forget();
    return remembered_cpu_ceilings().has_value();
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
  remember_cpu_ceilings(some_ceilings());  // replaces damaged data
  CacheFolder::forget();
  EXPECT_TRUE(remembered_cpu_ceilings());
}

// A file of measured peaks may lack the two int8 peaks (with VNNI and without), because earlier
// versions did not store them.
TEST(Ceilings, ThePeakOfBytesMayBeMissing) {
  const CacheFolder folder;
  const testing::EnvironmentVariable measure("CONVSCOPE_MEASURE", nullptr);
  const testing::MachineScope scope;
  set_num_threads(1);
  const auto guess = [] { return 100e9 * peak_of_bytes(); };
  const auto seconds_of = [](DType operand_type) {  // as `auto` estimates
    return 1e-3 * estimated_ms(Cost{.flops = 1e9}, DeviceType::cpu, operand_type);
  };
  remember_cpu_ceilings(some_ceilings());
  CacheFolder::forget();
  ASSERT_TRUE(remembered_cpu_ceilings());
  EXPECT_EQ(remembered_cpu_ceilings()->int8.one_thread, 0);
  EXPECT_EQ(remembered_cpu_ceilings()->peak(DType::f32).one_thread, 100e9);
  EXPECT_EQ(remembered_cpu_ceilings()->peak(DType::i8).one_thread, guess());
  EXPECT_DOUBLE_EQ(seconds_of(DType::i8), 1e9 / guess());
  EXPECT_DOUBLE_EQ(seconds_of(DType::f32), 0.01);
  CpuCeilings measured = some_ceilings();
  measured.int8 = {390e9, 700e9};
  remember_cpu_ceilings(measured);
  CacheFolder::forget();
  EXPECT_EQ(remembered_cpu_ceilings()->peak(DType::u8).all_threads, 700e9);
  EXPECT_DOUBLE_EQ(seconds_of(DType::i8), 1.0 / 390);
  EXPECT_NE(ceilings_text(measured).find("u8 x i8       390.0    700.0  GOP/s"), std::string::npos)
      << ceilings_text(measured);
  EXPECT_NE(ceilings_json_text(measured).find("int8_ops_per_second"), std::string::npos);
  if (!uses_vnni()) GTEST_SKIP() << "no VNNI here";
  EXPECT_EQ(peak_of_bytes(), 4);
  set_vnni(false);
  EXPECT_EQ(remembered_cpu_ceilings()->int8.one_thread, 0);
  measured.int8 = {120e9, 200e9};
  remember_cpu_ceilings(measured);  // in addition to the other
  CacheFolder::forget();
  EXPECT_EQ(remembered_cpu_ceilings()->int8.one_thread, 120e9);
  set_vnni(true);
  EXPECT_EQ(remembered_cpu_ceilings()->int8.one_thread, 390e9);
}

TEST(Ceilings, AutoTakesThemWhenTheyAreThere) {
  const CacheFolder folder;
  const testing::EnvironmentVariable measure("CONVSCOPE_MEASURE", nullptr);
  const testing::MachineScope scope;
  set_num_threads(1);
  const MachineCeilings built_in = machine_ceilings();
  remember_cpu_ceilings(some_ceilings());
  EXPECT_EQ(machine_ceilings().flops_per_second, 100e9);
  EXPECT_EQ(machine_ceilings().bytes_per_second, 10e9);
  // With two threads, `auto` doubles both peaks of one thread, although two threads measure only
  // 150e9 FLOP/s and 15e9 bytes/s. Equal scaling keeps the order of the algorithms, so results do
  // not depend on the number of threads.
  set_num_threads(2);
  EXPECT_EQ(machine_ceilings().flops_per_second, 200e9);
  EXPECT_EQ(machine_ceilings().bytes_per_second, 20e9);
  set_machine_ceilings({1e9, 2e9});  // explicit values have priority
  EXPECT_EQ(machine_ceilings().flops_per_second, 1e9);
  set_machine_ceilings({});
  measure.assign("off");  // then measured values are ignored
  set_num_threads(1);
  EXPECT_EQ(machine_ceilings().flops_per_second, built_in.flops_per_second);
  measure.assign(nullptr);
  EXPECT_EQ(machine_ceilings().flops_per_second, 100e9);
  std::filesystem::remove(cpu_ceilings_path());
  CacheFolder::forget();
  set_num_threads(1);
  EXPECT_EQ(machine_ceilings().flops_per_second, built_in.flops_per_second);
}

TEST(Ceilings, AreMeasuredOnceWhenAbsent) {
  const CacheFolder folder;
  remember_cpu_ceilings(some_ceilings());
  bool told = false;
  EXPECT_EQ(cpu_ceilings([&] { told = true; }).flops.one_thread, 100e9);
  EXPECT_FALSE(told);
}

TEST(Ceilings, AreATableWithoutTheCachesThatAreNotThere) {
  const std::string text = ceilings_text(some_ceilings());
  EXPECT_NE(text.find("FMA f32       100.0    150.0  GFLOP/s"), std::string::npos) << text;
  EXPECT_EQ(text.find("L3"), std::string::npos) << text;
}

}  // namespace
}  // namespace convscope
