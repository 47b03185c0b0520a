// SPDX-License-Identifier: Apache-2.0
// op_call.cpp: `convscope op OPERATOR`: an operator and its gradients on NumPy files.
#include "experiments/operators/op_call.h"

#include <algorithm>

#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/run_folder/check_lines.h"
#include "framework/io/npy.h"
#include "framework/io/output_place.h"

namespace convscope {

void OpCall::declare(CommandLine& app) {
  out_["y"];
  for (const OpArray& one : arrays_) {
    CommandOption* const option = app.add_option(cat("--", one.name), in_[one.name], one.help);
    if (one.is_required) option->required();
  }
  app.add_option("--dy", in_["dy"], dy_help_);
  add_options(app);
  app.add_option("--algorithm", algorithm_,
                 "algorithm: auto, measure, check:<a>,<b>, a name, or a list <a>,<b>,auto")
      ->capture_default_str();
  app.add_option("--device", device_name_, "device: cpu, cuda or cuda:<index>")
      ->capture_default_str();
  add_run_options(app);
  app.add_option("--out-y", out_["y"], "output file for y, .npy");
  for (const OpArray& one : arrays_) {
    if (!one.has_gradient) continue;
    app.add_option(cat("--out-d", one.name), out_[cat("d", one.name)],
                   cat("output file for the gradient of ", one.name));
  }
}

bool OpCall::wants_gradients() const {
  return std::ranges::any_of(
      out_, [](const auto& file) { return file.first != "y" && !file.second.empty(); });
}

void OpCall::require_dy() const {
  if (wants_gradients() && !is_given("dy")) {
    fail_usage(command(), "expected --dy because a gradient is asked for");
  }
}

void OpCall::check() const {
  require_dy();
  if (wants_results()) return;
  std::vector<std::string> options = {"--out-y"};
  for (const OpArray& one : arrays_) options.push_back(cat("--out-d", one.name));
  fail_usage(command(), cat("expected ", join_or(options), ", got none"));
}

std::string OpCall::because(const std::string& name) const {
  return name == "dy" ? "that is y" : "it has one number of each kernel";
}

void OpCall::check_call() {
  check();
  device_ = Device::parse(device_name_);
  backend_of(device_);  // fails when it is not available
}

void OpCall::read_arrays() {
  for (const auto& [name, path] : in_) {
    if (path.empty() || (name == "dy" && !wants_gradients())) continue;
    given_[name] = read_npy(path);
  }
}

OpCall::Arrays OpCall::checked_arrays(const OperandSpecs& forward, DType type) const {
  Arrays out;
  const auto take = [&](const std::string& name) {
    if (!given_.contains(name)) return;
    const Tensor& array = given(name);
    const Shape shape = input_shape(forward, name);
    CONVSCOPE_CHECK(array.shape() == shape && array.dtype() == given("x").dtype(), command(),
                    "expected ", name, " ", shape, " of the type of x because ", because(name),
                    ", got ", array.str(), hint(name, array.shape()));
    out[name] = stored(name, array).to(type).to(device_);
  };
  for (const OpArray& one : arrays_) {
    if (one.has_gradient) take(one.name);
  }
  take("dy");
  return out;
}

void OpCall::write(const std::string& result, const Tensor& tensor) const {
  if (!wants(result)) return;
  write_npy(out_.at(result), shown(result, tensor.to(Device{}).to(given("x").dtype())));
}

void OpCall::open_outputs() const {
  for (const std::string& path : other_outputs()) check_output_files({path});
  for (const auto& [result, path] : out_) check_output_files({path});
  measure_this_machine_once();
  forget_check_results();
}

void OpCall::finish() const {
  if (wants("db")) write("db", bias_gradient(given("dy").to(device_)));
  for (const std::string& line : check_lines()) std::cerr << line << "\n";
}

}  // namespace convscope
