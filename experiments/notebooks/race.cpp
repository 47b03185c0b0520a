// SPDX-License-Identifier: Apache-2.0
// race.cpp: compares the results and the time of a reader's convolution with those of the
// algorithms.
#include "experiments/notebooks/race.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include "experiments/bench/contender.h"
#include "experiments/bench/interleave.h"
#include "experiments/bench/statistics.h"
#include "experiments/notebooks/display.h"
#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"

namespace convscope {
namespace {

constexpr std::string_view kCheck = "[check] ";
constexpr double kOwnGrowth = 8;  // for code that sums term by term in one f32 accumulator

const Conv2dAlgorithm& algorithm_named(const std::string& name) {
  return conv2d_algorithms(DeviceType::cpu).get(name, ErrorKind::kUnavailable);
}

// Returns the names of the two inputs and the output of a direction.
std::array<const char*, 3> letters_of(Direction direction) {
  if (direction == Direction::backward_data) return {"dy", "w", "dx"};
  if (direction == Direction::backward_weight) return {"x", "dy", "dw"};
  return {"x", "w", "y"};
}

Conv2dProblem checked_problem(const std::string& text, const char* operation) {
  const Conv2dProblem z = Conv2dProblem::parse(text);
  z.check();
  CONVSCOPE_CHECK(z.dtype == DType::f32 && !z.types && z.weight_format.is_dense() && !z.is_empty(),
                  operation, "expected a problem of f32 with dense weights and samples, got ",
                  text);
  return z;
}

// Up to kSumChain terms, the allowed error is constant. Beyond that, it grows with the square root
// of the number of terms, as the error of a sum in a simple loop does.
double growth_of(const Conv2dProblem& z, Direction direction, double growth) {
  const double terms =
      z.nominal_flops() / 2 / static_cast<double>(output_shape(z, direction).numel());
  return growth * std::max(1.0, std::sqrt(terms / kSumChain));
}

// Calls `own` and checks the result.
SampledReference::Verdict judge(const std::string& name, const Conv2dFunction& own,
                                const Conv2dProblem& z, Direction direction, const BenchData& data,
                                const SampledReference& right, double growth) {
  const Tensor out = own(z, data.operands().in[0].values, data.operands().in[1].values);
  const Shape shape = output_shape(z, direction);
  CONVSCOPE_CHECK(out.defined() && out.shape() == shape && out.dtype() == DType::f32, name,
                  "expected ", letters_of(direction)[2], " of f32", shape, ", got ",
                  out.defined() ? out.str() : std::string("no tensor"));
  return right.judge(out.data<float>(), growth_of(z, direction, growth));
}

TimedThing timed_call(std::function<void()> call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double> once = std::chrono::steady_clock::now() - begin;
  return {.run = std::move(call), .estimate_seconds = once.count(), .seconds = {}};
}

std::string factor_text(double factor) {
  return fmt::format("\u00D7{:.{}f}", factor, factor < 10 ? 2 : factor < 100 ? 1 : 0);
}

void show_rows(const Conv2dProblem& z, const std::vector<RaceRow>& rows,
               const RaceOptions& options) {
  const bool forward = options.direction == Direction::forward;
  const std::string what = forward ? "" : cat(letters_of(options.direction)[2], "; ");
  BarPanel panel{.x = {.label = "speed (GFLOP/s of the textbook's loops)", .log = true},
                 .series = {{.name = "GFLOP/s"}}};
  Figure figure{.title = options.title.empty() ? "Side by side" : options.title,
                .subtitle = cat(z.text(), "; ", what, "algorithms on ", options.threads,
                                options.threads == 1 ? " thread" : " threads")};
  Extent extent;
  double first = 0;
  for (const RaceRow& row : rows) {
    if (!row.left_out.empty()) {
      figure.notes.push_back(cat(row.name, " is left out: ", row.left_out));
      continue;
    }
    if (first == 0) first = row.median_ms;
    panel.categories.push_back(row.name);
    panel.category_styles.push_back(algorithm_style(row.name));
    panel.series[0].values.push_back(row.gflops);
    panel.series[0].notes.push_back(cat("GFLOP/s, ", number_text(row.median_ms, 3), " ms, ",
                                        factor_text(first / row.median_ms)));
    extent.add(row.gflops);
  }
  if (!extent.any) {
    show_html("<p>" + escape_markup(join(figure.notes, "; ")) + "</p>");
    return;
  }
  panel.log_base = std::pow(10.0, std::floor(std::log10(extent.low)));
  panel.x.include = {panel.log_base, extent.high};
  figure.panels.emplace_back(std::move(panel));
  figure.notes.emplace_back("\u00D7: the time of the first bar divided by the time of this bar");
  show(figure);
}

}  // namespace

Tensor conv2d_by(const std::string& chosen, const Conv2dProblem& problem, const Tensor& first,
                 const Tensor& second, Direction direction) {
  problem.check();
  const Conv2dAlgorithm& algorithm = algorithm_named(chosen);
  const auto letters = letters_of(direction);
  const Shape read = direction == Direction::backward_data ? problem.y_shape() : problem.x_shape();
  const Shape other =
      direction == Direction::backward_weight ? problem.y_shape() : problem.w_shape();
  for (const auto& [name, tensor, shape] :
       {std::tuple(letters[0], first, read), std::tuple(letters[1], second, other)}) {
    CONVSCOPE_CHECK(tensor.defined() && tensor.shape() == shape && tensor.dtype() == problem.dtype,
                    "conv2d_by", "expected ", name, " of ", name_of(problem.dtype), shape,
                    " because the problem is ", problem.text(), ", got ",
                    tensor.defined() ? tensor.str() : std::string("no tensor"));
  }
  const Support support = support_of(algorithm, problem, direction);
  if (!support.yes) fail(ErrorKind::kUnavailable, chosen, support.reason);
  Operands operands;
  operands.in = {first, second, Operand{}, Operand{}};
  operands.out[0] = Tensor::empty(output_shape(problem, direction), problem.dtype);
  run_algorithm(algorithm, problem, direction, operands);
  return operands.out[0].values;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  CONVSCOPE_CHECK(a.defined() && b.defined() && a.shape() == b.shape(), "largest_difference",
                  "expected two tensors of one shape, got ",
                  a.defined() ? a.str() : std::string("none"), " and ",
                  b.defined() ? b.str() : std::string("none"));
  double largest = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const double difference = std::abs(a.at(i) - b.at(i));
    largest = std::isnan(difference) ? difference : std::max(largest, difference);
    if (std::isnan(largest)) break;
  }
  return largest;
}

void check_conv2d(const std::string& name, const Conv2dFunction& own,
                  const std::vector<std::string>& problems, double growth, Direction direction) {
  double worst = 0;
  for (const std::string& text : problems) {
    const Conv2dProblem z = checked_problem(text, "check_conv2d");
    const BenchData data(z, direction, Device{});
    const SampledReference right(z, direction, data.inputs());
    const auto verdict = judge(name, own, z, direction, data, right, growth);
    if (!verdict.wrong.empty()) fail(name, cat(verdict.wrong, " (", z.text(), ")"));
    worst = std::max(worst, verdict.error_ratio);
  }
  std::printf("%s agrees with reference on %zu problem%s; largest error: %.2g of the bound\n",
              name.c_str(), problems.size(), problems.size() == 1 ? "" : "s", worst);
  std::fflush(stdout);
}

void expect(bool holds, const std::string& sentence) {
  if (!holds) fail("check", sentence);  // kCheck is the first word of its text
}

bool exercise(const std::string& name, const std::function<void()>& checks) {
  std::string wrong;
  try {
    checks();
  } catch (const std::exception& error) {
    wrong = error.what();
    if (wrong.starts_with(kCheck)) wrong = wrong.substr(kCheck.size());
  }
  std::printf("%s: %s%s\n", name.c_str(), wrong.empty() ? "right" : "not yet. ", wrong.c_str());
  std::fflush(stdout);
  return wrong.empty();
}

std::vector<RaceRow> race(const std::string& problem,
                          const std::vector<std::pair<std::string, Conv2dFunction>>& own,
                          const std::vector<std::string>& algorithms, const RaceOptions& options) {
  const Conv2dProblem z = checked_problem(problem, "race");
  const Direction direction = options.direction;
  for (const std::string& algorithm : algorithms)
    algorithm_named(algorithm);  // reports a misspelt name at once
  const BenchData data(z, direction, Device{});
  const SampledReference right(z, direction, data.inputs());
  std::vector<RaceRow> rows;
  std::vector<TimedThing> things;
  std::vector<std::size_t> row_of;
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const auto& entry : own) {
    const auto& name = entry.first;
    const auto& function = entry.second;  // clang 16 cannot capture structured bindings with OpenMP
    rows.push_back({.name = name});
    const auto verdict = judge(name, function, z, direction, data, right, kOwnGrowth);
    rows.back().error_ratio = verdict.error_ratio;
    rows.back().left_out = verdict.wrong;
    if (!verdict.wrong.empty()) continue;
    things.push_back(timed_call(
        [&] { function(z, data.operands().in[0].values, data.operands().in[1].values); }));
    row_of.push_back(rows.size() - 1);
  }
  for (const std::string& name : algorithms) {
    const Conv2dAlgorithm& algorithm = algorithm_named(name);
    rows.push_back({.name = name});
    const Support support = support_of(algorithm, z, direction);
    if (!support.yes) {
      rows.back().left_out = support.reason;
      continue;
    }
    contenders.push_back(std::make_unique<Contender>(
        algorithm, z, direction, data,
        Switches{.threads = options.threads, .prepares_each_call = true}));
    Contender& one = *contenders.back();
    const double first_seconds = one.check(right);
    rows.back().error_ratio = one.error_ratio();
    rows.back().left_out = one.wrong();
    if (!one.wrong().empty()) continue;
    things.push_back(timed(one, first_seconds));
    row_of.push_back(rows.size() - 1);
  }
  time_interleaved(things, {.min_seconds = options.min_seconds, .least_samples = 3});
  for (std::size_t i = 0; i < things.size(); ++i) {
    RaceRow& row = rows[row_of[i]];
    row.median_ms = summary_of(things[i].seconds).median_ms;
    row.gflops = z.nominal_flops() / (row.median_ms * 1e6);
  }
  show_rows(z, rows, options);
  return rows;
}

double time_ms(const std::function<void()>& call, double min_seconds) {
  std::vector<TimedThing> things;
  things.push_back(timed_call(call));
  time_interleaved(things, {.min_seconds = min_seconds, .least_samples = 3});
  return summary_of(things[0].seconds).median_ms;
}

}  // namespace convscope
