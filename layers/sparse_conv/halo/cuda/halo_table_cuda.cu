// SPDX-License-Identifier: Apache-2.0
// halo_table_cuda.cu: cuts a cloud into tiles and lists the halo of each tile, on the GPU. The host
// does not wait.
//
// Steps   find     the entry of each site and row of taps (tile_table_cuda.cu)
//         order    sites along a Z curve: sorted by the bits of their coordinates, interleaved
//         tile     a thread block for 256 sites cuts the sites into units by their taps. It puts
//                  all neighbours into a hash table in shared memory, so that each neighbour occurs
//                  once, and sorts them. Then it writes for each entry the position of its first
//                  neighbour in the list
#include <algorithm>
#include <bit>

#include "layers/sparse_conv/halo/cuda/halo_table.h"
#include "layers/sparse_conv/shared/cuda/tile_table.cuh"

namespace convscope::sparse_cuda {
namespace {

struct Places {
  const unsigned long long* keys = nullptr;
  long long extent[3] = {};  // t, h, w

  // w, h, t and the batch of a site.
  __device__ void read(int site, unsigned long long (&at)[4]) const {
    unsigned long long key = keys[site];
    for (int axis = 0; axis < 3; ++axis) {
      const auto size = static_cast<unsigned long long>(extent[2 - axis]);
      at[axis] = key % size;
      key /= size;
    }
    at[3] = key;
  }
};

struct Curve {
  Places places;
  const int* sites = nullptr;  // null: all in their order
  unsigned* codes = nullptr;
  int* out_sites = nullptr;
  long long count = 0;
  int bits[4] = {};  // of w, h, t and the batch
  int shift = 0;     // which 32 bits of the code
};

// Interleaves the bits of w, h and t, the lowest first; the bits of the batch are above them.
__device__ unsigned long long curve_code(const Curve& z, int site) {
  unsigned long long at[4];
  z.places.read(site, at);
  unsigned long long code = 0;
  int to = 0;
  const int most = max(z.bits[0], max(z.bits[1], z.bits[2]));
  for (int bit = 0; bit < most; ++bit) {
    for (int axis = 0; axis < 3; ++axis) {
      if (bit < z.bits[axis]) code |= (at[axis] >> bit & 1) << to++;
    }
  }
  return to < 64 ? code | at[3] << to : code;
}

__global__ __launch_bounds__(kThreads) void curve_kernel(const __grid_constant__ Curve z) {
  for (std::int64_t i = global_thread(); i < z.count; i += global_threads()) {
    const int site = z.sites != nullptr ? z.sites[i] : static_cast<int>(i);
    z.codes[i] = static_cast<unsigned>(curve_code(z, site) >> z.shift);
    z.out_sites[i] = site;
  }
}

// Sorts ascending; all threads of the block call it. `count` is a power of two.
template <class T>
__device__ void sort_in_block(T* keys, int count) {
  for (int size = 2; size <= count; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < count / 2; i += kHaloSlots) {
        const int low = i / step * step * 2 + i % step;
        const int high = low + step;
        const T a = keys[low];
        const T b = keys[high];
        if ((a > b) == ((low & size) == 0)) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  __syncthreads();
}

inline constexpr unsigned kNone = ~0u;
inline constexpr int kHashEntries = 2048;
inline constexpr int kListPlaces = 1024;
static_assert(kHaloRows + kHaloSlots < kHashEntries);  // see Tile::insert
static_assert(kHaloRows <= kListPlaces);

struct TileMaker {
  Places places;
  const unsigned* entries = nullptr;  // [rows, sites]
  const int* order = nullptr;         // [sites], along the curve
  unsigned* records = nullptr;
  int* heads = nullptr;
  int* masks = nullptr;
  unsigned long long* pairs = nullptr;
  int count = 0, run = 1, rows = 0;
};

// The set of sites of a halo, unordered.
struct HashTable {
  unsigned* places;  // [kHashEntries]
  int* count;

  // Stops when there are too many sites. Each thread may add one more site before it notices.
  __device__ void insert(unsigned site) const {
    unsigned at = site * 2654435761u >> 21;
    while (atomicAdd(count, 0) <= kHaloRows) {
      const unsigned was = atomicCAS(places + at, kNone, site);
      if (was == kNone) atomicAdd(count, 1);
      if (was == kNone || was == site) return;
      at = (at + 1) % kHashEntries;
    }
  }
};

// A thread block makes one tile, and each thread makes one slot.
__global__ __launch_bounds__(kHaloSlots) void tile_kernel(const __grid_constant__ TileMaker z) {
  __shared__ unsigned long long by_mask[kHaloSlots];  // mask, then thread
  __shared__ int sites[kHaloSlots];
  __shared__ unsigned places[kHashEntries];
  __shared__ unsigned list[kListPlaces];
  __shared__ int count, listed;
  __shared__ unsigned unit_masks[kHaloUnits];
  __shared__ unsigned scratch[32];
  const auto thread = static_cast<int>(threadIdx.x);
  const auto tile = static_cast<int>(blockIdx.x);
  const unsigned bits_of_entry = (1u << z.run) - 1;
  const auto entry_of = [&](int row, int site) {
    return site < 0 ? 0u : z.entries[static_cast<std::int64_t>(row) * z.count + site];
  };

  const int own = tile * kHaloSlots + thread;
  sites[thread] = own < z.count ? z.order[own] : -1;
  unsigned mask = 0;
  for (int row = 0; row < z.rows; ++row) {
    mask |= (entry_of(row, sites[thread]) & bits_of_entry) << row * z.run;
  }
  by_mask[thread] = static_cast<unsigned long long>(mask) << 8 | static_cast<unsigned>(thread) |
                    (own < z.count ? 0ull : 1ull << 40);
  const unsigned sum = block_sum(static_cast<unsigned>(__popc(mask)), scratch);
  if (thread == 0 && sum > 0) atomicAdd(z.pairs, static_cast<unsigned long long>(sum));
  sort_in_block(by_mask, kHaloSlots);
  const unsigned long long own_key = by_mask[thread];
  __syncthreads();
  // Inside a unit, slots are in the order of the curve; slots without a site come last.
  by_mask[thread] = static_cast<unsigned long long>(thread / kHaloUnit) << 48 |
                    (own_key & 1ull << 40) | (own_key & 255) << 32 | (own_key >> 8 & kNone);
  sort_in_block(by_mask, kHaloSlots);
  int site = sites[by_mask[thread] >> 32 & 255];
  const auto write_masks = [&](unsigned taps) {
    if (thread < kHaloUnits) unit_masks[thread] = 0;
    __syncthreads();
    for (int offset = 16; offset > 0; offset /= 2) {
      taps |= __shfl_xor_sync(kAllLanes, taps, offset);
    }
    if (thread % 32 == 0) atomicOr(unit_masks + thread / kHaloUnit, taps);
    __syncthreads();
    if (thread < kHaloUnits) {
      z.masks[tile * kHaloUnits + thread] = static_cast<int>(unit_masks[thread]);
    }
  };
  write_masks(static_cast<unsigned>(by_mask[thread]));

  unsigned* const record = z.records + static_cast<std::int64_t>(tile) * z.rows * kHaloSlots;
  auto* const short_entries = reinterpret_cast<unsigned short*>(record);
  const int room = z.rows * kHaloSlots / 2;  // for lists
  unsigned* const lists = record + room;
  int* const head = z.heads + tile * kHaloHeadWords;
  const HashTable table{places, &count};
  int phases = 1;
  for (; phases <= kHaloPhases; phases *= 2) {
    if (phases == 2) {  // nearby units have smaller halos
      site = sites[thread];
      write_masks(mask);
    }
    int used = 0;
    bool fits = true;
    for (int phase = 0; fits && phase < phases; ++phase) {
      for (int i = thread; i < kHashEntries; i += kHaloSlots) places[i] = kNone;
      for (int i = thread; i < kListPlaces; i += kHaloSlots) list[i] = kNone;
      if (thread == 0) count = listed = 0;
      __syncthreads();
      const bool mine = thread / (kHaloSlots / phases) == phase;
      for (int row = 0; mine && row < z.rows; ++row) {
        const unsigned entry = entry_of(row, site);
        const int neighbours = __popc(entry & bits_of_entry);
        for (int i = 0; i < neighbours; ++i) {
          table.insert((entry >> z.run) + static_cast<unsigned>(i));
        }
      }
      __syncthreads();
      const int rows = count;
      fits = rows <= kHaloRows && used + rows <= room;
      if (!fits) break;
      for (int i = thread; i < kHashEntries; i += kHaloSlots) {
        if (places[i] != kNone) list[atomicAdd(&listed, 1)] = places[i];
      }
      sort_in_block(list, rows <= kHaloSlots ? kHaloSlots : rows <= 512 ? 512 : kListPlaces);
      for (int i = thread; i < rows; i += kHaloSlots) {
        unsigned long long at[4];
        z.places.read(static_cast<int>(list[i]), at);
        const int turn = turn_of(static_cast<long long>(at[2]), static_cast<long long>(at[1]),
                                 static_cast<long long>(at[0]));
        lists[used + i] = list[i] | static_cast<unsigned>(turn) << kTurnShift;
      }
      for (int row = 0; mine && row < z.rows; ++row) {
        const unsigned entry = entry_of(row, site);
        unsigned out = 0;
        if ((entry & bits_of_entry) != 0) {
          int begin = 0;
          for (int left = rows; left > 0;) {  // the first that is not below
            const int half = left / 2;
            const bool below = list[begin + half] < entry >> z.run;
            begin = below ? begin + half + 1 : begin;
            left = below ? left - half - 1 : half;
          }
          out = static_cast<unsigned>(begin) << z.run | (entry & bits_of_entry);
        }
        short_entries[row * kHaloSlots + thread] = static_cast<unsigned short>(out);
      }
      if (thread == 0) head[1 + phase] = rows;
      used += rows;
      __syncthreads();
    }
    if (fits) break;
    __syncthreads();
  }
  if (thread == 0) head[0] = phases <= kHaloPhases ? phases : 0;
  if (phases > kHaloPhases) {
    for (int row = 0; row < z.rows; ++row) record[row * kHaloSlots + thread] = entry_of(row, site);
  }
}

// Returns i32 [2, n]. The second row has the sites in the order of the curve, the first row is
// scratch memory.
Tensor along_curve(const SparseSites& sites, const Places& places) {
  const Device device = current_device();
  const std::int64_t n = sites.count();
  const Tensor codes = Tensor::empty({2, n}, DType::i32, device);
  Tensor order = Tensor::empty({2, n}, DType::i32, device);
  Curve curve{.places = places,
              .codes = data_of<unsigned>(codes),
              .out_sites = data_of<int>(order),
              .count = n};
  const auto bits_of = [](std::int64_t extent) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(extent - 1)));
  };
  const SiteGrid& grid = sites.grid();
  for (std::size_t d = 0; d < 3; ++d) {
    curve.bits[2 - d] = bits_of(grid.extent[d]);
  }
  curve.bits[3] = bits_of(grid.batch);
  const int bits = std::min(64, curve.bits[0] + curve.bits[1] + curve.bits[2] + curve.bits[3]);
  // If curve codes have more than 32 bits, they are sorted by the lower bits, then by the upper
  // bits.
  for (;; curve.shift += 32, curve.sites = curve.out_sites + n) {
    launch(curve_kernel, grid_for(n), curve);
    sort_by_key(curve.codes, curve.codes + n, curve.out_sites, curve.out_sites + n, n,
                std::clamp(bits - curve.shift, 1, 32));
    if (curve.shift + 32 >= bits) break;
  }
  return order;
}

std::shared_ptr<const HaloTable> make(const SparseMap& map) {
  const Device device = current_device();
  const SparseLook look = map.look_by_output();
  const PartTaps part = taps_of(map.kernel(), TapPart::all);
  auto out = std::make_shared<HaloTable>();
  HaloTable& z = *out;
  z.sites = look.here->count();
  z.tiles = ceil_div(z.sites, std::int64_t{kHaloSlots});
  z.taps = part.count();
  z.run = static_cast<int>(map.kernel().run());
  z.rows = part.rows;
  z.records = Tensor::empty({z.tiles, z.rows, kHaloSlots}, DType::i32, device);
  z.heads = Tensor::zeros({z.tiles, kHaloHeadWords}, DType::i32, device);
  z.masks = Tensor::empty({z.tiles, kHaloUnits}, DType::i32, device);
  z.pairs = Tensor::zeros({2}, DType::i32, device);
  if (z.sites == 0) return out;
  const Tensor found = find_entries(look, map.kernel(), part);
  const Tensor keys = look.here->keys_on(device);
  Places places{.keys = data_of<const unsigned long long>(keys)};
  std::ranges::copy(look.here->grid().extent, places.extent);
  const Tensor order = along_curve(*look.here, places);
  const TileMaker maker{.places = places,
                        .entries = data_of<const unsigned>(found),
                        .order = data_of<const int>(order) + z.sites,
                        .records = data_of<unsigned>(z.records),
                        .heads = data_of<int>(z.heads),
                        .masks = data_of<int>(z.masks),
                        .pairs = data_of<unsigned long long>(z.pairs),
                        .count = static_cast<int>(z.sites),
                        .run = z.run,
                        .rows = z.rows};
  launch(tile_kernel, {.grid = dim3(static_cast<unsigned>(z.tiles)), .block = dim3(kHaloSlots)},
         maker);
  return out;
}

std::string form_name() { return current_device().str() + " halo"; }

}  // namespace

std::size_t HaloTable::bytes() const {
  return static_cast<std::size_t>(records.size_bytes() + heads.size_bytes() + masks.size_bytes());
}

std::string halo_refusal(const SparseMap& map) {
  if (map.out_sites()->count() >= std::int64_t{1} << kTurnShift) {
    return cat("expects fewer than 2^", kTurnShift, " sites, got ", map.out_sites()->count());
  }
  if (map.kind() != SparseKind::submanifold) {
    return cat("expects a submanifold convolution, got a ", name_of(map.kind()), " one");
  }
  const SparseKernel& kernel = map.kernel();
  if (kernel.taps() < 2) return "expects a kernel of at least two taps, got one";
  if (kernel.taps() > kHaloTaps) {
    return cat("expects a kernel of at most ", kHaloTaps, " taps, got ", kernel.taps());
  }
  if (kernel.run() > kHaloRun) {
    return cat("expects at most ", kHaloRun, " taps along w, got ", kernel.run());
  }
  return {};
}

std::shared_ptr<const HaloTable> halo_table(const SparseMap& map) {
  return map.form<HaloTable>(form_name(), [&]() -> std::shared_ptr<const HaloTable> {
    auto made = make(map);
    map.counts_pairs([made] { return count_on_host(made->pairs); });
    return made;
  });
}

namespace {
std::size_t make_tables(const SparseMap& map) {
  return halo_refusal(map).empty() ? halo_table(map)->bytes() : 0;
}
}  // namespace

CONVSCOPE_KERNEL(sparse_halo_tables_kernel, cuda, make_tables)

std::shared_ptr<const HaloFacts> halo_facts(const SparseMap& map) {
  return map.form<HaloFacts>(form_name() + " facts", [&] {
    const auto table = halo_table(map);
    auto out = std::make_shared<HaloFacts>();
    out->useful = static_cast<double>(count_on_host(table->pairs));
    out->tiles = table->tiles;
    const Tensor heads = table->heads.to(Device{}), masks = table->masks.to(Device{});
    for (std::int64_t tile = 0; tile < table->tiles; ++tile) {
      const auto* const head = heads.data<std::int32_t>() + tile * kHaloHeadWords;
      const auto* const mask = masks.data<std::int32_t>() + tile * kHaloUnits;
      const bool scattered = head[0] == 0;
      const int phases = scattered ? kHaloSlots / kScatteredSlots : head[0];
      out->scattered += scattered;
      for (int phase = 0; phase < phases; ++phase) {
        std::uint32_t all = 0;
        const int first = phase * kHaloUnits / phases;
        const int end = std::max(first + 1, (phase + 1) * kHaloUnits / phases);
        for (int unit = first; unit < end; ++unit) {
          const auto taps = static_cast<std::uint32_t>(mask[unit]);
          out->executed += std::popcount(taps) * kHaloUnit;
          all |= taps;
        }
        out->taps += std::popcount(all);
        out->rows += scattered ? std::popcount(all) * kScatteredSlots : head[1 + phase];
      }
    }
    return std::shared_ptr<const HaloFacts>(out);
  });
}

}  // namespace convscope::sparse_cuda
