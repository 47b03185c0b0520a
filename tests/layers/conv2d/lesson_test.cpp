// SPDX-License-Identifier: Apache-2.0
// lesson_test.cpp: runs lessons with a recorder, which records each read, write and product. The
// tests check that recording does not change the results, that a lesson writes every element of its
// output, and that the numbers of reads and products are those of the algorithm.
#include "layers/conv2d/shared/lesson.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "framework/random.h"
#include "layers/dispatch/run.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

// A view of a plain pointer returns the element itself, so an unwatched lesson has no overhead.
static_assert(std::is_same_v<decltype(std::declval<View<float*>>()(0, 0)), float&>);
static_assert(std::is_same_v<decltype(std::declval<View<const float*>>()(0)), const float&>);
static_assert(std::is_empty_v<Unwatched>);

const Conv2dAlgorithm& algorithm_of(const std::string& name) {
  return conv2d_algorithms(DeviceType::cpu).get(name);
}

Tensor random_tensor(const Shape& shape, std::uint64_t stream) {
  Generator random(7, stream);
  const Tensor out = Tensor::empty(shape);
  for (std::int64_t i = 0; i < shape.numel(); ++i) out.data<float>()[i] = random.normal();
  return out;
}

// The two tensors that a direction reads.
struct Inputs {
  Tensor first, second;
  Operand w;  // for block-sparse weights: the places of the blocks
  OperandViews views;
  Inputs(const Conv2dProblem& z, Direction direction)
      : first(random_tensor(direction == Direction::backward_data ? z.y_shape() : z.x_shape(), 1)),
        second(random_tensor(
            direction == Direction::backward_weight ? z.y_shape() : lesson::stored_weights(z), 2)) {
    if (z.weight_format.is_dense()) return;
    w = empty_operand(z.operands(Direction::forward).inputs[1], Device{}, 3);
    views.w_blocks = w.blocks();
  }
};

const char* name_of_output(Direction direction) {
  return direction == Direction::forward         ? "y"
         : direction == Direction::backward_data ? "dx"
                                                 : "dw";
}

// Each lesson takes at least one of them in each direction.
std::vector<Conv2dProblem> small_problems() {
  std::vector<Conv2dProblem> out;
  for (const char* text :
       {"n=2,c=4,h=5,w=7,k=6,r=3,s=3,pad=1x2x0x1,groups=2", "n=2,c=4,h=3,w=5,k=6,groups=2",
        "n=1,c=2,h=7,w=6,k=4,r=2,s=3,pad=1,stride=2x1,dilation=1x2,groups=2",
        "n=2,c=4,h=5,w=7,k=6,r=3,s=3,pad=1,weights=blocks3x2:11"}) {
    out.push_back(Conv2dProblem::parse(text));
  }
  return out;
}

TEST(Lesson, WatchedItMakesTheSameNumbersAndWritesEveryElement) {
  for (const auto& [name, lesson] : conv2d_lessons().entries()) {
    std::vector<Conv2dProblem> problems = small_problems();
    problems.push_back(Conv2dProblem::parse(lesson.small_problem));
    for (const Direction direction : kDirections) {
      SCOPED_TRACE(cat(name, ", ", name_of(direction)));
      if (name == "int8_lesson" && direction != Direction::forward) continue;
      int runs = 0;
      for (const Conv2dProblem& problem : problems) {
        if (!support_of(algorithm_of(name), problem, direction).yes) continue;
        ++runs;
        const OperandSpecs specs = problem.operands(direction);
        const Operands operands = random_operands(specs, Device{});
        run_algorithm(algorithm_of(name), problem, direction, operands);
        const Tensor plain = operands.out[0].values;
        Operands watched = operands;
        watched.out[0].values = Tensor::empty(plain.shape(), plain.dtype());
        Recorder recorder;
        watch_conv2d(name, problem, direction, watched, recorder);
        const Tensor seen = watched.out[0].values;
        EXPECT_EQ(std::memcmp(seen.raw_data(), plain.raw_data(),
                              static_cast<std::size_t>(plain.size_bytes())),
                  0);
        // The last number written to each element is its value.
        std::vector<double> last(static_cast<std::size_t>(plain.numel()), std::nan(""));
        for (const Recorder::Event& event : recorder.events()) {
          if (event.kind != Recorder::Kind::write) continue;
          const Recorder::Array& array = recorder.arrays()[static_cast<std::size_t>(event.which)];
          if (array.name != name_of_output(direction)) continue;
          last[static_cast<std::size_t>(event.index)] = event.value;
        }
        for (std::int64_t i = 0; i < plain.numel(); ++i) {
          ASSERT_EQ(last[static_cast<std::size_t>(i)], plain.at(i)) << "element " << i;
        }
        EXPECT_FALSE(recorder.steps().empty());
      }
      EXPECT_GT(runs, 0);
    }
  }
}

// ---- expected counts of each algorithm ----------------------------------------------------------

Recorder watched(const char* lesson, const Conv2dProblem& problem, Direction direction) {
  Recorder recorder;
  const Inputs in(problem, direction);
  watch_conv2d(lesson, problem, direction, in.first, in.second, recorder);
  return recorder;
}

// The problem has no padding, so a lesson computes all N K P Q C/G R S products.
const Conv2dProblem kWhole = Conv2dProblem::parse("n=2,c=4,h=6,w=8,k=6,r=3,s=3,groups=2");
constexpr std::int64_t kProducts = 2 * 6 * 4 * 6 * 2 * 9;

TEST(Lesson, DirectLoadsTwoNumbersForEachProduct) {
  for (const Direction direction : kDirections) {
    const Recorder recorder = watched("direct_lesson", kWhole, direction);
    const bool forward = direction == Direction::forward;
    const bool weight = direction == Direction::backward_weight;
    EXPECT_EQ(recorder.reads(direction == Direction::backward_data ? "dy" : "x"), kProducts);
    EXPECT_EQ(recorder.reads(weight ? "dy" : "w"), kProducts);
    EXPECT_EQ(recorder.reads(name_of_output(direction)), kProducts);  // each sum is in memory
    const std::int64_t set = forward  ? kWhole.y_shape().numel()
                             : weight ? 0
                                      : kWhole.x_shape().numel();
    EXPECT_EQ(recorder.writes(name_of_output(direction)), kProducts + set);
  }
}

TEST(Lesson, BlockSparseReadsXOnceForEachStoredWeightAndPixel) {
  const Conv2dProblem z = Conv2dProblem::parse("n=2,c=4,h=6,w=8,k=6,r=3,s=3,weights=blocks2x3:5");
  const Inputs in(z, Direction::forward);
  Recorder recorder;
  watch_conv2d("block_sparse_lesson", z, Direction::forward, in.first, in.second, recorder,
               in.views);
  EXPECT_EQ(recorder.reads("x"), 5 * 6 * 2 * 4 * 6);  // blocks, their weights, N P Q
  EXPECT_EQ(recorder.reads("w"), 5 * 6);
}

TEST(Lesson, Im2colReadsEachInputRSTimesAndMultipliesFromTheColumns) {
  const std::int64_t elements = 2 * 4 * 9 * 4 * 6;  // N C R S P Q
  const Recorder forward = watched("im2col_gemm_lesson", kWhole, Direction::forward);
  EXPECT_EQ(forward.reads("x"), elements);
  EXPECT_EQ(forward.writes("columns", "im2col"), elements);
  EXPECT_EQ(forward.reads("columns", "y = w columns + b"), kProducts);
  EXPECT_EQ(forward.writes("y"), kWhole.y_shape().numel());
  const Recorder data = watched("im2col_gemm_lesson", kWhole, Direction::backward_data);
  EXPECT_EQ(data.reads("dy"), kProducts);
  EXPECT_EQ(data.writes("dx", "col2im"), elements);
  const Recorder weight = watched("im2col_gemm_lesson", kWhole, Direction::backward_weight);
  EXPECT_EQ(weight.reads("columns"), kProducts);
  EXPECT_EQ(weight.reads("x"), elements);
  // Columns in the padding are written, but they read nothing.
  const Conv2dProblem padded = Conv2dProblem::parse("n=1,c=1,h=1,w=1,k=1,r=3,s=3,pad=1");
  const Recorder one = watched("im2col_gemm_lesson", padded, Direction::forward);
  EXPECT_EQ(one.reads("x"), 1);
  EXPECT_EQ(one.writes("columns"), 9);
}

TEST(Lesson, Gemm1x1ReadsXOnceForEachKernelAndWritesNoColumns) {
  const Conv2dProblem z = Conv2dProblem::parse("n=2,c=4,h=3,w=5,k=6,groups=2");
  const Recorder recorder = watched("gemm_1x1_lesson", z, Direction::forward);
  EXPECT_EQ(recorder.reads("x"), 3 * z.x_shape().numel());   // K/G
  EXPECT_EQ(recorder.reads("w"), 30 * z.w_shape().numel());  // N P Q
  EXPECT_EQ(recorder.writes("y"), z.y_shape().numel());
  EXPECT_EQ(recorder.arrays().size(), 4u);  // x, w, b and y
}

TEST(Lesson, WinogradMakes16ProductsForFourOutputs) {
  const std::int64_t tiles = 2 * 2 * 3;  // of 2x2 outputs in 2 images of 4x6
  const Recorder forward = watched("winograd_lesson", kWhole, Direction::forward);
  EXPECT_EQ(forward.reads("U", "M = sum of U . V"), tiles * 16 * 6 * 2);  // K C/G channel pairs
  EXPECT_EQ(forward.reads("V", "M = sum of U . V"), tiles * 16 * 6 * 2);
  EXPECT_EQ(9 * forward.reads("U", "M = sum of U . V"), 4 * kProducts);  // 16 instead of 36
  EXPECT_EQ(forward.reads("x"), tiles * 16 * 4);                         // tiles overlap by two
  EXPECT_EQ(forward.writes("U"), 16 * 6 * 2);                            // once for all tiles
  const Recorder weight = watched("winograd_lesson", kWhole, Direction::backward_weight);
  EXPECT_EQ(weight.reads("V", "M += (A dy A^T) . V"), tiles * 16 * 6 * 2);
  EXPECT_EQ(weight.reads("dy"), kWhole.y_shape().numel());
}

TEST(Lesson, FftReadsEachNumberOnceAndItsProductsDoNotDependOnTheKernel) {
  for (const char* kernel : {"r=1,s=1", "r=3,s=3", "r=5,s=6"}) {
    const Conv2dProblem z = Conv2dProblem::parse(cat("n=2,c=4,h=6,w=8,k=6,groups=2,", kernel));
    const Recorder recorder = watched("fft_lesson", z, Direction::forward);
    EXPECT_EQ(recorder.reads("x"), z.x_shape().numel()) << kernel;
    EXPECT_EQ(recorder.reads("w"), z.w_shape().numel()) << kernel;
    // Each pair of an image and a channel takes 8x8 complex products; a complex number counts as
    // two reads.
    EXPECT_EQ(recorder.reads("W", "Y = sum of conj X . W"), 2 * 8 * 8 * 2 * 6 * 2) << kernel;
  }
}

TEST(Lesson, DepthwiseReadsOnePlaneForOnePlane) {
  const Conv2dProblem z = Conv2dProblem::parse("n=2,c=3,h=6,w=7,k=6,r=3,s=3,groups=3");
  const Recorder recorder = watched("depthwise_lesson", z, Direction::forward);
  EXPECT_EQ(recorder.reads("x"), 9 * z.y_shape().numel());  // R S, and no C
  EXPECT_EQ(recorder.reads("w"), 9 * z.y_shape().numel());
  EXPECT_EQ(recorder.writes("y"), z.y_shape().numel());
}

// ---- the table and the rules of a lesson -------------------------------------------------------

std::filesystem::path file_named(const std::string& name) {
  const char* const root = CONVSCOPE_SOURCE_DIR "/layers/conv2d";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().filename() == name) return entry.path();
  }
  return {};
}

TEST(Lesson, EveryLessonsAlgorithmIsWatchableShortAndPlain) {
  std::set<std::string> algorithms;
  for (const auto& [name, algorithm] : conv2d_algorithms(DeviceType::cpu).entries()) {
    if (!name.ends_with("_lesson")) continue;
    SCOPED_TRACE(name);
    algorithms.insert(name);
    EXPECT_FALSE(algorithm.auto_ok);
    std::ifstream source(file_named(name + "_cpu.cpp"));
    int lines = 0;
    for (std::string line; std::getline(source, line); ++lines) {
      for (const char* word : {"_simd", "simd/", "parallel", "prefetch", "__restrict"}) {
        EXPECT_EQ(line.rfind("//", 0) == std::string::npos ? line.find(word) : std::string::npos,
                  std::string::npos)
            << line;
      }
    }
    EXPECT_GT(lines, 0);
    EXPECT_LE(lines, 200);
  }
  const std::vector<std::string> lessons = conv2d_lessons().names();
  EXPECT_EQ(algorithms, std::set<std::string>(lessons.begin(), lessons.end()));
  EXPECT_GE(algorithms.size(), 6u);
}

TEST(Lesson, WatchingRefusesWithASentence) {
  const Inputs in(kWhole, Direction::forward);
  Recorder recorder;
  EXPECT_ERROR(
      ErrorKind::kUnavailable, "unknown lesson 'winograd_leson'; did you mean",
      watch_conv2d("winograd_leson", kWhole, Direction::forward, in.first, in.second, recorder));
  EXPECT_ERROR(
      ErrorKind::kUnavailable, "expects a kernel of 1x1, got 3x3",
      watch_conv2d("gemm_1x1_lesson", kWhole, Direction::forward, in.first, in.second, recorder));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected two tensors [2,4,6,8] and [2,6,4,6]",
               watch_conv2d("direct_lesson", kWhole, Direction::backward_weight, in.first,
                            in.second, recorder));
  Recorder small(1000);
  EXPECT_ERROR(
      ErrorKind::kInvalid, "expected a problem of at most 1000 reads and writes",
      watch_conv2d("direct_lesson", kWhole, Direction::forward, in.first, in.second, small));
}

TEST(Lesson, ARecorderRefusesAnElementThatIsNotThere) {
  std::vector<float> numbers(9);  // more than the view shows
  Recorder recorder;
  const auto view = recorder.view("columns", numbers.data(), 2, 3);
  view(1, 2) = 1.0f;
  EXPECT_EQ(numbers[5], 1.0f);
  EXPECT_EQ(recorder.writes("columns"), 1);
  EXPECT_ERROR(ErrorKind::kInvalid, "expected an element of columns, which holds 6, got element 6",
               view(2, 0) = 1.0f);
}

}  // namespace
}  // namespace convscope
