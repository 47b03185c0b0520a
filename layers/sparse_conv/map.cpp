// SPDX-License-Identifier: Apache-2.0
// map.cpp: the map of a sparse convolution. Finds the output sites, and fills the table by one walk
// over sorted keys for each row of taps.
#include "layers/sparse_conv/map.h"

#include <algorithm>
#include <map>
#include <utility>

#include "framework/int_math.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

constexpr const char* kMap = "sparse map";
constexpr std::int64_t kMaxSize = 7;  // of a kernel along one axis

void check_kernel(const SparseKernel& kernel, int rank) {
  for (std::size_t d = 0; d < 3; ++d) {
    CONVSCOPE_CHECK(kernel.size[d] >= 1 && kernel.size[d] <= kMaxSize, kMap,
                    "expected kernel sizes from 1 to ", kMaxSize, ", got ", kernel.text(rank));
    CONVSCOPE_CHECK(kernel.stride[d] >= 1 && kernel.dilation[d] >= 1 && kernel.padding[d] >= 0,
                    kMap, "expected strides and dilations of at least 1 and paddings of at least ",
                    "0, got ", kernel.text(rank));
    CONVSCOPE_CHECK(
        kernel.stride[d] < 1 << 20 && kernel.dilation[d] < 1 << 20 && kernel.padding[d] < 1 << 24,
        kMap, "expected strides and dilations below 2^20 and paddings below 2^24, got ",
        kernel.text(rank));
  }
  CONVSCOPE_CHECK(rank == 3 || (kernel.size[0] == 1 && kernel.stride[0] == 1 &&
                                kernel.padding[0] == 0 && kernel.dilation[0] == 1),
                  kMap, "expected nothing along t because the sites are 2-D, got ", kernel.text(3));
}

SparseKernel centred(SparseKernel kernel, int rank) {
  for (std::size_t d = 0; d < 3; ++d) {
    CONVSCOPE_CHECK(kernel.size[d] % 2 == 1 && kernel.stride[d] == 1, kMap,
                    "expected odd sizes and stride 1 because a submanifold convolution keeps its "
                    "sites, got ",
                    kernel.text(rank));
    kernel.padding[d] = kernel.dilation[d] * (kernel.size[d] - 1) / 2;
  }
  check_kernel(kernel, rank);
  return kernel;
}

// An entry has 32 bits: one bit for each tap of its row, the remaining bits for a site.
void check_count(const SparseSites& sites, const SparseKernel& kernel) {
  CONVSCOPE_CHECK(sites.count() < std::int64_t{1} << (32 - kernel.run()), kMap,
                  "expected fewer than 2^", 32 - kernel.run(), " sites for a kernel of ",
                  kernel.size[2], " taps along w, got ", sites.count());
}

SiteGrid strided_grid(SiteGrid grid, const SparseKernel& kernel) {
  for (std::size_t d = 0; d < 3; ++d) {
    const std::int64_t reach = kernel.dilation[d] * (kernel.size[d] - 1) + 1;
    const std::int64_t room = grid.extent[d] + 2 * kernel.padding[d] - reach;
    CONVSCOPE_CHECK(room >= 0, kMap, "expected a kernel that fits into the padded grid, got ",
                    kernel.text(grid.rank), " in ", grid.text());
    grid.extent[d] = room / kernel.stride[d] + 1;
  }
  return grid;
}

// Returns the output sites that have at least one input site at one of their taps. For each input
// site, computes the possible output coordinates on each axis, and takes all combinations of them.
SharedSites strided_sites(const SparseSites& in, const SparseKernel& kernel) {
  const SiteGrid grid = strided_grid(in.grid(), kernel);
  std::vector<std::uint64_t> keys;
  std::array<std::array<std::int64_t, kMaxSize>, 3> outs = {};
  std::array<std::size_t, 3> counts = {};
  const SparseSites keyed(std::vector<std::uint64_t>(), grid);
  for (std::int64_t i = 0; i < in.count(); ++i) {
    const SitePlace place = in.place(i);
    for (std::size_t d = 0; d < 3; ++d) {
      counts[d] = 0;
      for (std::int64_t t = 0; t < kernel.size[d]; ++t) {
        const std::int64_t to = place.at[d] + kernel.padding[d] - t * kernel.dilation[d];
        if (to < 0 || to % kernel.stride[d] != 0) continue;
        if (to / kernel.stride[d] < grid.extent[d]) outs[d][counts[d]++] = to / kernel.stride[d];
      }
    }
    for (std::size_t a = 0; a < counts[0]; ++a) {
      for (std::size_t b = 0; b < counts[1]; ++b) {
        for (std::size_t c = 0; c < counts[2]; ++c) {
          keys.push_back(keyed.key({place.batch, {outs[0][a], outs[1][b], outs[2][c]}}));
        }
      }
    }
  }
  return std::make_shared<const SparseSites>(std::move(keys), grid);
}

// Fills one table that lists, for each site in `here`, its neighbours in `there`.
class TableBuilder {
 public:
  TableBuilder(const SparseSites& here, const SparseSites& there, const SparseKernel& kernel,
               bool by_input)
      : here_(here), there_(there), kernel_(kernel), by_input_(by_input) {
    table_.sites = here.count();
    table_.taps = kernel.taps();
    table_.run = kernel.run();
    table_.descending = by_input;
  }

  std::shared_ptr<const SparseTable> build(std::vector<std::int64_t>& pairs) {
    const std::int64_t rows = table_.taps / table_.run, n = table_.sites;
    constexpr std::int64_t kSites = 4096;
    const std::int64_t chunks = ceil_div(n, kSites);
    table_.entries.resize(static_cast<std::size_t>(rows * n));
    std::vector<std::int64_t> counts(static_cast<std::size_t>(chunks * table_.taps));
    parallel_chunks(chunks, [&](std::int64_t chunk, int) {
      const std::int64_t begin = chunk * kSites, end = std::min(n, begin + kSites);
      std::vector<SitePlace> places;
      for (std::int64_t i = begin; i < end; ++i) places.push_back(here_.place(i));
      for (std::int64_t row = 0; row < rows; ++row) {
        walk(row, begin, end, places, counts.data() + chunk * table_.taps);
      }
    });
    pairs.assign(static_cast<std::size_t>(table_.taps), 0);
    for (std::size_t i = 0; i < counts.size(); ++i) pairs[i % pairs.size()] += counts[i];
    return std::make_shared<const SparseTable>(std::move(table_));
  }

 private:
  // Finds along one axis the position in `there` of tap t of a site in `here`. Returns false if
  // there is none.
  bool position(std::size_t d, std::int64_t t, std::int64_t at, std::int64_t& out) const {
    if (by_input_) {
      const std::int64_t to = at + kernel_.padding[d] - t * kernel_.dilation[d];
      if (to < 0 || to % kernel_.stride[d] != 0) return false;
      out = to / kernel_.stride[d];
    } else {
      out = at * kernel_.stride[d] - kernel_.padding[d] + t * kernel_.dilation[d];
    }
    return out >= 0 && out < there_.grid().extent[d];
  }

  void walk(std::int64_t row, std::int64_t begin, std::int64_t end,
            const std::vector<SitePlace>& places, std::int64_t* counts) {
    if (by_input_) return walk<true, 0>(row, begin, end, places, counts);
    table_.run == 3 ? walk<false, 3>(row, begin, end, places, counts)
                    : walk<false, 0>(row, begin, end, places, counts);
  }

  // kRun is the run if it is known at compile time.
  template <bool kByInput, int kRun>
  void walk(std::int64_t row, std::int64_t begin, std::int64_t end,
            const std::vector<SitePlace>& places, std::int64_t* counts) {
    const std::int64_t run = kRun == 0 ? table_.run : kRun, stride = kernel_.stride[2];
    const std::int64_t first_tap = row * run, last = kernel_.size[2];
    const std::int64_t t = first_tap / (last * kernel_.size[1]);
    const std::int64_t r = first_tap / last % kernel_.size[1], s = first_tap % last;
    const std::array<std::int64_t, 3> extent = there_.grid().extent;
    // For an output at w, tap s reads w * stride + shift; an input at w reaches (w + shift) /
    // stride.
    const std::int64_t shift = kByInput ? kernel_.padding[2] - s * kernel_.dilation[2]
                                        : s * kernel_.dilation[2] - kernel_.padding[2];
    const std::uint64_t* const keys = there_.keys().data();
    const std::int64_t count = there_.count();
    std::uint32_t* const entries = table_.entries.data() + row * table_.sites;
    std::int64_t at = -1;  // index of the first key in or after the window; -1: not known yet
    for (std::int64_t i = begin; i < end; ++i) {
      const SitePlace& place = places[static_cast<std::size_t>(i - begin)];
      std::int64_t to_t = 0, to_h = 0;
      entries[i] = 0;
      if (!position(0, t, place.at[0], to_t) || !position(1, r, place.at[1], to_h)) continue;
      // The window [low, high] along w.
      const std::int64_t edge = kByInput ? place.at[2] + shift : place.at[2] * stride + shift;
      std::int64_t low = edge, high = edge + run - 1;
      if constexpr (kByInput) {
        low = -floor_div(run - 1 - edge, stride);
        high = floor_div(edge, stride);
      }
      low = std::max<std::int64_t>(low, 0);
      high = std::min(high, extent[2] - 1);
      if (low > high) continue;
      const auto row_key = static_cast<std::uint64_t>(
          ((place.batch * extent[0] + to_t) * extent[1] + to_h) * extent[2]);
      const std::uint64_t low_key = row_key + static_cast<std::uint64_t>(low);
      if (at < 0) at = std::lower_bound(keys, keys + count, low_key) - keys;
      while (at < count && keys[at] < low_key) ++at;
      std::uint32_t bits = 0;
      const std::int64_t most = std::min(run, count - at);
      for (std::int64_t j = 0; j < most; ++j) {
        const auto w = static_cast<std::int64_t>(keys[at + j] - row_key);
        const std::int64_t tap = kByInput ? edge - w * stride : w - edge;
        bits |= (w <= high ? 1u : 0u) << (tap & 31);
      }
      for (std::int64_t j = 0; j < run; ++j) counts[first_tap + j] += bits >> j & 1;
      if (bits != 0) entries[i] = static_cast<std::uint32_t>(at) << run | bits;
    }
  }

  const SparseSites &here_, &there_;
  const SparseKernel& kernel_;
  const bool by_input_;
  SparseTable table_;
};

}  // namespace

std::string SparseKernel::text(int rank) const {
  const auto sizes = [&](const std::array<std::int64_t, 3>& of) {
    std::string out;
    for (std::size_t d = static_cast<std::size_t>(3 - rank); d < 3; ++d) {
      out += (out.empty() ? "" : "x") + std::to_string(of[d]);
    }
    return out;
  };
  std::string out = "kernel=" + sizes(size);
  const SparseKernel plain;
  if (stride != plain.stride) out += ",stride=" + sizes(stride);
  if (padding != plain.padding) out += ",pad=" + sizes(padding);
  if (dilation != plain.dilation) out += ",dilation=" + sizes(dilation);
  return out;
}

std::size_t SparseTable::bytes() const { return entries.size() * sizeof(std::uint32_t); }

// A strided map has one table by output and one by input; a submanifold map has one for both uses.
struct SparseMap::Made {
  std::mutex mutex;
  std::shared_ptr<const SparseTable> from_output, from_input;
  std::vector<std::int64_t> pairs;  // of each tap; empty: no table was made
  std::int64_t all_pairs = -1;      // -1: not counted yet
  std::function<std::int64_t()> count;
  std::map<std::string, std::shared_ptr<const void>> forms;
};

SparseMap::SparseMap() : made_(std::make_shared<Made>()) {}

SharedMap SparseMap::submanifold(SharedSites sites, SparseKernel kernel) {
  std::shared_ptr<SparseMap> out(new SparseMap);
  out->kernel_ = centred(kernel, sites->grid().rank);
  out->in_ = out->out_ = std::move(sites);
  check_count(*out->in_, out->kernel_);
  return out;
}

SharedMap SparseMap::strided(SharedSites sites, const SparseKernel& kernel) {
  check_kernel(kernel, sites->grid().rank);
  std::shared_ptr<SparseMap> out(new SparseMap);
  out->kind_ = SparseKind::strided;
  out->kernel_ = kernel;
  out->in_ = std::move(sites);
  out->out_ = strided_sites(*out->in_, kernel);
  check_count(*out->in_, kernel);
  check_count(*out->out_, kernel);
  return out;
}

SharedMap SparseMap::inverse(const SharedMap& strided) {
  CONVSCOPE_CHECK(strided->kind_ == SparseKind::strided, kMap,
                  "expected a strided map to invert, got ", strided->text());
  std::shared_ptr<SparseMap> out(new SparseMap(*strided));
  out->kind_ = SparseKind::inverse;
  std::swap(out->in_, out->out_);
  return out;
}

SparseLook SparseMap::look_by_output() const {
  return {.here = out_, .there = in_, .by_input = kind_ == SparseKind::inverse};
}

SparseLook SparseMap::look_by_input() const {
  // Both directions of a submanifold map are one table: j = o + t means o = j - t.
  if (kind_ == SparseKind::submanifold) {
    return {.here = out_, .there = in_, .by_input = false, .mirrored = true};
  }
  return {.here = in_, .there = out_, .by_input = kind_ == SparseKind::strided};
}

std::shared_ptr<const SparseTable> SparseMap::table(const SparseLook& look) const {
  const std::lock_guard lock(made_->mutex);
  std::shared_ptr<const SparseTable>& out = look.by_input ? made_->from_input : made_->from_output;
  if (out == nullptr) {
    out = TableBuilder(*look.here, *look.there, kernel_, look.by_input).build(made_->pairs);
    made_->all_pairs = 0;
    for (const std::int64_t count : made_->pairs) made_->all_pairs += count;
  }
  return out;
}

SparseView SparseMap::by_output() const { return {table(look_by_output()).get(), false}; }
SparseView SparseMap::by_input() const {
  const SparseLook look = look_by_input();
  return {table(look).get(), look.mirrored};
}

std::int64_t SparseMap::pairs() const {
  std::function<std::int64_t()> count;
  {
    const std::lock_guard lock(made_->mutex);
    if (made_->all_pairs >= 0) return made_->all_pairs;
    count = made_->count;
  }
  std::int64_t counted = 0;
  if (count == nullptr) {
    table(look_by_output());
  } else {
    counted = count();
  }
  const std::lock_guard lock(made_->mutex);
  if (made_->all_pairs < 0) made_->all_pairs = counted;
  return made_->all_pairs;
}

std::int64_t SparseMap::pairs(std::int64_t tap) const {
  table(look_by_output());
  return made_->pairs[static_cast<std::size_t>(tap)];
}

void SparseMap::counts_pairs(std::function<std::int64_t()> count) const {
  const std::lock_guard lock(made_->mutex);
  made_->count = std::move(count);
}

std::shared_ptr<const void> SparseMap::any_form(
    const std::string& name, const std::function<std::shared_ptr<const void>()>& make) const {
  {
    const std::lock_guard lock(made_->mutex);
    if (const auto found = made_->forms.find(name); found != made_->forms.end()) {
      return found->second;
    }
  }
  std::shared_ptr<const void> out = make();  // may request tables itself
  const std::lock_guard lock(made_->mutex);
  return made_->forms.emplace(name, std::move(out)).first->second;
}

std::size_t SparseMap::bytes() const {
  const auto bytes = [&](const SparseSites& sites) {
    return static_cast<std::size_t>(kernel_.taps() / kernel_.run() * sites.count()) *
           sizeof(std::uint32_t);
  };
  return kind_ == SparseKind::submanifold ? bytes(*out_) : bytes(*out_) + bytes(*in_);
}

KernelSlot<std::size_t(const SparseMap&)> sparse_tables_kernel("sparse map");

std::size_t SparseMap::make_tables(Device device) const {
  return sparse_tables_kernel.get(device)(*this);
}

KernelSlot<std::size_t(const SparseMap&)> sparse_halo_tables_kernel("halo of a sparse map");

std::size_t SparseMap::make_halo_tables(Device device) const {
  return device.type == DeviceType::cpu ? 0 : sparse_halo_tables_kernel.get(device)(*this);
}

std::string SparseMap::text() const {
  return cat(name_of(kind_), ",", kernel_.text(rank()), ",grid=", in_->grid().text(),
             ",sites=", in_->count(), ",out_sites=", out_->count(), ",pairs=", pairs());
}

void SparseMap::check_made_of(const SharedSites& sites, SparseKind kind,
                              SparseKernel kernel) const {
  if (kind == SparseKind::submanifold) kernel = centred(kernel, sites->grid().rank);
  CONVSCOPE_CHECK(kind == kind_ && kernel == kernel_, kMap, "expected a map for ", name_of(kind),
                  ",", kernel.text(sites->grid().rank), ", got ", text());
  CONVSCOPE_CHECK(sites == in_, kMap, "expected a map of these ", sites->count(),
                  " sites, got one of ", in_->count(), " other sites: ", text());
}

SharedMap SparseMaps::find(const SharedSites& sites, SparseKind kind,
                           const SparseKernel& kernel) const {
  for (const SharedMap& map : maps_) {
    if (map->kind() == kind && map->in_sites() == sites && map->kernel() == kernel) return map;
  }
  return nullptr;
}

SharedMap SparseMaps::submanifold(const SharedSites& sites, const SparseKernel& kernel) {
  SharedMap map = find(sites, SparseKind::submanifold, centred(kernel, sites->grid().rank));
  if (map == nullptr) maps_.push_back(map = SparseMap::submanifold(sites, kernel));
  return map;
}

SharedMap SparseMaps::strided(const SharedSites& sites, const SparseKernel& kernel) {
  SharedMap map = find(sites, SparseKind::strided, kernel);
  if (map == nullptr) maps_.push_back(map = SparseMap::strided(sites, kernel));
  return map;
}

namespace {
std::size_t make_host_tables(const SparseMap& map) {
  map.by_output();
  map.by_input();
  return map.bytes();
}
}  // namespace
CONVSCOPE_KERNEL(sparse_tables_kernel, cpu, make_host_tables)

}  // namespace convscope
