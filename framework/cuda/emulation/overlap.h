// SPDX-License-Identifier: Apache-2.0
// overlap.h: emulates programmatic dependent launch (LaunchShape::overlaps_previous). A kernel
// begins before the preceding kernel has ended, at the earliest moment that a GPU may choose.
//
// A GPU may begin kernel B when all blocks of the preceding kernel A have called
// let_next_kernel_start() or exited. B sees A's writes after wait_for_previous_kernel(). If A
// allows B to start before A itself has waited, kernels before A may still run, too. So until its
// wait, each block of B sees the memory as it was before all these kernels; after the wait, the
// block sees their results. A kernel that reads too early gets old values.
//
// CONVSCOPE_EMULATION_OVERLAP=latest or set_overlap() switches this emulation on. Each launch
// copies the whole device memory, so use it for small problems.
// Source     NVIDIA: CUDA C++ Programming Guide, Programmatic Dependent Launch and Synchronization
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace emulation {

// Returns the previous setting.
bool set_overlap(bool on);

// Implements griddepcontrol, for kernels.
void wait_for_previous();
void let_next_start();

// A block of device memory, by address. `serial` changes when memory at the same address is freed
// and allocated again.
struct DeviceBlock {
  std::byte* at;
  std::size_t bytes;
  std::uint64_t serial;
};
std::vector<DeviceBlock> device_blocks();

// ---- for the rest of the emulation ----
namespace overlap {

// Ends all earlier kernels. A copy, or any other command except a kernel, calls settle() first,
// because such a command begins after all kernels before it.
void settle();
// Runs a library kernel, which does not overlap and does not let another kernel start early.
void run_library(const std::function<void()>& work);

// The launch of a grid. After the destructor, the device memory contains all writes of the kernel.
class Grid {
 public:
  explicit Grid(bool overlaps);
  ~Grid();
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;
  // Returns "", or an error text if an overlapping kernel has not waited while earlier kernels ran.
  const char* end();
};

// Prepares the state of the blocks that run at the same time (one block, or a cluster).
void begin_blocks();
// Returns true if a thread waits for the previous kernel. When no other thread can continue,
// go_on() makes the earlier writes visible. go_on() and end_blocks() return "" or an error text.
bool somebody_waits();
const char* go_on();
const char* end_blocks();

}  // namespace overlap
}  // namespace emulation
