// SPDX-License-Identifier: Apache-2.0
// tile_table_cuda.cu: makes a table of tiles from the sorted keys of sites, on the GPU.
//
// Steps   find      the entry of each site and row of taps
//         mask      the mask of the taps of each site, at most 32 bits, and the number of taps
//         sort      sites by that number
//         permute   entries in the new order; the taps of each 64 sites together
// The host knows the numbers of sites, slots and taps, so it reads nothing back. An entry without
// neighbours is 0.
#include <algorithm>
#include <bit>
#include <string>

#include "layers/sparse_conv/shared/cuda/tile_table.cuh"

#if defined(CONVSCOPE_CUDA_EMULATED)
#include <numeric>
#include <vector>
#else
#include <cub/device/device_radix_sort.cuh>
#endif

namespace convscope::sparse_cuda {

// ---- entries: the neighbours of each site -------------------------------------------------------
// Each thread handles one site and one row of taps. It searches the sorted keys for the first site
// that these taps can meet. For 100,000 sites this is a binary search of 17 steps in L2.

namespace {

struct Finder {
  const unsigned long long *here = nullptr, *there = nullptr;  // keys
  unsigned* entries = nullptr;                                 // [rows, sites]
  long long here_count = 0, there_count = 0;
  long long here_extent[3] = {}, there_extent[3] = {};
  int size[3] = {}, stride[3] = {}, padding[3] = {}, dilation[3] = {};
  int run = 1, first_row = 0, rows = 0;
  bool by_input = false;

  // Finds along one axis the position in `there` of tap t of a site in `here`. Returns false if
  // there is none.
  __device__ bool position(int axis, int tap, long long at, long long& out) const {
    if (by_input) {
      const long long to = at + padding[axis] - static_cast<long long>(tap) * dilation[axis];
      if (to < 0 || to % stride[axis] != 0) return false;
      out = to / stride[axis];
    } else {
      out = at * stride[axis] - padding[axis] + static_cast<long long>(tap) * dilation[axis];
    }
    return out >= 0 && out < there_extent[axis];
  }
};

__device__ long long floor_quotient(long long a, long long b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

// Threads: sites, for one row of taps (y).
__global__ __launch_bounds__(kThreads) void find_kernel(const __grid_constant__ Finder z) {
  const auto row = static_cast<int>(blockIdx.y);
  const int first_tap = (z.first_row + row) * z.run;
  const int s = first_tap % z.size[2];
  const int r = first_tap / z.size[2] % z.size[1];
  const int t = first_tap / (z.size[2] * z.size[1]);
  const long long shift = z.by_input ? z.padding[2] - static_cast<long long>(s) * z.dilation[2]
                                     : static_cast<long long>(s) * z.dilation[2] - z.padding[2];
  for (std::int64_t i = global_thread(); i < z.here_count; i += global_threads()) {
    unsigned entry = 0;
    unsigned long long key = z.here[i];
    const auto w = static_cast<long long>(key % z.here_extent[2]);
    key /= z.here_extent[2];
    const auto h = static_cast<long long>(key % z.here_extent[1]);
    key /= z.here_extent[1];
    const auto at_t = static_cast<long long>(key % z.here_extent[0]);
    const auto batch = static_cast<long long>(key / z.here_extent[0]);
    long long to_t = 0;
    long long to_h = 0;
    if (z.position(0, t, at_t, to_t) && z.position(1, r, h, to_h)) {
      // The window [low, high] along w.
      const long long edge = z.by_input ? w + shift : w * z.stride[2] + shift;
      long long low = edge;
      long long high = edge + z.run - 1;
      if (z.by_input) {
        low = -floor_quotient(z.run - 1 - edge, z.stride[2]);
        high = floor_quotient(edge, z.stride[2]);
      }
      low = max(low, 0LL);
      high = min(high, z.there_extent[2] - 1);
      if (low <= high) {
        const auto row_key = static_cast<unsigned long long>(
            ((batch * z.there_extent[0] + to_t) * z.there_extent[1] + to_h) * z.there_extent[2]);
        const unsigned long long low_key = row_key + static_cast<unsigned long long>(low);
        long long begin = 0;
        long long count = z.there_count;
        while (count > 0) {  // the first key that is not below
          const long long half = count / 2;
          if (z.there[begin + half] < low_key) {
            begin += half + 1;
            count -= half + 1;
          } else {
            count = half;
          }
        }
        unsigned bits = 0;
        const auto most =
            static_cast<int>(min(static_cast<long long>(z.run), z.there_count - begin));
        for (int j = 0; j < most; ++j) {
          const auto to_w = static_cast<long long>(z.there[begin + j] - row_key);
          if (to_w > high) break;
          bits |= 1u << (z.by_input ? edge - to_w * z.stride[2] : to_w - edge);
        }
        if (bits != 0) entry = static_cast<unsigned>(begin) << z.run | bits;
      }
    }
    z.entries[static_cast<std::int64_t>(row) * z.here_count + i] = entry;
  }
}

}  // namespace

Tensor find_entries(const SparseLook& look, const SparseKernel& kernel, const PartTaps& part) {
  const Device device = current_device();
  const std::int64_t sites = look.here->count();
  const Tensor here = look.here->keys_on(device), there = look.there->keys_on(device);
  Tensor found = Tensor::empty({part.rows, sites}, DType::i32, device);
  Finder finder{.here = data_of<const unsigned long long>(here),
                .there = data_of<const unsigned long long>(there),
                .entries = data_of<unsigned>(found),
                .here_count = sites,
                .there_count = look.there->count(),
                .run = static_cast<int>(kernel.run()),
                .first_row = part.first_row,
                .rows = part.rows,
                .by_input = look.by_input};
  for (std::size_t d = 0; d < 3; ++d) {
    finder.here_extent[d] = look.here->grid().extent[d];
    finder.there_extent[d] = look.there->grid().extent[d];
    finder.size[d] = static_cast<int>(kernel.size[d]);
    finder.stride[d] = static_cast<int>(kernel.stride[d]);
    finder.padding[d] = static_cast<int>(kernel.padding[d]);
    finder.dilation[d] = static_cast<int>(kernel.dilation[d]);
  }
  LaunchShape shape = grid_for(sites);
  shape.grid.y = static_cast<unsigned>(part.rows);
  launch(find_kernel, shape, finder);
  return found;
}

// ---- sorting ------------------------------------------------------------------------------------
// CUB, a library of the CUDA Toolkit, sorts. The CPU emulation sorts with the C++ standard library.

void sort_by_key(const std::uint32_t* keys, std::uint32_t* sorted_keys, const std::int32_t* values,
                 std::int32_t* sorted_values, std::int64_t n, int bits) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const std::uint32_t mask = bits >= 32 ? ~0u : (1u << bits) - 1;
  std::ranges::stable_sort(order, {}, [&](std::int64_t i) { return keys[i] & mask; });
  for (std::int64_t i = 0; i < n; ++i) {
    sorted_keys[i] = keys[order[static_cast<std::size_t>(i)]];
    sorted_values[i] = values[order[static_cast<std::size_t>(i)]];
  }
#else
  const auto count = static_cast<int>(n);
  std::size_t bytes = 0;
  CONVSCOPE_CUDA(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted_keys, values,
                                                 sorted_values, count, 0, bits, cuda_stream()));
  const Tensor scratch =
      Tensor::empty({static_cast<std::int64_t>(bytes) + 1}, DType::u8, current_device());
  CONVSCOPE_CUDA(cub::DeviceRadixSort::SortPairs(scratch.raw_data(), bytes, keys, sorted_keys,
                                                 values, sorted_values, count, 0, bits,
                                                 cuda_stream()));
#endif
}

// ---- tables -------------------------------------------------------------------------------------

namespace {

struct Masker {
  const unsigned* entries = nullptr;  // [rows, sites]
  unsigned* keys = nullptr;           // [sites]
  int* sites = nullptr;               // [sites]: their own numbers, to be sorted
  unsigned long long* pairs = nullptr;
  long long count = 0;
  int run = 1, first_row = 0, rows = 0, first_tap = 0, end_tap = 0;

  // Returns the bits of a row that belong to the part.
  __device__ unsigned part_of(unsigned entry, int row) const {
    unsigned bits = entry & ((1u << run) - 1);
    const int tap = (first_row + row) * run;
    if (tap < first_tap) bits &= ~0u << (first_tap - tap);
    if (tap + run > end_tap) bits &= (1u << (end_tap - tap)) - 1;
    return bits;
  }
};

__global__ __launch_bounds__(kThreads) void mask_kernel(const __grid_constant__ Masker z) {
  __shared__ unsigned scratch[32];
  const int taps = z.end_tap - z.first_tap;
  unsigned pairs = 0;
  for (std::int64_t i = global_thread(); i < z.count; i += global_threads()) {
    unsigned key = 0;
    for (int row = 0; row < z.rows; ++row) {
      unsigned bits = z.part_of(z.entries[row * z.count + i], row);
      pairs += static_cast<unsigned>(__popc(bits));
      const int tap = (z.first_row + row) * z.run - z.first_tap;
      while (bits != 0) {
        const int bit = __ffs(static_cast<int>(bits)) - 1;
        bits &= bits - 1;
        // Beyond 32 taps, several taps share a bit. The order is then good, but not optimal.
        key |= 1u << (taps <= 32 ? tap + bit : (tap + bit) * 32 / taps);
      }
    }
    z.keys[i] = key;
    z.sites[i] = static_cast<int>(i);
  }
  const unsigned sum = block_sum(pairs, scratch);
  if (threadIdx.x == 0 && sum > 0) atomicAdd(z.pairs, static_cast<unsigned long long>(sum));
}

struct Permuter {
  Masker from;
  const int* order = nullptr;   // [sites]
  unsigned* entries = nullptr;  // [rows, slots]
  unsigned* unit_words = nullptr;
  int* slot_sites = nullptr;  // may be null
  int slots = 0, words = 1;
};

// A block has kSlotsStep threads, one for each slot.
__global__ __launch_bounds__(kSlotsStep) void permute_kernel(const __grid_constant__ Permuter z) {
  constexpr int kUnits = kSlotsStep / kUnit;
  __shared__ unsigned words[kUnits * 11];  // 343 taps at most
  const auto slot = static_cast<int>(blockIdx.x) * kSlotsStep + static_cast<int>(threadIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const int unit = thread / kUnit;
  if (thread < kUnits * z.words) words[thread] = 0;
  __syncthreads();
  const bool inside = slot < z.from.count;
  const int site = inside ? z.order[slot] : -1;
  for (int row = 0; row < z.from.rows; ++row) {
    const unsigned entry = inside ? z.from.entries[row * z.from.count + site] : 0;
    z.entries[static_cast<std::int64_t>(row) * z.slots + slot] = entry;
    unsigned bits = z.from.part_of(entry, row);
    for (int offset = 16; offset > 0; offset /= 2) {
      bits |= __shfl_xor_sync(kAllLanes, bits, offset);
    }
    if (threadIdx.x % 32 == 0 && bits != 0) {
      const int tap = (z.from.first_row + row) * z.from.run;
      unsigned* const to = words + unit * z.words + tap / 32;
      atomicOr(to, bits << tap % 32);
      if (tap % 32 + z.from.run > 32) atomicOr(to + 1, bits >> (32 - tap % 32));
    }
  }
  if (z.slot_sites != nullptr) z.slot_sites[slot] = site;
  __syncthreads();
  if (thread < kUnits * z.words) {
    z.unit_words[static_cast<std::int64_t>(blockIdx.x) * kUnits * z.words + thread] = words[thread];
  }
}

std::shared_ptr<const TileTable> make(const SparseMap& map, const SparseLook& look, TapPart part) {
  const Device device = current_device();
  const SparseKernel& kernel = map.kernel();
  auto out = std::make_shared<TileTable>();
  TileTable& z = *out;
  z.sites = look.here->count();
  z.slots = round_up(z.sites, std::int64_t{kSlotsStep});
  z.taps = static_cast<int>(kernel.taps());
  z.run = static_cast<int>(kernel.run());
  z.part = taps_of(kernel, part);
  z.words = ceil_div(z.taps, 32);
  z.descending = look.by_input;
  const int centre_row = (z.taps - 1) / 2 / z.run - z.part.first_row;
  const bool centred =
      map.kind() == SparseKind::submanifold && centre_row >= 0 && centre_row < z.part.rows;
  if (centred) z.centre = (z.taps - 1) / 2;
  z.entries = Tensor::empty({z.part.rows, z.slots}, DType::i32, device);
  z.unit_words = Tensor::empty({z.units(), z.words}, DType::i32, device);
  z.pairs = Tensor::zeros({2}, DType::i32, device);
  if (!centred) z.order = Tensor::empty({z.slots}, DType::i32, device);
  if (z.sites == 0) return out;

  const Tensor found = find_entries(look, kernel, z.part);
  const Tensor keys = Tensor::empty({2, z.sites}, DType::i32, device);
  const Tensor order = Tensor::empty({2, z.sites}, DType::i32, device);
  auto* const key = data_of<unsigned>(keys);
  auto* const site = data_of<int>(order);
  const Masker masker{.entries = data_of<const unsigned>(found),
                      .keys = key,
                      .sites = site,
                      .pairs = data_of<unsigned long long>(z.pairs),
                      .count = z.sites,
                      .run = z.run,
                      .first_row = z.part.first_row,
                      .rows = z.part.rows,
                      .first_tap = z.part.first,
                      .end_tap = z.part.end};
  launch(mask_kernel, grid_for(z.sites), masker);
  sort_by_key(key, key + z.sites, site, site + z.sites, z.sites, std::min(32, z.part.count()));
  const Permuter permuter{.from = masker,
                          .order = site + z.sites,
                          .entries = data_of<unsigned>(z.entries),
                          .unit_words = data_of<unsigned>(z.unit_words),
                          .slot_sites = centred ? nullptr : data_of<int>(z.order),
                          .slots = static_cast<int>(z.slots),
                          .words = z.words};
  launch(permute_kernel,
         {.grid = dim3(static_cast<unsigned>(z.slots / kSlotsStep)), .block = dim3(kSlotsStep)},
         permuter);
  return out;
}

std::string form_name(const SparseLook& look, TapPart part) {
  return cat(current_device().str(), " tiles ", static_cast<int>(part),
             look.by_input ? " by input" : " by output");
}

}  // namespace

std::int64_t count_on_host(const Tensor& words) {
  const Tensor host = words.to(Device{});
  std::int64_t out = 0;
  std::copy_n(static_cast<const std::byte*>(host.raw_data()), sizeof out,
              reinterpret_cast<std::byte*>(&out));
  return out;
}

std::size_t TileTable::bytes() const {
  std::size_t out = 0;
  for (const Tensor* tensor : {&entries, &unit_words, &order}) {
    if (tensor->defined()) out += static_cast<std::size_t>(tensor->size_bytes());
  }
  return out;
}

std::shared_ptr<const TileTable> tile_table(const SparseMap& map, const SparseLook& look,
                                            TapPart part) {
  return map.form<TileTable>(form_name(look, part), [&]() -> std::shared_ptr<const TileTable> {
    auto made = make(map, look, part);
    if (part == TapPart::all) map.counts_pairs([made] { return count_on_host(made->pairs); });
    return made;
  });
}

PartTaps taps_of(const SparseKernel& kernel, TapPart part) {
  const auto taps = static_cast<int>(kernel.taps()), run = static_cast<int>(kernel.run());
  const int half = (taps + 1) / 2;
  PartTaps out{.first = part == TapPart::second_half ? half : 0,
               .end = part == TapPart::first_half ? half : taps};
  out.first_row = out.first / run;
  out.rows = ceil_div(out.end, run) - out.first_row;
  return out;
}

std::shared_ptr<const TileMasks> tile_masks(const SparseMap& map, const SparseLook& look,
                                            TapPart part) {
  return map.form<TileMasks>(form_name(look, part) + " masks", [&] {
    const auto table = tile_table(map, look, part);
    auto out = std::make_shared<TileMasks>();
    out->part = table->part;
    out->words = table->words;
    out->useful = static_cast<double>(count_on_host(table->pairs));
    const Tensor words = table->unit_words.to(Device{});
    const auto* const word = words.data<std::int32_t>();
    out->unit_words.assign(word, word + words.numel());
    return std::shared_ptr<const TileMasks>(out);
  });
}

double TileMasks::executed_by_sums(int units) const {
  std::int64_t out = 0;
  const std::size_t tile = static_cast<std::size_t>(units * words);
  for (std::size_t first = 0; first < unit_words.size(); first += tile) {
    for (std::size_t word = 0; word < static_cast<std::size_t>(words); ++word) {
      std::uint32_t bits = 0;
      for (std::size_t i = word; i < tile; i += static_cast<std::size_t>(words)) {
        bits |= unit_words[first + i];
      }
      out += std::popcount(bits);
    }
  }
  return static_cast<double>(out) * units * kUnit;
}

double TileMasks::executed_by_weights(int tile_pieces, int pieces) const {
  std::int64_t visited = 0;  // units, over all tiles
  std::vector<std::uint32_t> own(static_cast<std::size_t>(words));
  for (int first = 0; first < part.count() * pieces; first += tile_pieces) {
    std::ranges::fill(own, 0);
    for (int tap = first / pieces; tap <= (first + tile_pieces - 1) / pieces; ++tap) {
      const int at = part.first + tap;
      if (at < part.end) own[static_cast<std::size_t>(at / 32)] |= 1u << at % 32;
    }
    for (std::size_t unit = 0; unit < unit_words.size(); unit += own.size()) {
      std::uint32_t bits = 0;
      for (std::size_t word = 0; word < own.size(); ++word)
        bits |= unit_words[unit + word] & own[word];
      visited += bits != 0;
    }
  }
  return static_cast<double>(visited) * kUnit * tile_pieces / pieces;
}

namespace {
std::size_t make_tables(const SparseMap& map) {
  const auto forward = tile_table(map, map.look_by_output());
  const auto backward = tile_table(map, map.look_by_input());
  return forward->bytes() + (backward == forward ? 0 : backward->bytes());
}
}  // namespace

CONVSCOPE_KERNEL(sparse_tables_kernel, cuda, make_tables)

}  // namespace convscope::sparse_cuda
