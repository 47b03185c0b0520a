// SPDX-License-Identifier: Apache-2.0
// fit.cpp: fits the coefficients of the cost model to measured times.
#include "layers/dispatch/cost/fit.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "framework/check.h"
#include "framework/io/json_text.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "convscope cost samples 1";
constexpr int kSteps = 30;          // of Gauss-Newton
constexpr int kSweeps = 400;        // of coordinate descent in each step
constexpr double kPull = 1e-4;      // towards the prior, relative to a term's share of the rows
constexpr double kRowsOfPrior = 4;  // the prior of a schedule counts as much as so many rows

// Minimises sum over rows of weight (sum_j a_j c_j - target)^2 + pull, c >= 0, starting from c.
struct Row {
  Coefficients a;
  double target, weight;
};
void solve(const std::vector<Row>& rows, const Coefficients& prior, double share, Coefficients& c) {
  constexpr std::size_t n = std::tuple_size_v<Coefficients>;
  std::array<Coefficients, n> normal{};
  Coefficients right{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < n; ++i) {
      right[i] += row.weight * row.a[i] * row.target;
      for (std::size_t j = 0; j < n; ++j) normal[i][j] += row.weight * row.a[i] * row.a[j];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    const double pull = share * normal[i][i];
    normal[i][i] += pull;
    right[i] += pull * prior[i];
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::size_t i = 0; i < n; ++i) {
      if (normal[i][i] <= 0) {
        c[i] = 0;
        continue;
      }
      double sum = right[i];
      for (std::size_t j = 0; j < n; ++j) sum -= j == i ? 0 : normal[i][j] * c[j];
      c[i] = std::max(0.0, sum / normal[i][i]);
    }
  }
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(q * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(at));
  return values[at];
}

// "conv2d direct forward nchw16c" -> "conv2d direct forward"
std::string without_schedule(const std::string& kernel) {
  std::size_t end = 0;
  for (int words = 0; words < 3 && end != std::string::npos; ++words) {
    end = kernel.find(' ', end == 0 ? 0 : end + 1);
  }
  return kernel.substr(0, end);
}

// An error of a kernel that takes much longer than another one does not change the choice.
void set_weights(std::vector<CostSample>& samples) {
  std::map<std::string, double> fastest;
  for (const CostSample& sample : samples) {
    if (!sample.may_be_chosen) continue;
    double& least = fastest.try_emplace(sample.isa + sample.question, sample.seconds).first->second;
    least = std::min(least, sample.seconds);
  }
  for (CostSample& sample : samples) {
    const auto found = fastest.find(sample.isa + sample.question);
    if (found == fastest.end()) continue;
    sample.weight = std::sqrt(std::min(1.0, found->second / sample.seconds));
  }
}

const Coefficients* coefficients_for(const std::map<std::string, CoefficientsByKernel>& table,
                                     const CostSample& sample) {
  const auto isa = table.find(sample.isa);
  if (isa == table.end()) return nullptr;
  const auto found = isa->second.find(sample.kernel);
  return found == isa->second.end() ? nullptr : &found->second;
}

}  // namespace

double predicted_seconds(const CostSample& sample, const Coefficients& coefficients) {
  return estimated_seconds(sample.terms, coefficients);
}

Coefficients fit_coefficients(const std::vector<const CostSample*>& rows, const Coefficients& prior,
                              double rows_of_prior) {
  double weight = 0;
  for (const CostSample* row : rows) weight += row->weight;
  const double share = kPull + rows_of_prior / weight;
  Coefficients c = prior;
  std::vector<Row> linear(rows.size());
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      // log(p / t) at p + dp is log(p / t) + dp / p: rows divided by p, whose target is 1 -
      // log(p/t).
      const double p = std::max(predicted_seconds(*rows[i], c), 1e-3 * rows[i]->seconds);
      const double error = std::log(p / rows[i]->seconds);
      linear[i] = {rows[i]->terms, 1 - std::clamp(error, -1.0, 1.0),
                   rows[i]->weight * std::min(1.0, kOutlier / std::max(std::abs(error), 1e-9))};
      for (double& a : linear[i].a) a /= p;
    }
    solve(linear, prior, share, c);
  }
  return c;
}

std::map<std::string, CoefficientsByKernel> fit_table(std::vector<CostSample> samples) {
  set_weights(samples);
  using Rows = std::vector<const CostSample*>;
  std::map<std::string, std::map<std::string, std::map<std::string, Rows>>> all;
  for (const CostSample& sample : samples) {
    if (sample.held_out) continue;
    all[sample.isa][without_schedule(sample.kernel)][sample.kernel].push_back(&sample);
  }
  std::map<std::string, CoefficientsByKernel> out;
  for (const auto& [isa, algorithms] : all) {
    for (const auto& [algorithm, kernels] : algorithms) {
      Rows together;
      for (const auto& [kernel, rows] : kernels) {
        together.insert(together.end(), rows.begin(), rows.end());
      }
      if (together.size() < kLeastRows) continue;
      const Coefficients prior =
          fit_coefficients(together, default_coefficients(together[0]->device()));
      out[isa][algorithm] = prior;
      if (kernels.size() == 1 && kernels.contains(algorithm)) continue;
      for (const auto& [kernel, rows] : kernels) {
        out[isa][kernel] = fit_coefficients(rows, prior, kRowsOfPrior);
      }
    }
  }
  return out;
}

FitReport report_of(const std::vector<CostSample>& samples,
                    const std::map<std::string, CoefficientsByKernel>& table) {
  struct Choice {
    const CostSample *chosen = nullptr, *fastest = nullptr;
    double least = 0;
    int timed = 0;
  };
  FitReport out;
  std::vector<double> errors;
  std::map<std::string, Choice> choices;
  for (const CostSample& sample : samples) {
    const Coefficients* const of = coefficients_for(table, sample);
    if (!sample.held_out || of == nullptr) continue;
    const double predicted = predicted_seconds(sample, *of);
    errors.push_back(std::abs(std::log(predicted / sample.seconds)));
    if (!sample.may_be_chosen) continue;
    Choice& choice = choices[sample.isa + " " + sample.question];
    ++choice.timed;
    if (choice.chosen == nullptr || predicted < choice.least) {
      choice.chosen = &sample;
      choice.least = predicted;
    }
    if (choice.fastest == nullptr || sample.seconds < choice.fastest->seconds) {
      choice.fastest = &sample;
    }
  }
  std::size_t within = 0;
  for (const auto& [question, choice] : choices) {
    if (choice.timed < 2) continue;
    const double ratio = choice.chosen->seconds / choice.fastest->seconds;
    ++out.questions;
    within += ratio <= 1.1 ? 1 : 0;
    if (ratio <= out.worst) continue;
    out.worst = ratio;
    out.worst_question = question;
    out.worst_choice = choice.chosen->algorithm;
    out.worst_fastest = choice.fastest->algorithm;
  }
  out.rows = errors.size();
  out.median_error = quantile(errors, 0.5);
  out.high_error = quantile(errors, 0.9);
  if (out.questions > 0) {
    out.within_10_percent = static_cast<double>(within) / static_cast<double>(out.questions);
  }
  return out;
}

std::string samples_text(const std::vector<CostSample>& samples) {
  std::string out = Json{{"format", kFormat}}.dump() + "\n";
  for (const CostSample& one : samples) {
    Json terms = Json::object();
    const std::span<const CostTerm> names = cost_terms(one.device());
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (one.terms[i] > 0) terms[names[i].name] = one.terms[i];
    }
    out += Json{{"isa", one.isa},
                {"kernel", one.kernel},
                {"algorithm", one.algorithm},
                {"question", one.question},
                {"held_out", one.held_out},
                {"may_be_chosen", one.may_be_chosen},
                {"seconds", one.seconds},
                {"terms", terms}}
               .dump() +
           "\n";
  }
  return out;
}

std::vector<CostSample> parse_samples(const std::string& text, const std::string& name) {
  std::vector<CostSample> out;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    try {
      const Json one = Json::parse(line);
      if (number == 1) {
        CONVSCOPE_CHECK(one.at("format") == kFormat, "tune", "expected the format '", kFormat, "'");
        continue;
      }
      CostSample sample{.isa = one.at("isa"),
                        .kernel = one.at("kernel"),
                        .algorithm = one.at("algorithm"),
                        .question = one.at("question"),
                        .held_out = one.at("held_out"),
                        .may_be_chosen = one.at("may_be_chosen"),
                        .seconds = one.at("seconds")};
      CONVSCOPE_CHECK(sample.seconds > 0, "tune", "expected seconds above 0");
      const std::span<const CostTerm> names = cost_terms(sample.device());
      for (std::size_t i = 0; i < names.size(); ++i) {
        sample.terms[i] = one.at("terms").value(names[i].name, 0.0);
      }
      out.push_back(std::move(sample));
    } catch (const std::exception& failure) {
      fail(ErrorKind::kInvalid, "tune",
           cat("expected samples of `convscope tune --samples` in ", name, ", got in line ", number,
               ": ", json_problem(failure.what())));
    }
  }
  return out;
}

}  // namespace convscope
