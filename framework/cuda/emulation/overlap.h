// SPDX-License-Identifier: Apache-2.0
// overlap.h: kernels that begin before the one in front of them has ended (programmatic dependent
// launch, LaunchShape::overlaps_previous), at the worst moment that a GPU may choose.
//
// A GPU may begin kernel B when all blocks of the kernel before, A, have called
// let_next_kernel_start() or have left. What A writes B finds behind wait_for_previous_kernel().
// Where A lets it start before A itself has waited, the kernels in front of A may run as well. So
// each block of B runs to its wait with the memory as it was before all these, and finds what they
// wrote behind it: whoever reads too early reads what was there before.
//
// On with CONVSCOPE_EMULATION_OVERLAP=latest, or set_overlap(). It copies the whole memory of the
// device for each launch: for small problems.
// Source     NVIDIA: CUDA C++ Programming Guide, Programmatic Dependent Launch and Synchronization
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace emulation {

// Returns what it was before.
bool set_overlap(bool on);

// In kernels.
void wait_for_previous();
void let_next_start();

// Device memory, by address. `serial` is another one when a place was freed and allocated again.
struct DeviceBlock {
  std::byte* at;
  std::size_t bytes;
  std::uint64_t serial;
};
std::vector<DeviceBlock> device_blocks();

// ---- for the rest of the emulation ----
namespace overlap {

// A copy or another command that is no kernel: all before it has ended, and what follows begins
// behind it.
void settle();
// A kernel of a library, which overlaps nothing and lets no other start.
void run_library(const std::function<void()>& work);

// A launch. Its destructor leaves the memory as the kernel has written it.
class Grid {
 public:
  explicit Grid(bool overlaps);
  ~Grid();
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;
  // An overlapping kernel in which no thread has waited while others were running: "" or the error.
  const char* end();
};

// Of the blocks that run together.
void begin_blocks();
// When nothing else can go on: what was written before is there now. False: nobody waits for it.
// "" or the error.
bool somebody_waits();
const char* go_on();
const char* end_blocks();

}  // namespace overlap
}  // namespace emulation
