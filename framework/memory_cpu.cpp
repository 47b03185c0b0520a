// SPDX-License-Identifier: Apache-2.0
// memory_cpu.cpp: the CPU's DeviceBackend: aligned blocks from the C library.
#include <cstdlib>
#include <cstring>

#include "framework/device.h"
#include "framework/memory.h"

namespace convscope {
namespace {

void* system_allocate(int, std::size_t bytes) { return std::aligned_alloc(kAlignmentBytes, bytes); }
void system_free(int, void* pointer, std::size_t) { std::free(pointer); }
void copy(int, void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void fill_bytes(int, void* to, int value, std::size_t bytes) { std::memset(to, value, bytes); }
void synchronize(int) {}
int device_count() { return 1; }

const bool kRegistered = [] {
  register_device_backend(DeviceType::cpu, {.name = "cpu",
                                            .system_allocate = system_allocate,
                                            .system_free = system_free,
                                            .copy_to_host = copy,
                                            .copy_from_host = copy,
                                            .copy_within = copy,
                                            .fill_bytes = fill_bytes,
                                            .synchronize = synchronize,
                                            .device_count = device_count});
  return true;
}();

}  // namespace
}  // namespace convscope
