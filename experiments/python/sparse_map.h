// SPDX-License-Identifier: Apache-2.0
// sparse_map.h: convscope.SparseMap: the sites of a sparse convolution and their neighbour map. One
// map is used by every layer, direction and call with the same sites and kernel.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "experiments/python/arrays.h"
#include "layers/dispatch/choice_cache.h"
#include "layers/sparse_conv/algorithm.h"

namespace convscope::python {

// The cached choices of algorithms for the problems of a map. It ends with the map's object,
// because a cached choice keeps the map alive.
struct MapChoices {
  std::mutex one_at_a_time;
  std::map<std::string, Ref<ChoiceCache<SparseConvProblem>>, std::less<>> of_word;
};

// Python's class SparseMap. Rows in Python have the order of the given sites.
struct MapOfPython {
  SharedMap map;
  ArrayLibrary library = ArrayLibrary::numpy;  // of the given sites, and their device
  Device device;
  // The last device. Its algorithms may have made tables there, with which pairs are counted.
  mutable Device used = {};
  std::shared_ptr<MapChoices> choices = std::make_shared<MapChoices>();
};

// As given in Python; None: the default.
struct MapWords {
  nb::handle stride, padding, dilation;
  bool submanifold = false, inverse = false;
  nb::handle extent, batch;
};

// Returns the map of a call: `sites` itself if it is a SparseMap, which then must fit w, or a new
// one from sites [n,1+D] for the kernel of w.
MapOfPython map_of_call(const nb::object& sites, nb::handle w, const MapWords& words);

// Returns the rows [n,...] of an array in the order of the keys, in this type on this device; or
// rows of a result in Python's order, in the type and on the device of `like`. `sites` are input or
// output sites of the map, which caches their order on a GPU.
Tensor rows_in_key_order(const Array& rows, const SparseMap& map, const SparseSites& sites,
                         DType dtype, Device device);
Tensor rows_in_users_order(const Tensor& rows, const SparseMap& map, const SparseSites& sites,
                           const Array& like);

}  // namespace convscope::python
