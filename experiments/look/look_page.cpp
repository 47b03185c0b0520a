// SPDX-License-Identifier: Apache-2.0
// look_page.cpp: a page that replays a lesson on a small problem.
#include "experiments/look/look_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "experiments/look/look_data.h"
#include "experiments/look/look_markup.h"
#include "experiments/report/chart/svg_text.h"
#include "experiments/run_folder/user_words.h"
#include "framework/random.h"
#include "layers/conv2d/ladder.h"
#include "layers/dispatch/run.h"

namespace convscope {
namespace {

constexpr std::string_view kEnding = "_lesson";
// The largest number of array elements on a page. More cells do not fit on a screen, and the page
// stores element indices in 16 bits.
constexpr std::int64_t kMaxCells = 6'000;
// A problem with more products is refused without counting its events.
constexpr double kMaxProducts = 5e6;

// Returns "winograd" for "layers/conv2d/winograd/cpu/winograd_cpu.cpp".
std::string folder_of(const std::string& file) {
  const std::filesystem::path path(file);
  for (auto part = path.begin(); part != path.end(); ++part) {
    if (*part == "conv2d" && ++part != path.end()) return part->string();
  }
  return "";
}

// Returns the folder of an algorithm, or "" when there is no such algorithm.
std::string folder_of_algorithm(const std::string& name) {
  for (const DeviceType device : {DeviceType::cpu, DeviceType::cuda}) {
    const auto& algorithms = conv2d_algorithms(device);
    if (algorithms.find(name) != nullptr) return folder_of(algorithms.file_of(name));
  }
  return "";
}

std::string idea_of(const std::string& name) {
  for (const DeviceType device : {DeviceType::cpu, DeviceType::cuda}) {
    const Conv2dAlgorithm* const algorithm = conv2d_algorithms(device).find(name);
    if (algorithm == nullptr) continue;
    constexpr std::string_view kBefore = "lesson: ";
    const std::string_view idea = algorithm->idea;
    return std::string(idea.starts_with(kBefore) ? idea.substr(kBefore.size()) : idea);
  }
  return "";
}

// Returns a sentence when the lesson shows another algorithm of the same folder. For example, the
// lesson of winograd_f4x3 shows F(2x2, 3x3).
std::string remark_on_other(const std::string& algorithm, const std::string& lesson) {
  if (algorithm == lesson || algorithm + std::string(kEnding) == lesson) return "";
  return cat(algorithm, " has no lesson. The page plays ", lesson,
             ", the lesson of its family, which is another algorithm: ", idea_of(lesson), ". ",
             algorithm, " is: ", idea_of(algorithm));
}

std::string lesson_named(const std::string& algorithm) {
  const Registry<Conv2dLesson>& lessons = conv2d_lessons();
  const std::string folder = folder_of_algorithm(algorithm);
  for (const std::string& name :
       {algorithm, algorithm + std::string(kEnding), folder + std::string(kEnding)}) {
    if (lessons.find(name) != nullptr) return name;
  }
  const std::vector<std::string> known = lessons_to_look_at();
  if (!folder.empty()) {
    fail(ErrorKind::kUnavailable, "look",
         cat("expected an algorithm whose folder has a lesson, because the lesson tells what it "
             "reads and writes, got ",
             algorithm, " of the folder ", folder, " (with a lesson: ", join(known), ")"));
  }
  fail(ErrorKind::kUnavailable, "look",
       cat("unknown algorithm '", algorithm, "'", did_you_mean(algorithm, known),
           " (with a lesson: ", join(known), ")"));
}

// Fills the operand with small integers, so that a reader can follow the sums. Quantised operands
// (u8, i8) get multiples of 30 or 40 instead, because small values would all round to 0 in the
// result.
void set_small_numbers(Operand& operand, const OperandSpec& spec, std::uint64_t stream) {
  const bool codes = spec.desc.dtype == DType::u8 || spec.desc.dtype == DType::i8;
  const std::int64_t most = spec.is_weights ? 2 : 3;
  const std::int64_t factor = !codes ? 1 : spec.is_weights ? 40 : 30;
  const bool dense = spec.desc.sparsity.is_dense();
  const Tensor numbers = Tensor::empty(dense ? spec.desc.shape : operand.values.shape(),
                                       codes ? spec.desc.dtype : DType::f32);
  Generator random(15, stream);
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    const std::int64_t from_zero = random.below(static_cast<std::uint32_t>(2 * most + 1));
    const std::int64_t number =
        factor * (spec.desc.dtype == DType::u8 ? from_zero : from_zero - most);
    if (spec.desc.dtype == DType::u8) {
      numbers.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(number);
    } else if (spec.desc.dtype == DType::i8) {
      numbers.data<std::int8_t>()[i] = static_cast<std::int8_t>(number);
    } else {
      numbers.data<float>()[i] = static_cast<float>(number);
    }
  }
  operand.values = stored_images(numbers, spec.desc.layout);
}

Operands small_operands(const Conv2dProblem& problem, Direction direction) {
  const OperandSpecs specs = problem.operands(direction);
  Operands out = random_operands(specs, Device{});
  for (std::size_t i = 0; i < specs.inputs.size(); ++i) {
    set_small_numbers(out.in.at(i), specs.inputs[i], i + 1);
  }
  return out;
}

// Returns the largest difference between an element and the result of `reference` in f64.
double difference_to_reference(const Conv2dProblem& problem, Direction direction,
                               const Operands& operands) {
  const OperandSpecs specs = problem.operands(direction);
  Conv2dProblem plain = problem;
  plain.dtype = DType::f64;
  plain.types.reset();
  plain.weight_format = {};
  plain.layout = {};
  Operands numbers = random_operands(plain.operands(direction), Device{});
  for (std::size_t i = 0; i < specs.inputs.size(); ++i) {
    numbers.in.at(i) = real_numbers(operands.in.at(i), specs.inputs[i]);
  }
  run_algorithm(conv2d_algorithms(DeviceType::cpu).get("reference"), plain, direction, numbers);
  const Tensor expected = numbers.out[0].values;
  const Tensor seen = real_numbers(operands.out[0], specs.outputs[0]);
  double most = 0;
  const auto compare = [&](std::int64_t /*stored*/, std::int64_t i) {
    most = std::max(most, std::abs(seen.at(i) - expected.at(i)));
  };
  if (specs.outputs[0].desc.sparsity.is_dense()) {
    for (std::int64_t i = 0; i < seen.numel(); ++i) compare(i, i);
  } else {
    for_each_stored(operands.out[0], specs.outputs[0], compare);
  }
  return most;
}

// ---- problems that are too large ----

std::int64_t cells_of(const Recorder& recorder) {
  std::int64_t cells = 0;
  for (const Recorder::Array& array : recorder.arrays()) {
    std::int64_t elements = 1;
    for (const std::int64_t size : array.sizes) elements *= size;
    cells += elements;
  }
  return cells;
}

struct Count {
  std::int64_t events = 0, cells = 0;
  bool fits() const { return events <= kMaxLookEvents && cells <= kMaxCells; }
};

Count count_of(const std::string& lesson, const Conv2dProblem& problem, Direction direction) {
  Recorder recorder = Recorder::that_counts();
  watch_conv2d(lesson, problem, direction, random_operands(problem.operands(direction), Device{}),
               recorder);
  return {recorder.event_count(), cells_of(recorder)};
}

bool is_countable(const Conv2dProblem& problem) {
  return problem.nominal_flops() / 2 + problem.nominal_bytes() <= kMaxProducts;
}

// Returns a smaller problem, by one change: first one image, then fewer groups, then fewer channels
// per group, then fewer rows and columns of y.
Conv2dProblem smaller(Conv2dProblem z) {
  const std::int64_t c = z.c_per_group(), k = z.k_per_group();
  const auto half = [](std::int64_t size) { return std::max<std::int64_t>(1, size / 2); };
  const auto set_channels = [&z](std::int64_t groups, std::int64_t x_channels,
                                 std::int64_t y_channels) {
    z.groups = groups;
    z.c = groups * x_channels;
    z.k = groups * y_channels;
  };
  const bool wide = z.p() > 2 || z.q() > 2;
  if (z.n > 1) {
    z.n = 1;
  } else if (z.groups > 2) {
    set_channels(half(z.groups), c, k);
  } else if (std::max(c, k) > 2) {
    set_channels(z.groups, half(c), half(k));
  } else if (wide) {  // half the outputs
    if (z.p() > 2) z.h -= (z.p() - half(z.p())) * z.stride_h;
    if (z.q() > 2) z.w -= (z.q() - half(z.q())) * z.stride_w;
  } else {
    set_channels(half(z.groups), half(c), half(k));
  }
  return z;
}

// Returns a similar problem, or the lesson's default, that fits on a page.
Conv2dProblem one_that_fits(const std::string& lesson, const Conv2dProblem& problem,
                            Direction direction) {
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get(lesson);
  Conv2dProblem z = problem;
  for (int steps = 0; steps < 60 && z.weight_format.is_dense(); ++steps) {
    z = smaller(z);
    if (z.h < 1 || z.w < 1) break;
    if (!is_countable(z)) continue;
    if (!support_of(algorithm, z, direction).yes) break;
    if (count_of(lesson, z, direction).fits()) return z;
  }
  return Conv2dProblem::parse(conv2d_lessons().get(lesson).small_problem);
}

void refuse_too_large(const std::string& lesson, const Conv2dProblem& problem,
                      Direction direction) {
  const bool countable = is_countable(problem);
  const Count count = countable ? count_of(lesson, problem, direction) : Count{};
  if (countable && count.fits()) return;
  const Conv2dProblem fits = one_that_fits(lesson, problem, direction);
  const Count fit_count = count_of(lesson, fits, direction);
  const std::string got = countable
                              ? cat(count.events, " of ", count.cells)
                              : fmt::format("{:.0f} multiplications", problem.nominal_flops() / 2);
  fail(ErrorKind::kInvalid, "look",
       cat("expected a problem of at most ", kMaxLookEvents, " reads, writes and sums of at most ",
           kMaxCells, " numbers, because the page keeps each of them, got ", got, " for ",
           problem.text(), "; ", fits.text(), " would fit, with ", fit_count.events, " of ",
           fit_count.cells));
}

void add_counts(Look& look, const Recorder& recorder) {
  look.events = recorder.event_count();
  for (const Recorder::Event& event : recorder.events()) {
    look.reads += event.kind == Recorder::Kind::read;
    look.writes += event.kind == Recorder::Kind::write;
  }
  look.products = recorder.products();
  look.scalings = recorder.scalings();
  look.textbook = std::llround(look.problem.nominal_flops() / 2);
}

}  // namespace

std::vector<std::string> lessons_to_look_at() {
  std::vector<std::string> out = conv2d_lessons().names();
  for (std::string& name : out) {
    if (name.ends_with(kEnding)) name.resize(name.size() - kEnding.size());
  }
  return out;
}

Look look_at(const std::string& algorithm, const std::string& problem, Direction direction) {
  Look look;
  look.lesson = lesson_named(algorithm);
  look.other_algorithm = remark_on_other(algorithm, look.lesson);
  look.direction = direction;
  const Conv2dLesson& lesson = conv2d_lessons().get(look.lesson);
  look.problem = Conv2dProblem::parse(problem.empty() ? lesson.small_problem : problem);
  look.problem.check();
  const Conv2dAlgorithm& played = conv2d_algorithms(DeviceType::cpu).get(look.lesson);
  const Conv2dSupport support = support_of(played, look.problem, direction);
  if (!support.yes) {
    fail(ErrorKind::kUnavailable, "look",
         cat("expected a problem and a direction that ", look.lesson, " computes, but it ",
             support.reason));
  }
  CONVSCOPE_CHECK(look.problem.n > 0, "look", "expected at least one image, got n=0");
  refuse_too_large(look.lesson, look.problem, direction);
  const Operands operands = small_operands(look.problem, direction);
  Recorder recorder(kMaxLookEvents);
  watch_conv2d(look.lesson, look.problem, direction, operands, recorder);
  add_counts(look, recorder);
  look.largest_difference = difference_to_reference(look.problem, direction, operands);
  const Quantisation meaning = operands.out[0].quantisation();
  if (meaning.scales != nullptr) look.step = meaning.scale(0);
  look.page = look_markup(look, played, look_data(look, recorder, operands));
  return look;
}

std::string look_page(const std::string& algorithm, const std::string& problem,
                      Direction direction) {
  return look_at(algorithm, problem, direction).page;
}

std::string look_frame(const std::string& page, int height_px) {
  return fmt::format(
      "<iframe title=\"A lesson, step by step\" style=\"width:100%;height:{}px;border:1px solid "
      "#999\" srcdoc=\"{}\"></iframe>",
      height_px, escape_markup(page));
}

}  // namespace convscope
