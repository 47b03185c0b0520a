// SPDX-License-Identifier: Apache-2.0
// overlap.cpp: keeps two copies of the device memory: one from before the kernels that may still be
// running, and one that contains their results.
#include "framework/cuda/emulation/overlap.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "framework/cuda/emulation/blocks.h"
#include "framework/cuda/emulation/environment.h"

namespace emulation {

using namespace now;

namespace {

struct Copy {
  std::vector<DeviceBlock> blocks;
  std::vector<std::vector<std::byte>> bytes;
};

// Bytes changed by the kernels that may still be running.
struct Change {
  std::byte* at;
  std::vector<std::byte> before, after;
};

constexpr std::size_t kPiece = 4;    // a change has a multiple of this size, in bytes
constexpr std::size_t kPage = 4096;  // unit of comparison

bool on_in_environment() {
  return environment_says("CONVSCOPE_EMULATION_OVERLAP", "latest", "none");
}

struct Progress {
  bool on = on_in_environment();
  // A copy of the device memory from before the oldest kernel that the next kernel may overlap;
  // empty when all kernels have ended.
  std::optional<Copy> oldest;

  // State of the running grid.
  bool in_grid = false, overlaps = false, others_run = false;
  bool somebody_waited = false, starts_next_behind_wait = false;
  std::optional<Copy> at_begin;
  std::vector<Change> changes;
  // State of the running blocks.
  bool behind_wait = true, let_next_early = false;
  unsigned waiting = 0;
};

Progress& state() {
  static Progress& made = *new Progress;  // never freed: a destructor at process exit may launch
  return made;
}

Copy copy_of_memory() {
  Copy out{.blocks = device_blocks(), .bytes = {}};
  for (const DeviceBlock& block : out.blocks) {
    out.bytes.emplace_back(block.at, block.at + block.bytes);
  }
  return out;
}

void add_changes(std::byte* at, const std::byte* before, std::size_t bytes,
                 std::vector<Change>& out) {
  const auto differs = [&](std::size_t i) {
    return std::memcmp(at + i, before + i, std::min(kPiece, bytes - i)) != 0;
  };
  for (std::size_t i = 0; i < bytes;) {
    const std::size_t page_bytes = std::min(kPage, bytes - i);
    if (i % kPage == 0 && std::memcmp(at + i, before + i, page_bytes) == 0) {
      i += page_bytes;
    } else if (!differs(i)) {
      i += kPiece;
    } else {
      std::size_t end = i;
      while (end < bytes && differs(end)) end += kPiece;
      end = std::min(end, bytes);
      out.push_back({at + i, {before + i, before + end}, {at + i, at + end}});
      i = end;
    }
  }
}

std::vector<Change> changes_since(const Copy& copy) {
  std::vector<Change> out;
  const std::vector<DeviceBlock> now = device_blocks();
  std::size_t at = 0;
  for (std::size_t i = 0; i < copy.blocks.size(); ++i) {
    const DeviceBlock& block = copy.blocks[i];
    while (at < now.size() && now[at].at < block.at) ++at;
    if (at == now.size() || now[at].serial != block.serial) continue;
    add_changes(block.at, copy.bytes[i].data(), block.bytes, out);
  }
  return out;
}

void show_before() {
  for (const Change& change : state().changes) {
    std::memcpy(change.at, change.before.data(), change.before.size());
  }
}
// Makes the writes of the earlier kernels visible. Returns false when this grid has already written
// to one of their addresses.
bool show_after() {
  bool untouched = true;
  for (const Change& change : state().changes) {
    untouched =
        untouched && std::memcmp(change.at, change.before.data(), change.before.size()) == 0;
    std::memcpy(change.at, change.after.data(), change.after.size());
  }
  state().behind_wait = true;
  return untouched;
}

constexpr const char* kWroteEarly =
    "writes memory that an earlier kernel, which may still run, has written, too: expected "
    "wait_for_previous_kernel() first";

}  // namespace

bool set_overlap(bool on) {
  state().oldest.reset();
  return std::exchange(state().on, on);
}

void wait_for_previous() {
  Progress& s = state();
  if (!s.in_grid || !s.overlaps) return;
  s.somebody_waited = true;
  if (s.behind_wait) return;
  ++s.waiting;
  wait_for(&s.behind_wait, "wait_for_previous_kernel");
}

void let_next_start() {
  Progress& s = state();
  if (s.in_grid && !s.behind_wait) s.let_next_early = true;
}

namespace overlap {

void settle() { state().oldest.reset(); }

void run_library(const std::function<void()>& work) {
  if (!state().on) return work();
  Copy before = copy_of_memory();
  work();
  state().oldest = std::move(before);
}

Grid::Grid(bool overlaps) {
  Progress& s = state();
  s.in_grid = s.on;
  if (!s.on) return;
  s.overlaps = overlaps;
  s.others_run = overlaps && s.oldest.has_value();
  s.somebody_waited = false;
  s.starts_next_behind_wait = !overlaps;
  s.changes.clear();
  if (s.others_run) s.changes = changes_since(*s.oldest);
  s.at_begin = copy_of_memory();
  s.behind_wait = true;
}

Grid::~Grid() {
  Progress& s = state();
  if (!s.in_grid) return;
  if (!s.behind_wait) show_after();
  s.in_grid = false;
  s.changes.clear();
  s.at_begin.reset();
}

const char* Grid::end() {
  Progress& s = state();
  if (!s.in_grid) return "";
  if (!s.others_run || s.starts_next_behind_wait) s.oldest = std::move(s.at_begin);
  return s.others_run && !s.somebody_waited
             ? "expected wait_for_previous_kernel() in a kernel that overlaps the previous one: "
               "without it, a wait for this kernel does not include earlier kernels"
             : "";
}

void begin_blocks() {
  Progress& s = state();
  if (!s.in_grid || !s.overlaps) return;
  show_before();
  s.behind_wait = s.let_next_early = false;
  s.waiting = 0;
}

bool somebody_waits() { return state().in_grid && state().waiting > 0; }

const char* go_on() {
  Progress& s = state();
  s.waiting = 0;
  const bool untouched = show_after();
  for (unsigned i = 0; i < cluster().count; ++i) {
    wake_in(cluster().blocks[in_order(i, cluster().count)], &s.behind_wait);
  }
  return untouched ? "" : kWroteEarly;
}

const char* end_blocks() {
  Progress& s = state();
  if (!s.in_grid || !s.overlaps) return "";
  if (!s.behind_wait) return show_after() ? "" : kWroteEarly;  // no thread has waited
  s.starts_next_behind_wait = s.starts_next_behind_wait || !s.let_next_early;
  for (Change& change : s.changes) {
    std::memcpy(change.after.data(), change.at, change.after.size());
  }
  return "";
}

}  // namespace overlap
}  // namespace emulation
