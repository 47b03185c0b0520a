// SPDX-License-Identifier: Apache-2.0
// ladder_test.cpp: tests every rung of every ladder: the rung's algorithm exists and accepts the
// ladder's problem.
#include "layers/conv2d/ladder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "framework/simd/cpu_isa.h"
#include "tests/support/ladders.h"

namespace convscope {
namespace {

TEST(Conv2dLadder, EveryRungNamesAAlgorithmThatTakesTheLaddersProblem) {
  testing::check_rungs(DeviceType::cpu);
  for (const auto& [name, ladder] : conv2d_ladders(DeviceType::cpu).entries()) {
    for (const Conv2dRung& rung : ladder.rungs) {
      if (*rung.isa == '\0') continue;
      EXPECT_EQ(name_of(parse_isa(rung.isa)), rung.isa) << name;
    }
  }
}

// Returns the folders that contain a file whose name ends like "_lesson_cpu.cpp".
std::set<std::string> folders_with(const std::string& ending) {
  std::set<std::string> folders;
  const std::filesystem::path root = CONVSCOPE_SOURCE_DIR "/layers/conv2d";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.path().filename().string().ends_with(ending)) continue;
    folders.insert(std::filesystem::relative(entry.path(), root).begin()->string());
  }
  return folders;
}

TEST(Conv2dLadder, EveryFolderWithALessonHasALadderAndItsLaddersFileIsThere) {
  std::set<std::string> ladders;
  for (const auto& [type, ending] : {std::pair(DeviceType::cpu, "_lesson_cpu.cpp"),
                                     std::pair(DeviceType::cuda, "_lesson_cuda.cu")}) {
    const auto& table = conv2d_ladders(type);
    for (const std::string& folder : folders_with(ending)) {
      const Conv2dLadder* ladder = table.find(folder);
      ASSERT_NE(ladder, nullptr) << "no ladder for device " << name_of(type) << " in " << folder;
      EXPECT_EQ(ladder->rungs.front().algorithm, folder + "_lesson");
    }
    for (const std::string& name : table.names()) {
      EXPECT_EQ(std::filesystem::path(table.file_of(name)).filename(), name + "_ladder.cpp");
      ladders.insert(name);
    }
  }
  EXPECT_EQ(ladders, folders_with("_ladder.cpp"));
  EXPECT_GE(ladders.size(), 7u);
}

TEST(Conv2dLadder, TheReadmeOfTheFolderShowsEveryRungWithItsSentence) {
  for (const DeviceType type : {DeviceType::cpu, DeviceType::cuda}) {
    for (const auto& [name, ladder] : conv2d_ladders(type).entries()) {
      std::ifstream file(cat(CONVSCOPE_SOURCE_DIR "/layers/conv2d/", name, "/README.md"));
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      for (const Conv2dRung& rung : ladder.rungs) {
        const std::string line = cat("| ", label_of(rung), " | ", rung.sentence, " |");
        EXPECT_NE(text.find(line), std::string::npos) << name << "/README.md lacks: " << line;
      }
    }
  }
}

TEST(Conv2dLadder, LabelsNameTheAlgorithmAndItsSwitches) {
  EXPECT_EQ(label_of({.algorithm = "direct"}), "direct");
  EXPECT_EQ(label_of({.algorithm = "direct", .isa = "avx2", .threads = 1}),
            "direct, avx2, 1 thread");
  EXPECT_EQ(label_of({.algorithm = "implicit_gemm", .math = MathMode::tf32}),
            "implicit_gemm, tf32");
  EXPECT_EQ(label_of({.algorithm = "winograd_f4x3", .threads = 2, .prepare_each_call = true}),
            "winograd_f4x3, weights prepared in each call, 2 threads");
}

}  // namespace
}  // namespace convscope
