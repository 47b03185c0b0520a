// SPDX-License-Identifier: Apache-2.0
// sites.cpp: checks coordinates, converts them to keys and sorts the keys.
#include "layers/sparse_conv/sites.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "framework/parallel.h"

namespace convscope {
namespace {

constexpr const char* kSites = "sites";
constexpr std::int64_t kMaxSites = std::numeric_limits<std::int32_t>::max();

int rank_of_rows(const Tensor& coordinates) {
  const Shape& shape = coordinates.shape();
  CONVSCOPE_CHECK(
      coordinates.dtype() == DType::i32 && shape.rank() == 2 && (shape[1] == 3 || shape[1] == 4),
      kSites,
      "expected coordinates [n,3] (batch, h, w) or [n,4] (batch, t, h, w) of type i32, "
      "got ",
      coordinates.str());
  return static_cast<int>(shape[1]) - 1;
}

SitePlace place_of_row(const std::int32_t* row, int rank) {
  SitePlace out{.batch = row[0]};
  for (int d = 0; d < rank; ++d) out.at[static_cast<std::size_t>(3 - rank + d)] = row[1 + d];
  return out;
}

const char* axis_name(int axis) {
  constexpr const char* kNames[] = {"t", "h", "w"};
  return kNames[axis];
}

void check_inside(const SiteGrid& grid, const SitePlace& place, std::int64_t row) {
  const auto check = [&](const char* name, std::int64_t value, std::int64_t end) {
    CONVSCOPE_CHECK(value >= 0 && value < end, kSites, "expected ", name, " from 0 to ", end - 1,
                    " in the grid ", grid.text(), ", got ", value, " in row ", row, ": ",
                    site_text(grid, place));
  };
  check("a batch index", place.batch, grid.batch);
  for (int axis = 3 - grid.rank; axis < 3; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    check(axis_name(axis), place.at[i], grid.extent[i]);
  }
}

std::uint64_t key_in(const SiteGrid& grid, const SitePlace& place) {
  const auto u = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  return ((u(place.batch) * u(grid.extent[0]) + u(place.at[0])) * u(grid.extent[1]) +
          u(place.at[1])) *
             u(grid.extent[2]) +
         u(place.at[2]);
}

// Sorts the keys, and the rows with them if rows are given. Each pass is stable and sorts by 11
// bits, the lowest first.
void radix_sort(std::vector<std::uint64_t>& keys, std::vector<std::int32_t>& rows) {
  constexpr int kBits = 11;
  constexpr std::uint64_t kMask = (1u << kBits) - 1;
  const std::uint64_t most = keys.empty() ? 0 : *std::max_element(keys.begin(), keys.end());
  std::vector<std::uint64_t> other_keys(keys.size());
  std::vector<std::int32_t> other_rows(rows.size());
  for (int shift = 0; shift < static_cast<int>(std::bit_width(most)); shift += kBits) {
    std::vector<std::size_t> begin(kMask + 2, 0);
    for (const std::uint64_t key : keys) ++begin[(key >> shift & kMask) + 1];
    for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::size_t to = begin[keys[i] >> shift & kMask]++;
      other_keys[to] = keys[i];
      if (!rows.empty()) other_rows[to] = rows[i];
    }
    keys.swap(other_keys);
    rows.swap(other_rows);
  }
}

}  // namespace

void SiteGrid::check() const {
  CONVSCOPE_CHECK(rank == 2 || rank == 3, kSites, "expected 2 or 3 axes, got ", rank);
  CONVSCOPE_CHECK(rank == 3 || extent[0] == 1, kSites, "expected T = 1 in 2-D, got ", extent[0]);
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  std::int64_t places = batch;
  bool good = batch >= 1 && batch <= kMax;
  for (const std::int64_t size : extent) {
    good = good && size >= 1 && size <= kMax && !__builtin_mul_overflow(places, size, &places) &&
           places <= std::int64_t{1} << 62;
  }
  CONVSCOPE_CHECK(good, kSites,
                  "expected sizes from 1 to 2^31 - 1 and at most 2^62 places in all, got ", text());
}

std::string SiteGrid::text() const {
  std::string out = std::to_string(batch);
  for (int axis = 3 - rank; axis < 3; ++axis) {
    out += cat("x", extent[static_cast<std::size_t>(axis)]);
  }
  return out;
}

std::int64_t SiteGrid::all_places() const {
  check();
  std::int64_t out = batch;
  for (const std::int64_t size : extent) out *= size;
  return out;
}

Shape SiteGrid::dense_shape(std::int64_t channels) const {
  Shape out{batch, channels};
  for (int axis = 3 - rank; axis < 3; ++axis) {
    out.push_back(extent[static_cast<std::size_t>(axis)]);
  }
  return out;
}

SiteGrid SiteGrid::around(const Tensor& coordinates) {
  SiteGrid out{.rank = rank_of_rows(coordinates)};
  const auto* row = coordinates.data<std::int32_t>();
  for (std::int64_t i = 0; i < coordinates.shape()[0]; ++i, row += 1 + out.rank) {
    const SitePlace place = place_of_row(row, out.rank);
    out.batch = std::max(out.batch, place.batch + 1);
    for (std::size_t d = 0; d < 3; ++d) out.extent[d] = std::max(out.extent[d], place.at[d] + 1);
  }
  return out;
}

std::string site_text(const SiteGrid& grid, const SitePlace& place) {
  std::string out = cat("[", place.batch);
  for (int axis = 3 - grid.rank; axis < 3; ++axis) {
    out += cat(", ", place.at[static_cast<std::size_t>(axis)]);
  }
  return out + "]";
}

SparseSites::SparseSites(const Tensor& coordinates, const SiteGrid& grid) : grid_(grid) {
  grid.check();
  const int rank = rank_of_rows(coordinates);
  CONVSCOPE_CHECK(rank == grid.rank, kSites, "expected coordinates [n,", 1 + grid.rank,
                  "] because the grid is ", grid.text(), ", got ", coordinates.str());
  const std::int64_t n = coordinates.shape()[0];
  CONVSCOPE_CHECK(n <= kMaxSites, kSites, "expected fewer than 2^31 sites, got ", n);
  const auto* const rows = coordinates.data<std::int32_t>();
  keys_.resize(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const SitePlace place = place_of_row(rows + i * (1 + rank), rank);
    check_inside(grid, place, i);
    keys_[static_cast<std::size_t>(i)] = key_in(grid, place);
  }
  if (!std::ranges::is_sorted(keys_)) {
    users_row_.resize(keys_.size());
    for (std::size_t i = 0; i < keys_.size(); ++i) users_row_[i] = static_cast<std::int32_t>(i);
    radix_sort(keys_, users_row_);
  }
  const auto twice = std::ranges::adjacent_find(keys_);
  if (twice == keys_.end()) return;
  const std::int64_t at = twice - keys_.begin();
  const auto users = [&](std::int64_t i) {
    return users_row_.empty() ? i : users_row_[static_cast<std::size_t>(i)];
  };
  fail(kSites, cat("expected each place once, got ", site_text(grid, place(at)), " in row ",
                   users(at), " and again in row ", users(at + 1)));
}

SparseSites::SparseSites(std::vector<std::uint64_t> keys, const SiteGrid& grid)
    : grid_(grid), keys_(std::move(keys)) {
  grid.check();
  std::vector<std::int32_t> none;
  if (!std::ranges::is_sorted(keys_)) radix_sort(keys_, none);
  keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
  keys_.shrink_to_fit();
  CONVSCOPE_CHECK(keys_.empty() || keys_.back() < static_cast<std::uint64_t>(grid.all_places()),
                  kSites, "expected keys inside of the grid ", grid.text());
  CONVSCOPE_CHECK(count() <= kMaxSites, kSites, "expected fewer than 2^31 sites, got ", count());
}

SitePlace SparseSites::place(std::int64_t site) const {
  std::uint64_t key = keys_[static_cast<std::size_t>(site)];
  SitePlace out;
  for (std::size_t d = 3; d-- > 0;) {
    const auto size = static_cast<std::uint64_t>(grid_.extent[d]);
    out.at[d] = static_cast<std::int64_t>(key % size);
    key /= size;
  }
  out.batch = static_cast<std::int64_t>(key);
  return out;
}

std::uint64_t SparseSites::key(const SitePlace& place) const { return key_in(grid_, place); }

Tensor SparseSites::coordinates() const {
  Tensor out = Tensor::empty({count(), 1 + grid_.rank}, DType::i32);
  auto* to = out.data<std::int32_t>();
  for (std::int64_t i = 0; i < count(); ++i) {
    const SitePlace at = place(i);
    *to++ = static_cast<std::int32_t>(at.batch);
    for (int axis = 3 - grid_.rank; axis < 3; ++axis) {
      *to++ = static_cast<std::int32_t>(at.at[static_cast<std::size_t>(axis)]);
    }
  }
  return out;
}

std::size_t SparseSites::bytes() const {
  return keys_.size() * sizeof(std::uint64_t) + users_row_.size() * sizeof(std::int32_t);
}

Tensor SparseSites::keys_on(Device device) const {
  const std::lock_guard lock(on_device_);
  if (!device_keys_.defined() || device_keys_.device() != device) {
    Tensor host = Tensor::empty({count(), 2}, DType::i32);
    if (!keys_.empty()) {
      std::memcpy(host.raw_data(), keys_.data(), keys_.size() * sizeof(std::uint64_t));
    }
    device_keys_ = host.to(device);
  }
  return device_keys_;
}

Tensor SparseSites::reordered(const Tensor& rows, bool to_keys) const {
  CONVSCOPE_CHECK(rows.shape().rank() >= 1 && rows.shape()[0] == count(), kSites, "expected ",
                  count(), " rows, one for each site, got ", rows.str());
  if (users_row_.empty()) return rows;
  Tensor out = Tensor::empty(rows.shape(), rows.dtype());
  const std::size_t bytes = static_cast<std::size_t>(rows.size_bytes()) / keys_.size();
  const auto* const from = static_cast<const std::byte*>(rows.raw_data());
  auto* const to = static_cast<std::byte*>(out.raw_data());
  parallel_for(count(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto key = static_cast<std::size_t>(i);
      const auto user = static_cast<std::size_t>(users_row_[key]);
      std::memcpy(to + (to_keys ? key : user) * bytes, from + (to_keys ? user : key) * bytes,
                  bytes);
    }
  });
  return out;
}

}  // namespace convscope
