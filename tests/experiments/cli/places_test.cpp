// SPDX-License-Identifier: Apache-2.0
// places_test.cpp: `convscope places`: the figure of where a deformable convolution samples.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "framework/check.h"
#include "tests/support/call_program.h"

namespace convscope::testing {
namespace {

void write_config(const TemporaryFolder& folder, const std::string& name,
                  const std::string& layers) {
  std::ofstream(folder / (name + ".yaml"))
      << "name: " << name
      << "\ndata: {set: synthetic_digits, train_size: 64, test_size: 40, batch_size: 32}\n"
         "layers:\n"
      << layers
      << "  - {type: flatten}\n  - {type: linear, name: f, out_features: 10}\n"
         "optim: {type: sgd, lr: 0.01}\ntrain: {epochs: 1}\n";
  const Called run = call_program("run " + name + ".yaml", folder.path());
  ASSERT_EQ(run.code, 0) << run.err;
}

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

TEST(Places, AreDrawnOnTestImages) {
  const TemporaryFolder folder;
  const char* const kKeys = "kernel_size: 3, padding: 1, stride: 2";
  write_config(folder, "two",
               cat("  - {type: deform_conv2d, name: d1, out_channels: 4, ", kKeys,
                   ", offset_lr_scale: 0}\n  - {type: deform_conv2d, name: d2, out_channels: 4, ",
                   kKeys, ", mask: false, offset_groups: 2}\n"));
  const Called first = call_program("places runs/two --layer d1 -n 3 -o d1.svg", folder.path());
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, "d1.svg\n");
  const std::string svg = text_of(folder / "d1.svg");
  EXPECT_NE(svg.find("Where d1 reads, two"), std::string::npos);
  // The figure shows three images with nine sampling positions each. All of these have offset 0
  // (the positions of a plain convolution) and mask 0.5.
  EXPECT_EQ(count_of(svg, "offset 0.00,0.00, mask 0.50"), 27u);
  const Called last = call_program("places runs/two -n 1", folder.path());  // the last layer
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(count_of(text_of(folder / "places.svg"), ", mask 1.00"), 18u);
  const Called wrong = call_program("places runs/two --layer d3", folder.path());
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.err.find("expected --layer d1 or d2, got 'd3'; did you mean"), std::string::npos)
      << wrong.err;
}

TEST(Places, NeedALayerThatMovesThem) {
  const TemporaryFolder folder;
  write_config(folder, "plain",
               "  - {type: conv2d, name: c, out_channels: 2, kernel_size: 3, stride: 4}\n");
  const Called called = call_program("places runs/plain", folder.path());
  EXPECT_EQ(called.code, 3);
  EXPECT_NE(called.err.find("expected a network with a layer of type deform_conv2d"),
            std::string::npos)
      << called.err;
}

TEST(Places, SayWhatAPathIsThatNamesNoRun) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "runs/one/first");
  std::filesystem::create_directory(folder / "empty");
  std::ofstream(folder / "runs/one/first/config.yaml") << "name: one\n";
  std::ofstream(folder / "file") << "x";
  for (const auto& [path, what] : {std::pair("nope", ", which is not there\n"),
                                   {"file", ", which is a file\n"},
                                   {"empty", ", which holds no run\n"},
                                   {"runs", ", which holds 1 run: runs/one/first\n"}}) {
    const Called called = call_program(cat("places ", path), folder.path());
    EXPECT_EQ(called.code, 6);
    EXPECT_TRUE(called.err.ends_with(cat("got ", path, what))) << called.err;
  }
}

}  // namespace
}  // namespace convscope::testing
