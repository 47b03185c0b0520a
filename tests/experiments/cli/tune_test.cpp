// SPDX-License-Identifier: Apache-2.0
// tune_test.cpp: `convscope tune`: fits a table from a file of times, stores it where `auto` looks,
// and says what is wrong with its arguments. One test measures for a few seconds.
#include <gtest/gtest.h>

#include "framework/io/atomic_file.h"
#include "framework/io/bytes.h"
#include "layers/dispatch/cost/fit.h"
#include "tests/support/call_program.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace convscope {
namespace {

class Tune : public ::testing::Test {
 protected:
  testing::Called call(const std::string& arguments) const {
    return testing::call_program(arguments, folder_.path(),
                                 "CONVSCOPE_MEASURE=on CONVSCOPE_CACHE_DIR=" + folder_.path());
  }
  // Times of two kernels: one follows its FLOPs, the other takes twice as long as the first.
  std::string samples() const {
    std::vector<CostSample> all;
    for (int i = 0; i < 40; ++i) {
      for (const char* algorithm : {"direct", "im2col_gemm"}) {
        CostSample one{.isa = std::string(name_of(current_isa())),
                       .kernel = cat("conv2d ", algorithm, " forward"),
                       .algorithm = algorithm,
                       .question = cat("case ", i),
                       .held_out = i % 4 == 3,
                       .seconds = 1e-3 * (i + 1) * (*algorithm == 'd' ? 1 : 2)};
        one.terms[0] = 1e-3 * (i + 1);
        all.push_back(one);
      }
    }
    const std::string path = folder_ / "samples.jsonl";
    write_file(path, samples_text(all));
    return path;
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Tune, FitsTimesOfAFileAndStoresTheTable) {
  const testing::Called fitted = call("tune --from " + samples());
  ASSERT_EQ(fitted.code, 0) << fitted.err;
  EXPECT_NE(fitted.out.find("within 10 % of the fastest in 100 % of 10 cases"), std::string::npos)
      << fitted.out;
  const DeviceTable table = parse_device_table(testing::text_of(folder_ / "device_cpu.json"));
  const CoefficientsByKernel& kernels = table.by_isa.at(std::string(name_of(current_isa())));
  EXPECT_NEAR(kernels.at("conv2d direct forward")[0], 1, 1e-2);
  EXPECT_NEAR(kernels.at("conv2d im2col_gemm forward")[0], 2, 1e-2);
  EXPECT_NE(call("info").out.find("table this machine"), std::string::npos);
  // The times may also be written for others, and the table elsewhere.
  const testing::Called out = call("tune --from " + samples() + " --out table.json");
  EXPECT_EQ(out.code, 0) << out.err;
  EXPECT_EQ(testing::text_of(folder_ / "table.json"),
            testing::text_of(folder_ / "device_cpu.json"));
}

TEST_F(Tune, MeasuresThisMachine) {
  const testing::Called measured = call("tune --minutes 0.06 --samples times.jsonl -q");
  // So short a time may be too little to check the fit, which is one clear sentence.
  if (measured.code != 0) {
    EXPECT_NE(measured.err.find("give --minutes 2 or more"), std::string::npos) << measured.err;
  }
  const std::vector<CostSample> samples =
      parse_samples(testing::text_of(folder_ / "times.jsonl"), "times.jsonl");
  EXPECT_GT(samples.size(), 5u);
  for (const CostSample& one : samples) {
    EXPECT_GT(one.seconds, 0) << one.question;
    EXPECT_GT(one.terms[0], 0) << one.question << " " << one.algorithm;
  }
}

TEST_F(Tune, SaysWhatIsWrong) {
  const auto error_of = [&](const std::string& arguments) {
    const testing::Called called = call(arguments);
    EXPECT_NE(called.code, 0);
    return called.err;
  };
  if (!status_of(DeviceType::cuda).available) {
    EXPECT_NE(error_of("tune --device cuda").find("expected device cuda:0 to be available"),
              std::string::npos);
  }
  EXPECT_NE(error_of("tune --minutes 0").find("--minutes"), std::string::npos);
  for (const char* option : {"--samples", "--out"}) {  // before anything is measured
    const std::string error = error_of(cat("tune --minutes 1 ", option, " no/folder/file"));
    EXPECT_NE(error.find(cat("expected ", option, " in a folder that exists")), std::string::npos)
        << error;
  }
  EXPECT_NE(error_of("tune --from none.jsonl").find("none.jsonl"), std::string::npos);
  write_file(folder_ / "bad.jsonl", "hello\n");
  EXPECT_NE(error_of("tune --from bad.jsonl").find("in bad.jsonl, got in line 1"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
