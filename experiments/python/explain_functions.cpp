// SPDX-License-Identifier: Apache-2.0
// explain_functions.cpp: convscope.explain() for a config, or for one problem.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "experiments/config/experiment_config.h"
#include "experiments/explain/answer.h"
#include "experiments/operators/operator_table.h"
#include "experiments/python/arguments.h"
#include "experiments/python/functions.h"
#include "experiments/python/problems.h"
#include "framework/parallel.h"
#include "layers/sparse_conv/algorithm.h"

namespace convscope::python {

std::shared_ptr<const OperatorUse> use_of(const std::string& operation, const nb::object& given,
                                          const std::string& algorithm) {
  const AlgorithmPolicy policy{
      .forward = algorithm, .backward_data = algorithm, .backward_weight = algorithm};
  if (nb::isinstance<SparseConvProblem>(given)) {
    return operator_use_of(nb::cast<const SparseConvProblem&>(given), policy);
  }
  const auto problem = nb::cast<std::string>(given);
  std::vector<std::string> names;  // of operators with problems that a text describes
  for (const auto& [name, entry] : operator_table().entries()) {
    if (!entry.use) continue;
    if (name == operation) return entry.use(problem, policy);
    names.push_back(name);
  }
  fail("explain", cat("expected a problem of ", join_or(names), ", got one of '", operation,
                      "'; of sparse_conv, name a SparseMap and w"));
}

DType dtype_of_name(const std::string& name) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  return DType::f32;
}

namespace {

std::string explain_a_problem(const std::string& operation, const nb::object& problem,
                              const std::string& algorithm, const std::string& device_name) {
  const Device device = Device::parse(device_name);
  backend_of(device);
  const std::shared_ptr<const OperatorUse> use = use_of(operation, problem, algorithm);
  const nb::gil_scoped_release without_lock;
  measure_before(algorithm);
  const DeviceTurn turn(device);  // a map may build its tables there
  return problem_text(use, device);
}

// Sets the number of threads to the config's, because the estimates depend on it.
class ThreadsOf {
 public:
  explicit ThreadsOf(std::int64_t threads) { set_num_threads(static_cast<int>(threads)); }
  ~ThreadsOf() { set_num_threads(before_); }
  ThreadsOf(const ThreadsOf&) = delete;
  ThreadsOf& operator=(const ThreadsOf&) = delete;

 private:
  int before_ = num_threads();
};

// Returns the text of `convscope explain`. An algorithm that refuses is listed in the text; it does
// not raise an error.
std::string explain_a_config(const std::string& config_name,
                             const std::vector<std::string>& overrides,
                             const std::vector<std::string>& layers, bool all, bool steps,
                             bool graph) {
  const nb::gil_scoped_release without_lock;
  const ExperimentConfig config = load_config(config_name, overrides);
  measure_before("auto");
  const ThreadsOf threads(config.threads);
  const Explanation explanation = explain_config(config);
  return answer_text(explanation, {layers, all, steps, graph});
}

std::string problem_of_sizes(const std::string& operation, const nb::object& x, const nb::object& w,
                             const nb::object& stride, const nb::object& padding,
                             const nb::object& dilation, std::int64_t groups,
                             const nb::object& output_padding, const std::string& precision,
                             const std::string& type) {
  const ConvWords words{stride, padding, dilation, groups, precision};
  const bool is_transposed = operation == Operator<ConvTranspose2dProblem>::kOperation;
  const char* const name = is_transposed ? "conv_transpose2d" : "conv2d";
  const Shape x_shape = shape_of(x, name, "x"), w_shape = shape_of(w, name, "w");
  const DType dtype = dtype_of_name(type);
  if (is_transposed) {
    const ConvTranspose2dParams params = transposed_params_of(words, output_padding);
    return conv_transpose2d_problem(x_shape, w_shape, params, dtype).text();
  }
  CONVSCOPE_CHECK(output_padding.equal(nb::int_(0)), operation,
                  "expected output_padding only with operation=\"conv_transpose2d\"");
  return conv2d_problem(x_shape, w_shape, params_of(words, name), dtype).text();
}

}  // namespace

void add_explain(nb::module_& module) {
  using namespace nb::literals;  // NOLINT(google-build-using-namespace): "x"_a
  module.def("_explain_problem", explain_a_problem, "operation"_a, "problem"_a, "algorithm"_a,
             "device"_a);
  module.def("_explain_config", explain_a_config, "config"_a, "overrides"_a, "layers"_a, "all"_a,
             "steps"_a, "graph"_a);
  module.def("_problem_text", problem_of_sizes, "operation"_a, "x"_a, "w"_a, "stride"_a,
             "padding"_a, "dilation"_a, "groups"_a, "output_padding"_a, "precision"_a, "type"_a);
}

}  // namespace convscope::python
