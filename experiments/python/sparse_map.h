// SPDX-License-Identifier: Apache-2.0
// sparse_map.h: convscope.SparseMap: the sites of a sparse convolution and their neighbour map. All
// layers, directions and calls with the same sites and kernel can share one map.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "experiments/python/operator_call.h"
#include "layers/sparse_conv/algorithm.h"

namespace convscope::python {

// Caches which algorithm runs for each problem on a map. The cache is stored in the Python object
// and not in the map, because each cached choice keeps the map alive.
struct MapChoices {
  std::mutex one_at_a_time;
  ChoicesByWord<SparseConvProblem> by_word;
};

// Python's class SparseMap. In Python, rows have the order of the sites that the user passed.
struct MapOfPython {
  SharedMap map;
  ArrayLibrary library = ArrayLibrary::numpy;  // of the given sites, and their device
  Device device;
  // The device of the last call. The algorithms have built the map's tables there, and the number
  // of pairs is counted from these tables.
  mutable Device used = {};
  std::shared_ptr<MapChoices> choices = std::make_shared<MapChoices>();
};

// Arguments as passed in Python; None is the default.
struct MapWords {
  nb::handle stride, padding, dilation;
  bool submanifold = false, inverse = false;
  nb::handle extent, batch;
};

// Returns the map of a call. If `sites` is a SparseMap, checks that its kernel fits w. Otherwise
// makes a map from the sites [n,1+D] and the kernel size of w.
MapOfPython map_of_call(const nb::object& sites, nb::handle w, const MapWords& words);

// Users pass rows in the order of their sites, and kernels need them in key order.
// rows_in_key_order() returns the rows [n,...] of an array in key order, in the given type and on
// the given device. rows_in_users_order() returns the rows of a result in the user's order, in the
// type and on the device of `like`. `sites` are the input or output sites of the map, whichever the
// rows belong to. On a GPU the map caches the order.
Tensor rows_in_key_order(const Array& rows, const SparseMap& map, const SparseSites& sites,
                         DType dtype, Device device);
Tensor rows_in_users_order(const Tensor& rows, const SparseMap& map, const SparseSites& sites,
                           const Array& like);

}  // namespace convscope::python
