// SPDX-License-Identifier: Apache-2.0
// sparse_conv_functions.cpp: convscope.sparse_conv and its gradients.
#include <nanobind/stl/string.h>

#include "experiments/python/functions.h"
#include "experiments/python/problems.h"
#include "experiments/python/sparse_map.h"
#include "layers/sparse_conv/sparse_conv.h"

namespace convscope::python {
namespace {

constexpr const char* kOperation = "sparse_conv";

// Rows of x, y and their gradients are in the order of the user's sites.
class SparseConvCall final : public OperatorCall<SparseConvProblem> {
 public:
  SparseConvCall(const MapOfPython& map, std::initializer_list<ArrayArgument> arrays,
                 ComputePrecision precision)
      : OperatorCall(arrays, precision), map_(map) {
    set_problem(sparse_conv_problem(map.map, x().shape, at("w").shape, precision, x().dtype));
  }

 private:
  Tensor stored(std::string_view name, const Array& array) const override {
    const SparseMap& map = *map_.map;
    if (name != "x" && name != "dy") return OperatorCall::stored(name, array);
    const SparseSites& sites = name == "x" ? *map.in_sites() : *map.out_sites();
    return rows_in_key_order(array, map, sites, problem().dtype, device());
  }
  Tensor shown(std::string_view name, const Tensor& result) const override {
    const SparseMap& map = *map_.map;
    if (name != "y" && name != "dx") return OperatorCall::shown(name, result);
    return rows_in_users_order(result, map, name == "dx" ? *map.in_sites() : *map.out_sites(), x());
  }
  // The map has the choices, because each choice keeps the map alive.
  Choice<SparseConvProblem> choice(Direction direction) const override {
    const std::lock_guard lock(map_.choices->one_at_a_time);
    map_.used = device();
    return chosen(map_.choices->by_word, algorithm(), problem(), direction, device());
  }

  const MapOfPython& map_;
};

nb::object sparse_conv_of_python(const nb::object& x, const nb::object& w, const nb::object& b,
                                 const MapOfPython& map, const std::string& algorithm,
                                 const nb::object& device, const std::string& precision) {
  SparseConvCall call(map, {{"x", x}, {"w", w}, {"b", b, /*is_required=*/false}},
                      precision_of(precision, kOperation));
  return call.y(algorithm, device);
}

nb::object sparse_conv_backward(const nb::object& dy, const nb::object& x, const nb::object& w,
                                const MapOfPython& map, const std::string& algorithm,
                                const nb::object& device, const std::string& precision,
                                const nb::object& needs) {
  static const Names gradients = {"dx", "dw", "db"};
  check_needs(needs, gradients, kOperation);
  SparseConvCall call(map, {{"dy", dy}, {"x", x}, {"w", w}}, precision_of(precision, kOperation));
  return call.gradients(gradients, needs, algorithm, device);
}

// The problem for algorithms() and explain(): a map and sizes, because a text cannot describe a
// map.
SparseConvProblem problem_of_sizes(const MapOfPython& map, const nb::object& w,
                                   const std::string& precision, const std::string& type) {
  const Shape shape = shape_of(w, kOperation, "w");
  const Shape x = {map.map->in_sites()->count(), shape.rank() < 2 ? 1 : shape[1]};
  return sparse_conv_problem(map.map, x, shape, precision_of(precision, kOperation),
                             dtype_of_name(type));
}

}  // namespace

void add_sparse_conv(nb::module_& module) {
  using namespace nb::literals;  // NOLINT(google-build-using-namespace): "x"_a
  add_sparse_map(module);
  module.def(
      "_sparse_map_of_call",
      [](const nb::object& sites, const nb::object& w, const nb::object& stride,
         const nb::object& padding, const nb::object& dilation, bool submanifold, bool inverse,
         const nb::object& extent, const nb::object& batch) {
        return map_of_call(sites, w,
                           {.stride = stride,
                            .padding = padding,
                            .dilation = dilation,
                            .submanifold = submanifold,
                            .inverse = inverse,
                            .extent = extent,
                            .batch = batch});
      },
      "sites"_a.none(), "w"_a.none(), "stride"_a, "padding"_a.none(), "dilation"_a, "submanifold"_a,
      "inverse"_a, "extent"_a.none(), "batch"_a.none());
  nb::class_<SparseConvProblem>(module, "_SparseProblem", "A map, channels, and a type.");
  module.def("_sparse_problem", problem_of_sizes, "map"_a, "w"_a, "precision"_a, "type"_a);
  module.def("_sparse_conv", sparse_conv_of_python, "x"_a.none(), "w"_a.none(), "b"_a.none(),
             "map"_a, nb::kw_only(), "algorithm"_a, "device"_a.none(), "precision"_a,
             "y [m,K], rows in the order of the map's out_sites.");
  module.def("_sparse_conv_backward", sparse_conv_backward, "dy"_a.none(), "x"_a.none(),
             "w"_a.none(), "map"_a, nb::kw_only(), "algorithm"_a, "device"_a.none(), "precision"_a,
             "needs"_a.none(), "(dx, dw, db); those that `needs` does not name are None.");
}

}  // namespace convscope::python
