// SPDX-License-Identifier: Apache-2.0
// sites.h: the occupied positions (sites) of a sparse image or volume. A site is a batch index and
// a position (h,w) or (t,h,w). Each site has a feature row [C]; everywhere else the image is 0.
//
//   coordinates [n, 1+D], i32: (batch, h, w) in 2-D, (batch, t, h, w) in 3-D
//   key         ((batch T + t) H + h) W + w, 64 bits
//
// Sites and the rows of all features are stored in the order of the keys, so that neighbours along
// w are neighbours in memory; map.h depends on this order. Users may give coordinates in any order;
// in_key_order() and in_users_order() reorder rows between the two orders.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/tensor.h"

namespace convscope {

// The sizes of the whole image or volume. Axes are T, H, W; in 2-D T is 1.
struct CONVSCOPE_API SiteGrid {
  int rank = 3;  // 2 or 3
  std::int64_t batch = 1;
  std::array<std::int64_t, 3> extent = {1, 1, 1};

  // Throws Error unless all sizes are positive, fit into i32, and keys fit into 62 bits.
  void check() const;
  std::string text() const;                        // "2x41x1600x1408": the batch, then the extents
  std::int64_t all_places() const;                 // batch T H W; throws what check() throws
  Shape dense_shape(std::int64_t channels) const;  // [N,C,(T,)H,W]

  // Returns the smallest grid from 0 on that holds all coordinates.
  static SiteGrid around(const Tensor& coordinates);

  bool operator==(const SiteGrid&) const = default;
};

struct SitePlace {
  std::int64_t batch = 0;
  std::array<std::int64_t, 3> at = {0, 0, 0};  // t, h, w
};

class CONVSCOPE_API SparseSites {
 public:
  // Takes coordinates in any order. Throws Error, which names the row, if a site is outside of the
  // grid or two sites are at the same place. The set may be empty.
  SparseSites(const Tensor& coordinates, const SiteGrid& grid);
  // Takes keys in any order; a repeated key gives one site.
  SparseSites(std::vector<std::uint64_t> keys, const SiteGrid& grid);

  std::int64_t count() const { return static_cast<std::int64_t>(keys_.size()); }
  const SiteGrid& grid() const { return grid_; }
  const std::vector<std::uint64_t>& keys() const { return keys_; }  // ascending
  SitePlace place(std::int64_t site) const;
  std::uint64_t key(const SitePlace& place) const;
  Tensor coordinates() const;  // [n, 1+D], in the order of the keys
  double density() const {
    return static_cast<double>(count()) / static_cast<double>(grid_.all_places());
  }
  std::size_t bytes() const;

  // Returns the 64-bit keys in the memory of a GPU, as i32 [n,2]. The first call copies them.
  Tensor keys_on(Device device) const;

  // Returns rows [n, ...] in the order of the keys, given rows in the user's order;
  // in_users_order() does the reverse. Both work on the CPU and return the tensor itself where the
  // orders are equal.
  Tensor in_key_order(const Tensor& rows) const { return reordered(rows, true); }
  Tensor in_users_order(const Tensor& rows) const { return reordered(rows, false); }

 private:
  Tensor reordered(const Tensor& rows, bool to_keys) const;

  SiteGrid grid_;
  std::vector<std::uint64_t> keys_;
  std::vector<std::int32_t> users_row_;  // for each site; empty: the orders are equal
  mutable std::mutex on_device_;
  mutable Tensor device_keys_;  // on the last requested device
};

using SharedSites = std::shared_ptr<const SparseSites>;

// Returns "[1, 4, 0, 7]": a row of coordinates.
CONVSCOPE_API std::string site_text(const SiteGrid& grid, const SitePlace& place);

}  // namespace convscope
