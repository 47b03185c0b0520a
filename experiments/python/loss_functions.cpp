// SPDX-License-Identifier: Apache-2.0
// loss_functions.cpp: the losses of a training on Python's arrays, with their gradients.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <tuple>

#include "experiments/python/arguments.h"
#include "experiments/python/functions.h"
#include "layers/losses/loss.h"

namespace convscope::python {
namespace {

// One loss of a sum: its type, its weight, and its options, which are numbers or lists of numbers.
using Term = std::tuple<std::string, double, std::map<std::string, double>,
                        std::map<std::string, std::vector<double>>>;

Loss loss_of(const std::vector<Term>& terms) {
  std::vector<LossTerm> out;
  for (const auto& [type, weight, numbers, lists] : terms) {
    LossTerm& term = out.emplace_back();
    term.type = type;
    term.weight = weight;
    for (const auto& [name, value] : numbers) term.options.set(name, value);
    for (const auto& [name, value] : lists) term.options.set(name, value);
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

  CONVSCOPE_CHECK(classes.device == scores.device, "loss",
                  "expected x and labels on one device, got x ", scores.tensor.str(),
                  " and labels ", classes.tensor.str());
}  // namespace

void add_losses(nb::module_& module) {
  using namespace nb::literals;  // NOLINT(google-build-using-namespace): "x"_a
  module.def("_loss", loss, "x"_a.none(), "labels"_a.none(), "terms"_a, "wants_gradient"_a,
             "(loss, dx); dx is None unless wanted.");
  module.def(
      "loss_names", [] { return loss_types().names(); }, "The losses that loss() knows.");
}

}  // namespace convscope::python
