// SPDX-License-Identifier: Apache-2.0
// map.h: which input site each tap of each output site meets: the map of a sparse convolution (also
// called rulebook, kernel map or indice pairs). It depends only on the sites, the kernel and the
// dilation, so all layers and directions with equal sites, kernel and dilation share the map.
//
//   submanifold  output sites = input sites; tap t of site o reads o - padding + t dilation, if
//                a site is there. Sizes are odd and the centre is tap (size-1)/2.
//   strided      an output site is where at least one tap meets an input site:
//                i = o stride - padding + t dilation
//   inverse      a strided map with its ends exchanged: from the coarse sites back to the fine ones
//
// How it is stored. Sites are sorted by key, so the sites that a row of taps along w meets are
// contiguous. One number holds a row: the first of these sites, and a bit for each tap:
//
//   entry of 32 bits   [first site | bits]      3x3x3: 9 entries for 27 taps
//
// A 3x3x3 map takes 9 x 4 = 36 bytes for each site at any density. A list of pairs takes 8 bytes
// for each pair, about 100 bytes for each site on a surface. With a dilation along w a row's sites
// are not contiguous; then each tap has its own entry.
//
// How it is built. The key at which a row of taps begins grows with the key of the output site. So
// one walk over both sorted lists finds all entries of a row of taps, without a hash table or
// collisions.
//
// When it is built. The output sites are computed with the map. Tables on the host are made when a
// CPU algorithm first needs them. An algorithm for another device makes its tables on that device
// from the keys of the sites, and stores the tables in the map (form()). So a network on a GPU
// makes no table on the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/kernel_slot.h"
#include "layers/sparse_conv/sites.h"

namespace convscope {

// The axes are T, H and W. In 2-D, axis T has the default values.
struct CONVSCOPE_API SparseKernel {
  std::array<std::int64_t, 3> size = {1, 1, 1}, stride = {1, 1, 1}, padding = {0, 0, 0},
                              dilation = {1, 1, 1};

  std::int64_t taps() const { return size[0] * size[1] * size[2]; }
  // Returns the number of taps of an entry: those along w, or 1 if a dilation separates them.
  std::int64_t run() const { return dilation[2] == 1 ? size[2] : 1; }
  // Returns "kernel=3x3x3", then values that differ from 1, 0, 1:
  // ",stride=2x2x2,pad=1x1x1,dilation=1x1x2".
  std::string text(int rank) const;
  bool operator==(const SparseKernel&) const = default;
};

enum class SparseKind : std::uint8_t { submanifold, strided, inverse };
constexpr const char* name_of(SparseKind kind) {
  constexpr const char* kNames[] = {"submanifold", "strided", "inverse"};
  return kNames[static_cast<int>(kind)];
}

// A table with an entry for each site and each row of taps. The entry says which sites of another
// set the taps meet.
struct CONVSCOPE_API SparseTable {
  std::int64_t sites = 0, taps = 0;
  std::int64_t run = 1;  // taps of an entry: neighbours along w
  // True if the sites of an entry descend while its taps ascend. This holds for the second table
  // of a strided map, which lists outputs by input.
  bool descending = false;
  std::vector<std::uint32_t> entries;  // [taps / run, sites]

  // Returns the neighbour's site, or -1.
  std::int64_t neighbour(std::int64_t tap, std::int64_t site) const {
    const std::uint32_t entry = entries[static_cast<std::size_t>(tap / run * sites + site)];
    const std::int64_t s = tap % run;
    if ((entry >> s & 1) == 0) return -1;
    std::int64_t at = entry >> run;
    for (std::int64_t i = descending ? s + 1 : 0; i < (descending ? run : s); ++i) {
      at += entry >> i & 1;
    }
    return at;
  }
  std::size_t bytes() const;
};

// A table as an algorithm reads it: tap t of the table has the weights of tap weight_tap(t). Both
// directions of a submanifold map are one table, because j = o + t means o = j - t.
struct SparseView {
  const SparseTable* table = nullptr;
  bool mirrored = false;

  std::int64_t weight_tap(std::int64_t tap) const { return mirrored ? table->taps - 1 - tap : tap; }
};

// The direction in which a table looks up neighbours.
struct SparseLook {
  SharedSites here, there;
  // False: the sites are outputs, whose taps read sites of `there`. True: the sites are inputs.
  bool by_input = false;
  bool mirrored = false;  // SparseView
};

class CONVSCOPE_API SparseMap {
 public:
  // Makes the map of a submanifold convolution, whose padding is dilation (size - 1) / 2 and need
  // not be given. Throws Error when the kernel does not fit these sites.
  static std::shared_ptr<const SparseMap> submanifold(SharedSites sites, SparseKernel kernel);
  static std::shared_ptr<const SparseMap> strided(SharedSites sites, const SparseKernel& kernel);
  // Makes the inverse of a strided map.
  static std::shared_ptr<const SparseMap> inverse(const std::shared_ptr<const SparseMap>& strided);

  SparseKind kind() const { return kind_; }
  const SparseKernel& kernel() const { return kernel_; }
  const SharedSites& in_sites() const { return in_; }
  const SharedSites& out_sites() const { return out_; }
  int rank() const { return in_->grid().rank; }
  // Returns which input each output meets (forward, dw), or which output each input meets (dx).
  SparseLook look_by_output() const;
  SparseLook look_by_input() const;
  // Returns the same neighbours as a table on the host, which is made at the first call.
  SparseView by_output() const;
  SparseView by_input() const;

  // Counts the pairs. If the host has no table, the number comes from the tables of a device, and
  // the call waits for the device.
  std::int64_t pairs() const;
  std::int64_t pairs(std::int64_t tap) const;
  std::size_t bytes() const;  // of the host's tables for both directions, without the sites
  // Makes the tables that the device's algorithms read in both directions, unless they exist.
  // Returns their size in bytes. Does not wait for the device.
  std::size_t make_tables(Device device) const;
  // Makes the tables of the algorithm `halo`. Returns their size in bytes, 0 if `halo` has no
  // tables for this map.
  std::size_t make_halo_tables(Device device) const;
  std::string text() const;

  // Throws Error unless the map was made of these very sites and this kernel.
  void check_made_of(const SharedSites& sites, SparseKind kind, SparseKernel kernel) const;

  // Returns the tables of this map in the data structure of one algorithm. The map calls `make`
  // once for each name and keeps the result.
  template <class Form>
  std::shared_ptr<const Form> form(const std::string& name,
                                   const std::function<std::shared_ptr<const Form>()>& make) const {
    return std::static_pointer_cast<const Form>(
        any_form(name, [&]() -> std::shared_ptr<const void> { return make(); }));
  }
  // Registers a function that counts the pairs without a table on the host. A later function
  // replaces an earlier one.
  void counts_pairs(std::function<std::int64_t()> count) const;

 private:
  struct Made;
  SparseMap();

  std::shared_ptr<const void> any_form(
      const std::string& name, const std::function<std::shared_ptr<const void>()>& make) const;
  std::shared_ptr<const SparseTable> table(const SparseLook& look) const;

  SparseKind kind_ = SparseKind::submanifold;
  SparseKernel kernel_;
  SharedSites in_, out_;
  std::shared_ptr<Made> made_;  // all tables; an inverse map shares those of its strided map
};

extern CONVSCOPE_API KernelSlot<std::size_t(const SparseMap&)> sparse_tables_kernel;
extern CONVSCOPE_API KernelSlot<std::size_t(const SparseMap&)> sparse_halo_tables_kernel;  // cuda

using SharedMap = std::shared_ptr<const SparseMap>;

// The maps of one network, each built at the first request. The key is the site sets, the kind and
// the kernel, so layers with equal keys share a map.
class CONVSCOPE_API SparseMaps {
 public:
  SharedMap submanifold(const SharedSites& sites, const SparseKernel& kernel);
  SharedMap strided(const SharedSites& sites, const SparseKernel& kernel);
  std::size_t count() const { return maps_.size(); }
  void clear() { maps_.clear(); }

 private:
  SharedMap find(const SharedSites& sites, SparseKind kind, const SparseKernel& kernel) const;
  std::vector<SharedMap> maps_;
};

}  // namespace convscope
