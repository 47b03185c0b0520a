// SPDX-License-Identifier: Apache-2.0
// compact_int8_test.cpp: tests that a network whose pruned filters were removed runs on integers
// like any other network: in a run, in `eval`, in `bench net`, and from files of `export`.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "experiments/config/build.h"
#include "experiments/report/run_data.h"
#include "experiments/trainer/checkpoint.h"
#include "framework/io/safetensors.h"
#include "layers/plan/step_plan.h"
#include "quant/quantize_network.h"
#include "tests/support/call_program.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::Called;

constexpr const char* kRun =
    "run quickstart train.epochs=2 data.train_size=4000 data.test_size=1000 data.batch_size=32 "
    "expect=null threads=1 \"quant={w_bits: 8, a_bits: 8, begin: 0.6, execute: int8_always}\" ";
// After filters are removed, the numbers of channels are odd, so the kernels pad blocks of 16
// channels.
const std::string kFilters =
    "\"sparsity={method: filter, target: 0.4, start: 0, end: 0.4, every_steps: 1, exclude: [f5]";

double accuracy_of(const Called& evaluated) {
  const std::size_t at = evaluated.out.find("accuracy ");
  EXPECT_NE(at, std::string::npos) << evaluated.out << evaluated.err;
  return at == std::string::npos ? NAN : std::stod(evaluated.out.substr(at + 9));
}

// Evaluates random images in both executions (fake-quantised and on integers). Returns how many
// images have different logits.
int images_that_differ(const std::string& checkpoint, const std::string& folder) {
  const ExperimentConfig config = parse_config_text(checkpoint_config(checkpoint), checkpoint);
  const SampleInfo sample = sample_info(config);
  const auto network = build_model(config, sample.shape, sample.classes);
  load_checkpoint(checkpoint, *network, nullptr);
  network->eval();
  const NoGrad no_grad;
  const Tensor x = testing::normal({64, 1, 28, 28}, DType::f32, 5);
  const auto answer = [&](bool codes) {
    execute_on_integers(*network, codes ? IntegerUse::always : IntegerUse::never);
    const auto plan = StepPlan::make(*network, x.shape(), PlanMode::inference, nullptr);
    EXPECT_NE(plan, nullptr) << folder;
    plan->prepare();
    EXPECT_EQ(plan->text().find("int8_direct") != std::string::npos, codes) << plan->text();
    return plan->infer(x).clone();
  };
  const Tensor integers = answer(true), fake = answer(false);
  int differ = 0;
  for (std::int64_t n = 0; n < 64; ++n) {
    bool same = true;
    for (std::int64_t k = 0; k < 10; ++k) {
      same = same && std::fabs(integers.at(n * 10 + k) - fake.at(n * 10 + k)) < 1e-4;
    }
    differ += same ? 0 : 1;
  }
  return differ;
}

void expect_int8_layers(const std::string& run) {
  const RunData data = read_run(run);
  EXPECT_EQ(data.summary->execution, "int8, compact dense");
  int on_codes = 0;
  for (std::size_t row = 0; row < data.layers.rows.size(); ++row) {
    const std::string& kernel = data.layers.text(row, "inference");
    EXPECT_TRUE(kernel.empty() || kernel.starts_with("int8_")) << kernel;
    on_codes += kernel.empty() ? 0 : 1;
  }
  EXPECT_EQ(on_codes, 5);
}

TEST(CompactInt8, ARunWhoseFiltersWereRemovedIsEvaluatedTimedAndExported) {
  const testing::TemporaryFolder folder;
  const Called run =
      call_program(cat(kRun, kFilters, ", remove: true}\" --name small"), folder.path());
  ASSERT_EQ(run.code, 0) << run.err;
  const std::string path = folder.path() + "/runs/small/latest";
  expect_int8_layers(path);
  const double codes = accuracy_of(call_program("eval runs/small", folder.path()));
  const double fake = accuracy_of(call_program("eval runs/small --execute fake", folder.path()));
  EXPECT_GT(codes, 30);
  EXPECT_NEAR(codes, fake, 0.1 + 1e-9);  // one image of 1000 is a tenth of a point
  EXPECT_LE(images_that_differ(path + "/ckpt/last.safetensors", folder.path()), 3);

  const Called made =
      call_program("export runs/small --quantised q.safetensors --onnx n.onnx", folder.path());
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("differ by 0 from those of the run"), std::string::npos) << made.out;
  EXPECT_NE(made.out.find("QuantizeLinear 5"), std::string::npos) << made.out;
  EXPECT_EQ(call_program("eval q.safetensors", folder.path()).out,
            call_program("eval runs/small", folder.path()).out);
  for (const char* of : {"runs/small", "q.safetensors"}) {
    const Called timed = call_program(
        cat("bench net ", of, " --mode inference --batch 8 --min-time 0.001 --rounds 1"),
        folder.path());
    EXPECT_EQ(timed.code, 0) << timed.err;
    EXPECT_NE(timed.out.find("| inference, int8 |"), std::string::npos) << timed.out;
    EXPECT_EQ(timed.out.find("44426 parameters"), std::string::npos) << timed.out;
  }
}

TEST(CompactInt8, AnExportedNetworkIsEvaluatedTimedAndExportedFurther) {
  const testing::TemporaryFolder folder;
  const Called run = call_program(cat(kRun, kFilters, "}\" --name masked"), folder.path());
  ASSERT_EQ(run.code, 0) << run.err;
  const Called made = call_program("export runs/masked --compact c.safetensors", folder.path());
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("execution   both: int8 in inference"), std::string::npos) << made.out;
  EXPECT_NE(made.out.find("\ninference, batch 32, ms"), std::string::npos) << made.out;
  const std::string file = folder.path() + "/c.safetensors";
  EXPECT_EQ(read_safetensors(file).metadata.at("execution"), "int8, compact dense");
  EXPECT_LE(images_that_differ(file, folder.path()), 3);
  const double masked = accuracy_of(call_program("eval runs/masked", folder.path()));
  for (const char* how : {"", " --execute fake"}) {
    EXPECT_NEAR(accuracy_of(call_program(cat("eval c.safetensors", how), folder.path())), masked,
                0.1 + 1e-9);
  }
  const Called further =
      call_program("export c.safetensors --quantised q.safetensors --onnx n.onnx", folder.path());
  EXPECT_EQ(further.code, 0) << further.err;
  EXPECT_EQ(call_program("eval q.safetensors", folder.path()).out,
            call_program("eval c.safetensors", folder.path()).out);
  const Called timed =
      call_program("bench net c.safetensors --mode inference --batch 8 --min-time 0.001 --rounds 1",
                   folder.path());
  EXPECT_EQ(timed.code, 0) << timed.err;
  EXPECT_NE(timed.out.find("| inference, int8 |"), std::string::npos) << timed.out;
}

}  // namespace
}  // namespace convscope
