// SPDX-License-Identifier: Apache-2.0
// loss_functions.cpp: the losses of a training on Python's arrays, with their gradients.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "experiments/config/experiment_config.h"
#include "experiments/python/arguments.h"
#include "experiments/python/functions.h"
#include "layers/layer_types.h"
#include "layers/losses/loss.h"

namespace convscope::python {
namespace {

// One loss of a sum: its type, and its weight and options, which are numbers or lists of numbers.
using Term = std::tuple<std::string, std::map<std::string, double>,
                        std::map<std::string, std::vector<double>>>;

// Returns the weight of a term as a config accepts it.
const OptionField& weight_field() {
  static const OptionField field = [] {
    const std::vector<ConfigKey> keys = config_keys();
    return std::ranges::find(keys, "train.loss[].weight", &ConfigKey::path)->field;
  }();
  return field;
}

Loss loss_of(const std::vector<Term>& terms) {
  std::vector<LossTerm> out;
  for (const auto& [type, numbers, lists] : terms) {
    LossTerm& term = out.emplace_back();
    term.type = type;
    Options weight;
    const auto set = [&](const std::string& name, const OptionValue& value) {
      (name == "weight" ? weight : term.options).set(name, value);
    };
    for (const auto& [name, value] : numbers) set(name, value);
    for (const auto& [name, value] : lists) set(name, value);
    term.weight = complete_options({weight_field()}, weight, type).number("weight");
  }
  return Loss(std::move(out));
}

// Returns (loss, dx); dx is None unless wanted.
nb::tuple loss(const nb::object& x, const nb::object& labels, const std::vector<Term>& terms,
               bool wants_gradient) {
  const Array scores = array_of(x, "loss", "x");
  const Array classes = array_of(labels, "loss", "labels", {"i32", "int32"});
  CONVSCOPE_CHECK(scores.dtype == DType::f32 || scores.dtype == DType::f64, "loss",
                  "expected x of type f32 or f64, got ", name_of(scores.dtype));
  CONVSCOPE_CHECK(classes.device == scores.device, "loss",
                  "expected x and labels on one device, got x ", scores.tensor.str(),
                  " and labels ", classes.tensor.str());
  double value = 0;
  Tensor gradient;
  {
    const nb::gil_scoped_release without_lock;
    const DeviceTurn turn(scores.device);
    const Variable logits(scores.tensor, wants_gradient);
    const Variable result = loss_of(terms)(logits, classes.tensor);
    if (wants_gradient) result.backward();
    value = result.value().item();
    if (wants_gradient) gradient = logits.grad();
    turn.finish();
  }
  return nb::make_tuple(
      value, wants_gradient ? to_python(gradient, scores.library) : nb::object(nb::none()));
}

}  // namespace

void add_losses(nb::module_& module) {
  using namespace nb::literals;  // NOLINT(google-build-using-namespace): "x"_a
  module.def("_loss", loss, "x"_a.none(), "labels"_a.none(), "terms"_a, "wants_gradient"_a,
             "(loss, dx); dx is None unless wanted.");
  module.def(
      "loss_names", [] { return loss_types().names(); }, "The losses that loss() knows.");
}

}  // namespace convscope::python
