// SPDX-License-Identifier: Apache-2.0
// lesson_events_test.cpp: tests what a recorder reports about a lesson in addition to reads and
// writes: the number of multiplications, the steps of a sum, and the executed source lines.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "layers/conv2d/ladder.h"
#include "layers/dispatch/operands.h"

namespace convscope {
namespace {

Operands numbers(const Conv2dProblem& z, Direction direction) {
  const Operands out = random_operands(z.operands(direction), Device{});
  for (const Operand* operand : {&out.in[0], &out.in[1]}) {
    if (operand->values.dtype() != DType::f32) continue;
    for (std::int64_t i = 0; i < operand->values.numel(); ++i) {
      operand->values.data<float>()[i] = static_cast<float>(i % 5 + 1);
    }
  }
  return out;
}

Recorder watched(const std::string& lesson, const Conv2dProblem& z, Direction direction) {
  Recorder recorder;
  watch_conv2d(lesson, z, direction, numbers(z, direction), recorder);
  return recorder;
}

// The problem has no padding, so a textbook convolution computes all N K P Q C/G R S products.
const Conv2dProblem kWhole = Conv2dProblem::parse("n=2,c=4,h=6,w=8,k=6,r=3,s=3,groups=2");
constexpr int kProducts = 2 * 6 * 4 * 6 * 2 * 9;

TEST(LessonEvents, LessonsThatReorderTheTextbookMakeItsMultiplications) {
  EXPECT_EQ(kProducts * 2, kWhole.nominal_flops());
  for (const char* lesson : {"direct_lesson", "im2col_gemm_lesson"}) {
    for (const Direction direction : kDirections) {
      const Recorder recorder = watched(lesson, kWhole, direction);
      EXPECT_EQ(recorder.products(), kProducts) << lesson << ", " << name_of(direction);
      EXPECT_EQ(recorder.scalings(), 0);
    }
  }
  const auto one = Conv2dProblem::parse("n=2,c=4,h=3,w=5,k=6,groups=2");
  const auto planes = Conv2dProblem::parse("n=2,c=3,h=6,w=7,k=6,r=3,s=3,groups=3");
  for (const Direction direction : kDirections) {
    EXPECT_EQ(watched("gemm_1x1_lesson", one, direction).products(), 2 * 6 * 15 * 2);
    EXPECT_EQ(watched("depthwise_lesson", planes, direction).products(), 2 * 6 * 4 * 5 * 9);
  }
}

TEST(LessonEvents, ProductsWithPaddingAreNotMadeOrAreProductsWithAConstant) {
  const auto z = Conv2dProblem::parse("n=1,c=1,h=4,w=4,k=1,r=3,s=3,pad=1,groups=1");
  const int inside = (2 + 3 + 3 + 2) * (2 + 3 + 3 + 2);  // rows used by each tap, times columns
  EXPECT_EQ(watched("direct_lesson", z, Direction::forward).products(), inside);
  const Recorder planes = watched("depthwise_lesson", z, Direction::forward);
  EXPECT_EQ(planes.products(), inside);
  EXPECT_EQ(planes.scalings(), 16 * 9 - inside);
}

TEST(LessonEvents, WinogradMakes16MultiplicationsInPlaceOf36AndScalesInItsTransforms) {
  const int tiles = 2 * 2 * 3;  // of 2x2 outputs in 2 images of 4x6
  const Recorder forward = watched("winograd_lesson", kWhole, Direction::forward);
  EXPECT_EQ(forward.products(), tiles * 16 * 6 * 2);
  EXPECT_EQ(9 * forward.products(), 4 * kProducts);
  // The transforms compute i x j outputs, each a sum over a x b inputs. Each input is multiplied by
  // a constant of the left and one of the right matrix.
  const int w_terms = 16 * 9 * 2, d_terms = 16 * 16 * 2, m_terms = 4 * 16 * 2;
  EXPECT_EQ(forward.scalings(), 12 * w_terms + tiles * (4 * d_terms + 6 * m_terms));
  EXPECT_EQ(watched("winograd_lesson", kWhole, Direction::backward_weight).products(),
            tiles * 16 * 6 * 2);
}

TEST(LessonEvents, FftMakesFourRealMultiplicationsForEachComplexOne) {
  const Recorder forward = watched("fft_lesson", kWhole, Direction::forward);
  const int plane_products =
      (8 + 8) * (8 / 2 * 3);                 // lines, and log2 8 rounds of 4 products for each
  const int planes = 6 * 2 + 2 * 4 + 2 * 6;  // of w, x and y
  const int points = 2 * 6 * 2 * 64;         // images, channel pairs, frequencies
  EXPECT_EQ(forward.products(), 4 * (planes * plane_products + points));
  EXPECT_EQ(forward.scalings(), 2 * 6 * 4 * 6);  // 1 / (L M) for each y
}

TEST(LessonEvents, BlockSparseMultipliesWhatTheListNamesAndImplicitGemmWholeTiles) {
  const auto sparse = Conv2dProblem::parse("n=2,c=4,h=6,w=8,k=6,r=3,s=3,weights=blocks2x3:5");
  EXPECT_EQ(watched("block_sparse_lesson", sparse, Direction::forward).products(),
            5 * 6 * 2 * 4 * 6);
  // With tiles of 16, the 3 kernels of a group need one row of tiles, 48 pixels need 3 columns, and
  // 18 taps need 2 steps.
  const Recorder tiles = watched("implicit_gemm_lesson", kWhole, Direction::forward);
  EXPECT_EQ(tiles.products(), 2 * 3 * 2 * 16 * 16 * 16);
  EXPECT_EQ(tiles.reads("w"), 3 * kWhole.w_shape().numel());  // once for each column of tiles
  EXPECT_EQ(tiles.reads("x"), 2 * 48 * 18);                   // once for each row of tiles
  EXPECT_EQ(tiles.writes("a"), 2 * 3 * 2 * 256);
}

TEST(LessonEvents, IntegersAreMultipliedAsTheTextbookSaysAndEachOutputIsScaledOnce) {
  const auto z =
      Conv2dProblem::parse("n=2,c=18,h=4,w=4,k=2,r=3,s=3,types=u8:i8:i32:i8,layout=nchw16c");
  const Recorder recorder = watched("int8_lesson", z, Direction::forward);
  EXPECT_EQ(recorder.products(), 2 * 2 * 4 * 18 * 9);
  EXPECT_EQ(recorder.scalings(), 2 * 2 * 4);  // by the product of the steps of x and w
  EXPECT_EQ(recorder.arrays()[0].element_bytes, 1);
}

TEST(LessonEvents, SumsGrowByTheirProducts) {
  const auto z = Conv2dProblem::parse("n=1,c=3,h=1,w=1,k=1");  // x = 1, 2, 3 and w = 1, 2, 3
  const Recorder recorder = watched("gemm_1x1_lesson", z, Direction::forward);
  std::vector<double> sums;
  for (const Recorder::Event& event : recorder.events()) {
    if (event.kind != Recorder::Kind::sum) continue;
    sums.push_back(event.value);
    EXPECT_EQ(event.products, sums.size());
  }
  EXPECT_EQ(sums, (std::vector<double>{1, 1 + 4, 1 + 4 + 9}));
}

TEST(LessonEvents, ARecorderThatCountsKeepsNone) {
  const std::int64_t kept = static_cast<std::int64_t>(
      watched("direct_lesson", kWhole, Direction::forward).events().size());
  Recorder recorder = Recorder::that_counts();
  watch_conv2d("direct_lesson", kWhole, Direction::forward, numbers(kWhole, Direction::forward),
               recorder);
  EXPECT_EQ(recorder.event_count(), kept);
  EXPECT_TRUE(recorder.events().empty());
  EXPECT_EQ(recorder.products(), kProducts);
}

// ---- lines ----

using Lines = std::vector<std::string>;

const Lines& lines_of(const std::string& name) {
  static std::map<std::string, Lines> files;
  if (const auto found = files.find(name); found != files.end()) return found->second;
  Lines& lines = files[name];
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(CONVSCOPE_SOURCE_DIR "/layers/conv2d")) {
    if (entry.path().filename() != name) continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) lines.push_back(line);
  }
  return lines;
}

std::string line_of(const Recorder& recorder, const Recorder::Event& event) {
  const Recorder::Place& place = recorder.places().at(static_cast<std::size_t>(event.place));
  const Lines& lines = lines_of(place.file);
  const auto at = static_cast<std::size_t>(place.line - 1);
  return at < lines.size() ? lines[at] : cat("no line ", place.line, " in ", place.file);
}

TEST(LessonEvents, EachEventNamesALineOfTheLessonThatDoesIt) {
  for (const auto& [name, lesson] : conv2d_lessons().entries()) {
    const Conv2dProblem problem = Conv2dProblem::parse(lesson.small_problem);
    for (const Direction direction : kDirections) {
      if (!support_of(conv2d_algorithms(DeviceType::cpu).get(name), problem, direction).yes) {
        continue;
      }
      SCOPED_TRACE(cat(name, ", ", name_of(direction)));
      const Recorder recorder = watched(name, problem, direction);
      ASSERT_GT(recorder.events().size(), 0u);
      for (const Recorder::Event& event : recorder.events()) {
        const std::string line = line_of(recorder, event);
        const std::size_t first = line.find_first_not_of(' ');
        ASSERT_NE(first, std::string::npos) << "an empty line";
        ASSERT_FALSE(line.substr(first).starts_with("//")) << line;
        const bool step = line.find("board.step(\"") != std::string::npos;
        ASSERT_EQ(event.kind == Recorder::Kind::step, step) << line;
        ASSERT_NE(line.find('('), std::string::npos) << line;
      }
    }
  }
}

TEST(LessonEvents, TheLineOfAReadIsTheOneThatNamesTheArray) {
  const Recorder recorder = watched("direct_lesson", kWhole, Direction::forward);
  const std::string product = "y(i.n, i.k, i.p, i.q) += w(i.k, i.c, i.r, i.s) * x(";
  int reads = 0;
  for (const Recorder::Event& event : recorder.events()) {
    const std::string line = line_of(recorder, event);
    if (event.kind == Recorder::Kind::read) {
      ++reads;
      ASSERT_NE(line.find(product), std::string::npos) << line;
    }
  }
  EXPECT_EQ(reads, 3 * kProducts);
  const Recorder filled = watched("im2col_gemm_lesson", kWhole, Direction::backward_data);
  EXPECT_NE(line_of(filled, filled.events().front()).find("dx.fill(0)"), std::string::npos);
}

}  // namespace
}  // namespace convscope
