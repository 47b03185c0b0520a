// SPDX-License-Identifier: Apache-2.0
// sparse_conv_functions.cpp: convscope.sparse_conv and its gradients.
#include <nanobind/stl/string.h>

#include "experiments/python/arguments.h"
#include "experiments/python/functions.h"
#include "experiments/python/problems.h"
#include "experiments/python/sparse_map.h"
#include "layers/dispatch/execute.h"
#include "layers/sparse_conv/sparse_conv.h"
#include "layers/sparse_rows/row_sums.h"

namespace convscope::python {
namespace {

constexpr const char* kOperation = "sparse_conv";

// The checked array arguments of a call. `b` and `dy` may be missing.
struct Inputs {
  Array x, w;
  std::optional<Array> b, dy;
  SparseConvProblem problem;
};

Inputs inputs_of(const MapOfPython& map, const nb::object& x, const nb::object& w,
                 const nb::object& b, const nb::object& dy, bool forward,
                 ComputePrecision precision) {
  Inputs in{.x = array_of(x, kOperation, "x"),
            .w = array_of(w, kOperation, "w"),
            .b = array_or_none(b, kOperation, "b"),
            .dy = forward ? std::nullopt : std::optional(array_of(dy, kOperation, "dy")),
            .problem = {}};
  check_type(in.x, precision, kOperation);
  check_beside(in.w, in.x, kOperation, "w");
  in.problem = sparse_conv_problem(map.map, in.x.shape, in.w.shape, precision, in.x.dtype);
  if (in.b) {
    check_beside(*in.b, in.x, kOperation, "b");
    check_shape(*in.b, {in.problem.k}, "w has that many kernels", kOperation, "b");
  }
  if (in.dy) {
    check_beside(*in.dy, in.x, kOperation, "dy");
    check_shape(*in.dy, in.problem.y_shape(), "that is y", kOperation, "dy");
  }
  return in;
}

void check_word(const std::string& algorithm, Device device) {
  const std::vector<std::string> names = sparse_conv_algorithms(device.type).names();
  if (names.empty()) {
    fail(ErrorKind::kUnavailable, kOperation,
         cat("expected device cpu because there is no algorithm of sparse convolution for ",
             name_of(device.type), " in this build, got ", device.str()));
  }
  check_policy(kOperation, algorithm, device, names);
}

// Returns the algorithm that `algorithm` selects for the problem. The map caches the result.
Choice<SparseConvProblem> chosen_with(const MapOfPython& map, const std::string& algorithm,
                                      const SparseConvProblem& z, Direction direction,
                                      Device device) {
  MapChoices& choices = *map.choices;
  const std::lock_guard lock(choices.one_at_a_time);
  auto at = choices.by_algorithm.find(algorithm);
  if (at == choices.by_algorithm.end()) {
    check_word(algorithm, device);
    const AlgorithmPolicy policy{
        .forward = algorithm, .backward_data = algorithm, .backward_weight = algorithm};
    at = choices.by_algorithm.emplace(algorithm, make_ref<ChoiceCache<SparseConvProblem>>(policy))
             .first;
  }
  return at->second->get(z, direction, device, WeightUse::once);
}

Tensor computed(const MapOfPython& map, const Inputs& in, const SparseConvTensors& tensors,
                const std::string& algorithm, Direction direction, Device device) {
  const SparseConvProblem& z = in.problem;
  Operands operands = sparse_conv_operands(direction, tensors);
  operands.out[0] = Tensor::empty(z.operands(direction).outputs[0].shape, z.dtype, device);
  execute(chosen_with(map, algorithm, z, direction, device), z, direction, operands);
  return operands.out[0].values;
}

// Returns db, the sum of all rows of dy, computed in f64. The order of the rows has no effect.
Tensor bias_gradient(const Array& dy, std::int64_t kernels, Device device) {
  const Tensor sums = Tensor::empty({kernels}, DType::f64, device);
  const DType type = dy.dtype == DType::f64 ? DType::f64 : DType::f32;
  row_sums(dy.tensor.to(device).to(type), sums);
  return sums.to(Device{}).to(dy.dtype).to(dy.device);
}

nb::object sparse_conv_of_python(const MapOfPython& map, const nb::object& x, const nb::object& w,
                                 const nb::object& b, const std::string& algorithm,
                                 const nb::object& device_in, const std::string& precision_in) {
  const ComputePrecision precision = precision_of(precision_in, kOperation);
  const Inputs in = inputs_of(map, x, w, b, nb::none(), /*forward=*/true, precision);
  const Device device = device_of(device_in, in.x);
  check_device(in.x.dtype, precision, device, kOperation);
  map.used = device;
  Tensor y;
  {
    const nb::gil_scoped_release without_lock;
    measure_before(algorithm);
    const DeviceTurn turn(device);
    const SparseConvProblem& z = in.problem;
    const SparseConvTensors tensors{
        .x = rows_in_key_order(in.x, *z.map, *z.map->in_sites(), z.dtype, device),
        .w = in.w.tensor.to(device).to(z.dtype),
        .b = in.b ? in.b->tensor.to(device).to(z.dtype) : Tensor(),
        .dy = {}};
    y = rows_in_users_order(computed(map, in, tensors, algorithm, Direction::forward, device),
                            *z.map, *z.map->out_sites(), in.x);
    turn.finish();
  }
  return to_python(y, in.x.library);
}

nb::object sparse_conv_backward(const MapOfPython& map, const nb::object& dy, const nb::object& x,
                                const nb::object& w, const std::string& algorithm,
                                const nb::object& device_in, const std::string& precision_in,
                                const nb::object& needs) {
  check_needs(needs, {"dx", "dw", "db"}, kOperation);
  const ComputePrecision precision = precision_of(precision_in, kOperation);
  const Inputs in = inputs_of(map, x, w, nb::none(), dy, /*forward=*/false, precision);
  const Device device = device_of(device_in, in.x);
  check_device(in.x.dtype, precision, device, kOperation);
  map.used = device;
  const bool wants_dx = wants(needs, "dx");
  const bool wants_dw = wants(needs, "dw");
  const bool wants_db = wants(needs, "db");
  Tensor dx, dw, db;
  {
    const nb::gil_scoped_release without_lock;
    measure_before(algorithm);
    const DeviceTurn turn(device);
    const SparseConvProblem& z = in.problem;
    SparseConvTensors tensors;
    if (wants_dx || wants_dw) {
      tensors.dy = rows_in_key_order(*in.dy, *z.map, *z.map->out_sites(), z.dtype, device);
    }
    if (wants_dx) {
      tensors.w = in.w.tensor.to(device).to(z.dtype);
      dx = rows_in_users_order(
          computed(map, in, tensors, algorithm, Direction::backward_data, device), *z.map,
          *z.map->in_sites(), in.x);
    }
    if (wants_dw) {
      tensors.x = rows_in_key_order(in.x, *z.map, *z.map->in_sites(), z.dtype, device);
      dw = computed(map, in, tensors, algorithm, Direction::backward_weight, device);
      dw = dw.to(in.x.dtype).to(in.x.device);
    }
    if (wants_db) db = bias_gradient(*in.dy, z.k, device);
    turn.finish();
  }
  const auto given = [&](const Tensor& tensor) {
    return tensor.defined() ? to_python(tensor, in.x.library) : nb::none();
  };
  return nb::make_tuple(given(dx), given(dw), given(db));
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
  module.def("_sparse_conv", sparse_conv_of_python, "map"_a, "x"_a.none(), "w"_a.none(),
             "b"_a.none(), "algorithm"_a, "device"_a.none(), "precision"_a,
             nb::sig("def _sparse_conv(map: SparseMap, x: ArrayT, w: ArrayT, b: ArrayT | None, "
                     "algorithm: str, device: str | None, precision: str) -> ArrayT"),
             "y [m,K], rows in the order of the map's out_sites.");
  module.def("_sparse_conv_backward", sparse_conv_backward, "map"_a, "dy"_a.none(), "x"_a.none(),
             "w"_a.none(), "algorithm"_a, "device"_a.none(), "precision"_a, "needs"_a.none(),
             nb::sig("def _sparse_conv_backward(map: SparseMap, dy: ArrayT, x: ArrayT, w: ArrayT, "
                     "algorithm: str, device: str | None, precision: str, needs: Sequence[str] | "
                     "None) -> tuple[ArrayT | None, ArrayT | None, ArrayT | None]"),
             "(dx, dw, db); those that `needs` does not name are None.");
}

}  // namespace convscope::python
