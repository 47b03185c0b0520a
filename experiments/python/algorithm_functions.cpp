// SPDX-License-Identifier: Apache-2.0
// algorithm_functions.cpp: convscope.algorithms(): the algorithms of an operator, and whether they
// accept a problem.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "experiments/operators/operator_table.h"
#include "experiments/python/arguments.h"
#include "experiments/python/functions.h"
#include "experiments/python/problems.h"

namespace convscope::python {
namespace {

nb::list algorithms(const std::string& operation, const std::string& device) {
  const OperatorEntry* const entry = operator_table().find(operation);
  if (entry == nullptr) {
    fail("algorithms",
         cat("expected ", join_or(operator_table().names()), ", got '", operation, "'"));
  }
  nb::list out;
  for (const DeviceType type : {DeviceType::cpu, DeviceType::cuda}) {
    if (!device.empty() && Device::parse(device).type != type) continue;
    // The algorithms of a device register when its library is loaded.
    if (type == DeviceType::cuda && !status_of(type).available) continue;
    for (const AlgorithmFacts& algorithm : entry->algorithms(type)) {
      nb::dict one;
      one["name"] = algorithm.name;
      one["operation"] = operation;
      one["device"] = std::string(name_of(type));
      one["directions"] = nb::tuple(nb::cast(algorithm.directions));
      one["idea"] = algorithm.idea;
      one["paper"] = algorithm.paper;
      one["auto"] = algorithm.auto_ok;
      out.append(one);
    }
  }
  return out;
}

// Returns the answers of all algorithms for the problem: a row for each algorithm and direction,
// sorted by estimated time.
nb::list verdicts(const std::string& operation, const nb::object& problem,
                  const std::string& algorithm, const std::string& device_name) {
  const Device device = Device::parse(device_name);
  backend_of(device);
  const std::shared_ptr<const OperatorUse> use = use_of(operation, problem, algorithm);
  std::vector<std::pair<Direction, Verdict>> rows;
  {
    const nb::gil_scoped_release without_lock;
    measure_before(algorithm);
    const DeviceTurn turn(device);
    for (const Direction direction : kDirections) {
      for (Verdict& verdict : use->explain(direction, device)) {
        rows.emplace_back(direction, std::move(verdict));
      }
    }
  }
  nb::list out;
  for (const auto& [direction, verdict] : rows) {
    nb::dict one;
    one["name"] = verdict.algorithm;
    one["direction"] = std::string(name_of(direction));
    one["accepts"] = verdict.accepts;
    one["reason"] = verdict.reason;
    one["estimated_ms"] =
        verdict.accepts ? nb::object(nb::float_(verdict.estimated_ms)) : nb::none();
    one["workspace_bytes"] = verdict.workspace_bytes;
    one["chosen"] = verdict.chosen;
    out.append(one);
  }
  return out;
}

}  // namespace

void add_algorithms(nb::module_& module) {
  using namespace nb::literals;  // NOLINT(google-build-using-namespace): "x"_a
  module.def("_algorithms", algorithms, "operation"_a, "device"_a);
  module.def("_verdicts", verdicts, "operation"_a, "problem"_a, "algorithm"_a, "device"_a);
  module.def(
      "device_status",
      [](const std::string& device) {
        const DeviceStatus& status = status_of(Device::parse(device).type);
        return status.available ? nb::object(nb::none())
                                : nb::object(nb::str(status.reason.c_str()));
      },
      "device"_a, nb::sig("def device_status(device: str) -> str | None"),
      "Returns why a device (\"cuda\") is not available, or None if it is.");
}

}  // namespace convscope::python
