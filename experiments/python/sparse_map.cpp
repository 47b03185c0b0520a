// SPDX-License-Identifier: Apache-2.0
// sparse_map.cpp: convscope.SparseMap: sites and kernel of a sparse convolution, made once.
#include "experiments/python/sparse_map.h"

#include <nanobind/stl/string.h>

#include <algorithm>

#include "experiments/python/arguments.h"
#include "experiments/python/errors.h"
#include "experiments/python/functions.h"
#include "layers/sparse_rows/image_rows.h"

namespace convscope::python {
namespace {

constexpr const char* kOperation = "sparse_conv";

// Converts an argument to sizes along T, H, W. A 2-D argument has no T, so its first size is
// `otherwise`.
std::array<std::int64_t, 3> per_axis(nb::handle given, const char* name, int rank,
                                     std::int64_t otherwise) {
  std::array<std::int64_t, 3> out = {otherwise, otherwise, otherwise};
  const auto axes = static_cast<std::size_t>(rank);
  const auto values = whole_numbers(given, kOperation, name, {axes});
  for (std::size_t d = 0; d < axes; ++d) {
    out[3 - axes + d] = values.size() == 1 ? values[0] : values[d];
  }
  return out;
}

// Sites, which the user passed as an array or as the output sites of another map. `library` and
// `device` are those of that array or map.
struct Given {
  SharedSites sites;
  ArrayLibrary library;
  Device device;
};

Given sites_of(const nb::object& object, const MapWords& words) {
  if (nb::isinstance<MapOfPython>(object)) {
    const auto& before = nb::cast<const MapOfPython&>(object);
    if (!words.extent.is_none() || !words.batch.is_none()) {
      fail(kOperation, cat("expected no extent and no batch because the sites are those of a map, "
                           "which knows its grid: ",
                           before.map->out_sites()->grid().text()));
    }
    return {before.map->out_sites(), before.library, before.device};
  }
  const Array array = array_of(object, kOperation, "sites", {.names = "i32", .example = "int32"});
  Tensor coordinates;
  {
    const nb::gil_scoped_release without_lock;
    const DeviceTurn turn(array.device);
    coordinates = array.tensor.to(Device{});
    turn.finish();
  }
  SiteGrid grid = SiteGrid::around(coordinates);
  if (!words.extent.is_none()) grid.extent = per_axis(words.extent, "extent", grid.rank, 1);
  if (!words.batch.is_none()) {
    grid.batch = whole_numbers(words.batch, kOperation, "batch", {}).front();
  }
  const nb::gil_scoped_release without_lock;
  return {std::make_shared<const SparseSites>(coordinates, grid), array.library, array.device};
}

MapOfPython made(const Given& given, const std::array<std::int64_t, 3>& size,
                 const MapWords& words) {
  if (words.submanifold && words.inverse) {
    fail(kOperation, "expected submanifold or inverse, got both");
  }
  if (words.submanifold && !words.padding.is_none()) {
    fail(kOperation,
         cat("expected no padding with submanifold because the kernel's centre is on its site, got "
             "padding ",
             nb::cast<std::string>(nb::repr(words.padding))));
  }
  const int rank = given.sites->grid().rank;
  SparseKernel kernel{.size = size,
                      .stride = per_axis(words.stride, "stride", rank, 1),
                      .dilation = per_axis(words.dilation, "dilation", rank, 1)};
  if (!words.padding.is_none()) kernel.padding = per_axis(words.padding, "padding", rank, 0);
  const nb::gil_scoped_release without_lock;
  SharedMap map = words.submanifold ? SparseMap::submanifold(given.sites, kernel)
                                    : SparseMap::strided(given.sites, kernel);
  if (words.inverse) map = SparseMap::inverse(map);
  return {.map = map, .library = given.library, .device = given.device};
}

void check_unsaid(const MapWords& words, const SparseMap& map) {
  const auto is_one = [](nb::handle given) {
    std::int64_t value = 0;
    return nb::try_cast<std::int64_t>(given, value, /*convert=*/false) && value == 1;
  };
  if (is_one(words.stride) && is_one(words.dilation) && words.padding.is_none() &&
      !words.submanifold && !words.inverse && words.extent.is_none() && words.batch.is_none()) {
    return;
  }
  fail(kOperation, cat("expected no stride, padding, dilation, submanifold, inverse, extent and "
                       "batch together with a map, which has them: ",
                       name_of(map.kind()), ",", map.kernel().text(map.rank())));
}

// Returns the order of the sites as an i32 tensor [n,2] on a GPU. Row i is (j, 0): the i-th site in
// key order is row j of the user's arrays. The map caches this tensor. Returns an empty tensor when
// the user's order is the key order.
Tensor order_on(const SparseMap& map, const SparseSites& sites, Device device) {
  const std::string name =
      cat("rows of Python, ", static_cast<const void*>(&sites), ", ", device.str());
  return *map.form<Tensor>(name, [&] {
    const Tensor rows = Tensor::empty({sites.count(), 2}, DType::i32);
    auto* row = rows.data<std::int32_t>();
    for (std::int32_t i = 0; i < sites.count(); ++i, row += 2) row[0] = i, row[1] = 0;
    const Tensor order = sites.in_key_order(rows);
    const bool same = order.raw_data() == rows.raw_data();
    return std::make_shared<const Tensor>(same ? Tensor() : order.to(device));
  });
}

// Views rows of channels as images of one pixel, for the functions that copy images. The type is
// f32 or f64; f32 represents all half-precision values exactly.
Tensor images_of(const Tensor& rows, DType type) {
  return rows.to(type).reshape({rows.dim(0), rows.dim(1), 1});
}
DType copied_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

nb::tuple sizes_of(const std::array<std::int64_t, 3>& sizes, int rank) {
  nb::list out;
  for (int d = 3 - rank; d < 3; ++d) out.append(sizes[static_cast<std::size_t>(d)]);
  return nb::tuple(out);
}

nb::object coordinates(const MapOfPython& self, const SharedSites& sites) {
  Tensor out;
  {
    const nb::gil_scoped_release without_lock;
    const DeviceTurn turn(self.device);
    out = sites->in_users_order(sites->coordinates()).to(self.device);
    turn.finish();
  }
  return to_python(out, self.library);
}

std::int64_t pairs(const MapOfPython& self) {
  const Device used = self.used;
  const nb::gil_scoped_release without_lock;
  const DeviceTurn turn(used);
  return self.map->pairs();
}

std::string text_of(const MapOfPython& self) {
  const SparseMap& map = *self.map;
  return cat("<SparseMap ", name_of(map.kind()), ",", map.kernel().text(map.rank()),
             ",grid=", map.in_sites()->grid().text(), ": ", map.in_sites()->count(), " sites to ",
             map.out_sites()->count(), ">");
}

}  // namespace

MapOfPython map_of_call(const nb::object& sites, nb::handle w, const MapWords& words) {
  // Read only the shape of w where possible, because a tensor with autograd history has a shape but
  // cannot be exported. Objects that have only DLPack are converted to read their shape.
  const Shape shape =
      nb::hasattr(w, "shape") ? shape_of(w, kOperation, "w") : array_of(w, kOperation, "w").shape;
  if (nb::isinstance<MapOfPython>(sites)) {
    const auto& map = nb::cast<const MapOfPython&>(sites);
    check_unsaid(words, *map.map);
    return map;
  }
  const Given given = sites_of(sites, words);
  const int rank = given.sites->grid().rank;
  if (shape.rank() != 2 + rank) {
    fail(kOperation, cat("expected w [K,C,", rank == 3 ? "T," : "", "R,S] because the sites have ",
                         rank, " axes, got w ", shape));
  }
  std::array<std::int64_t, 3> size = {1, 1, 1};
  for (int d = 0; d < rank; ++d) size[static_cast<std::size_t>(3 - rank + d)] = shape[2 + d];
  return made(given, size, words);
}

Tensor rows_in_key_order(const Array& rows, const SparseMap& map, const SparseSites& sites,
                         DType dtype, Device device) {
  if (rows.device.type == DeviceType::cpu || device.type == DeviceType::cpu) {
    return sites.in_key_order(rows.tensor.to(Device{})).to(device).to(dtype);
  }
  const Tensor there = rows.tensor.to(device), order = order_on(map, sites, device);
  if (!order.defined() || there.numel() == 0) return there.to(dtype);
  const DType type = copied_type(rows.dtype);
  const Tensor out = Tensor::empty(rows.shape, type, device);
  image_to_rows_kernel.get(device)(images_of(there, type), order, out);
  return out.to(dtype);
}

Tensor rows_in_users_order(const Tensor& rows, const SparseMap& map, const SparseSites& sites,
                           const Array& like) {
  const Tensor typed = rows.to(like.dtype);
  const Device device = typed.device();
  if (like.device.type == DeviceType::cpu || device.type == DeviceType::cpu) {
    return sites.in_users_order(typed.to(Device{})).to(like.device);
  }
  const Tensor order = order_on(map, sites, device);
  if (!order.defined() || typed.numel() == 0) return typed.to(like.device);
  const DType type = copied_type(like.dtype);
  const Tensor out = Tensor::empty({typed.dim(0), typed.dim(1), 1}, type, device);
  rows_to_image_kernel.get(device)(typed.to(type), order, out);
  return out.reshape(typed.shape()).to(like.dtype).to(like.device);
}

void add_sparse_map(nb::module_& module) {
  using namespace nb::literals;  // NOLINT(google-build-using-namespace): "x"_a
  nb::class_<MapOfPython>(module, "SparseMap",
                          R"(The sites of rows and the pairs of neighbours, for one kernel.

Made once, it replaces `sites` in every call with these sites and this kernel, in each direction and
with any number of channels; tables are made when first needed and kept.

sites        [n,3] (batch, h, w) or [n,4] (batch, t, h, w), int32, in any order, each place once; or
             a SparseMap: its output sites
kernel_size  one number, (R, S) or (T, R, S)
stride, padding, dilation
             one number or one for each axis; padding None: 0
submanifold  outputs are at the sites, the kernel's centre on each; False: wherever the kernel meets
             a site
extent       sizes of the whole image or volume, (H, W) or (T, H, W); None: up to the last site
batch        images or volumes; None: up to that of the last site
)")
      .def(
          "__init__",
          [](MapOfPython* self, const nb::object& sites, const nb::object& kernel_size,
             const nb::object& stride, const nb::object& padding, const nb::object& dilation,
             bool submanifold, const nb::object& extent, const nb::object& batch) {
            const MapWords words{.stride = stride,
                                 .padding = padding,
                                 .dilation = dilation,
                                 .submanifold = submanifold,
                                 .extent = extent,
                                 .batch = batch};
            const Given given = sites_of(sites, words);
            const auto size = per_axis(kernel_size, "kernel_size", given.sites->grid().rank, 1);
            new (self) MapOfPython(made(given, size, words));
          },
          "sites"_a.none(), "kernel_size"_a.none(), "stride"_a = 1, "padding"_a = nb::none(),
          "dilation"_a = 1, nb::kw_only(), "submanifold"_a = false, "extent"_a = nb::none(),
          "batch"_a = nb::none(),
          nb::sig("def __init__(self, sites: object, kernel_size: Axes, stride: Axes = 1, padding: "
                  "Axes | None = None, dilation: Axes = 1, *, submanifold: bool = False, extent: "
                  "Axes | None = None, batch: int | None = None) -> None"))
      .def(
          "inverse",
          [](const MapOfPython& self) {
            return MapOfPython{.map = SparseMap::inverse(self.map),
                               .library = self.library,
                               .device = self.device,
                               .used = self.used};
          },
          "Returns the inverse of a strided map: from its outputs back to its sites, by the same "
          "pairs.")
      .def_prop_ro(
          "kind", [](const MapOfPython& self) { return std::string(name_of(self.map->kind())); },
          "submanifold, strided or inverse.")
      .def_prop_ro(
          "kernel_size",
          [](const MapOfPython& self) {
            return sizes_of(self.map->kernel().size, self.map->rank());
          },
          nb::sig("def kernel_size(self) -> tuple[int, ...]"), "(R, S) or (T, R, S).")
      .def_prop_ro(
          "in_sites",
          [](const MapOfPython& self) { return coordinates(self, self.map->in_sites()); },
          nb::sig("def in_sites(self) -> Any"), "The sites of the rows of x, [n,1+D] int32.")
      .def_prop_ro(
          "out_sites",
          [](const MapOfPython& self) { return coordinates(self, self.map->out_sites()); },
          nb::sig("def out_sites(self) -> Any"),
          "The sites of the rows of y, [m,1+D] int32; computed sites are sorted by batch, t, h, w.")
      .def_prop_ro(
          "in_extent",
          [](const MapOfPython& self) {
            return sizes_of(self.map->in_sites()->grid().extent, self.map->rank());
          },
          nb::sig("def in_extent(self) -> tuple[int, ...]"),
          "Sizes of the image or volume that x represents, (H, W) or (T, H, W).")
      .def_prop_ro(
          "out_extent",
          [](const MapOfPython& self) {
            return sizes_of(self.map->out_sites()->grid().extent, self.map->rank());
          },
          nb::sig("def out_extent(self) -> tuple[int, ...]"),
          "Sizes of the image or volume that y represents.")
      .def_prop_ro("pairs", pairs, "Products of a row of x by a tap: all pairs of neighbours.")
      .def("__repr__", text_of);
}

}  // namespace convscope::python
