// SPDX-License-Identifier: Apache-2.0
// sparse_map.h: convscope.SparseMap: where the rows of a sparse convolution are and which of them
// are neighbours. Made once, it serves every layer, direction and call with the same sites and
// kernel.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "experiments/python/arrays.h"
#include "layers/dispatch/choice_cache.h"
#include "layers/sparse_conv/algorithm.h"

namespace convscope::python {

// What words chose for the problems of a map. It ends with the map's object, because a choice that
// is remembered keeps the map alive.
struct MapChoices {
  std::mutex one_at_a_time;
  std::map<std::string, Ref<ChoiceCache<SparseConvProblem>>, std::less<>> of_word;
};

// Of the class SparseMap. Rows of Python stand in the order of the sites that it was given.
struct MapOfPython {
  SharedMap map;
  ArrayLibrary library = ArrayLibrary::numpy;  // of the sites that came in, and where they lay
  Device device;
  // That ran it last. Its cards may have made tables there, which then count the pairs.
  mutable Device used = {};
  std::shared_ptr<MapChoices> choices = std::make_shared<MapChoices>();
};

// As Python gives them; None: the default.
struct MapWords {
  nb::handle stride, padding, dilation;
  bool submanifold = false, inverse = false;
  nb::handle extent, batch;
};

// The map of a call: `sites` itself where it is a SparseMap, which then must fit w, or one that is
// made of sites [n,1+D] for the kernel of w.
MapOfPython map_of_call(const nb::object& sites, nb::handle w, const MapWords& words);

// The rows [n,...] of an array in the order of the keys, of this type on this device; and rows of
// a result in the order of Python, of the type of `like` where it lies.
// `sites` are an end of the map, which keeps their order on a GPU.
Tensor rows_in_key_order(const Array& rows, const SparseMap& map, const SparseSites& sites,
                         DType dtype, Device device);
Tensor rows_in_users_order(const Tensor& rows, const SparseMap& map, const SparseSites& sites,
                           const Array& like);

}  // namespace convscope::python
