// SPDX-License-Identifier: Apache-2.0
// memory_cpu.cpp: the CPU's DeviceBackend: aligned blocks from the C library.
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "framework/device.h"
#include "framework/memory/memory.h"

namespace convscope {
namespace {

void* system_allocate(int, std::size_t bytes) { return std::aligned_alloc(kAlignmentBytes, bytes); }
void system_free(int, void* pointer, std::size_t) { std::free(pointer); }
void copy(int, void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void fill_bytes(int, void* to, int value, std::size_t bytes) { std::memset(to, value, bytes); }
void synchronize(int) {}
int device_count() { return 1; }
void* allocate_pinned(std::size_t bytes) {
  return std::aligned_alloc(kAlignmentBytes, ScratchArena::round_up(bytes));
}
void free_pinned(void* pointer) { std::free(pointer); }

// The CPU works synchronously, so a mark is a time stamp.
using Moment = std::chrono::steady_clock::time_point;
void* make_mark(int) { return new Moment; }
void free_mark(int, void* mark) { delete static_cast<Moment*>(mark); }
void set_mark(int, void* mark) { *static_cast<Moment*>(mark) = std::chrono::steady_clock::now(); }
void wait_for_mark(int, void*) {}
double ms_between(int, void* from, void* to) {
  return std::chrono::duration<double, std::milli>(*static_cast<Moment*>(to) -
                                                   *static_cast<Moment*>(from))
      .count();
}
DeviceFacts facts(int) { return {}; }

const bool kRegistered = [] {
  register_device_backend(DeviceType::cpu, {.name = "cpu",
                                            .system_allocate = system_allocate,
                                            .system_free = system_free,
                                            .copy_to_host = copy,
                                            .copy_from_host = copy,
                                            .queue_copy_to_host = copy,
                                            .copy_within = copy,
                                            .fill_bytes = fill_bytes,
                                            .synchronize = synchronize,
                                            .device_count = device_count,
                                            .allocate_pinned = allocate_pinned,
                                            .free_pinned = free_pinned,
                                            .make_mark = make_mark,
                                            .free_mark = free_mark,
                                            .set_mark = set_mark,
                                            .wait_for_mark = wait_for_mark,
                                            .ms_between = ms_between,
                                            .facts = facts});
  return true;
}();

}  // namespace
}  // namespace convscope
