// SPDX-License-Identifier: Apache-2.0
// ceilings.h: what this machine can do at most, as `convscope info --measure` found it: the height
// of the roofline. `auto` estimates with it when it is there, and with built-in numbers otherwise.
//
// The file is ceilings_cpu.json (ceilings_cuda.json) in the cache folder (machine.h). Its keys name
// the CPU, the instruction set and the number of cores, so one file serves several machines, and a
// machine that was never measured finds nothing and keeps the built-in numbers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "framework/device.h"
#include "framework/dtype.h"

namespace convscope {

// One quantity per second.
struct Ceiling {
  double one_thread = 0;
  double all_threads = 0;
  // With `threads` of `cores`: grows with the threads until all of them together are the limit.
  double with(int threads, int cores) const {
    const double sum = one_thread * threads;
    return threads < cores && sum < all_threads ? sum : threads == 1 ? one_thread : all_threads;
  }
};

struct CpuCeilings {
  int cores = 1;             // threads that `all_threads` means
  Ceiling flops;             // f32, multiply and add counted as two
  Ceiling l2_read, l2_copy;  // bytes; copy counts what is read and what is written
  Ceiling l3_read, l3_copy;  // 0 when there is no such cache
  Ceiling dram_read, dram_copy;
  std::size_t l2_bytes = 0;  // of one core
  std::size_t l3_bytes = 0;  // of all
  // u8 times i8 added to i32, multiply and add counted as two; 0 when it was not measured, as by
  // earlier versions.
  Ceiling int8 = {};

  // The peak for factors of this type. Of bytes the measured one, else peak_of_bytes() times that
  // of f32.
  CONVSCOPE_API Ceiling peak(DType factors) const;
};

// How many products of bytes the current instruction set makes in the time of one of f32: 4 with
// VNNI.
CONVSCOPE_API double peak_of_bytes();

// What is remembered of this machine with the current instruction set; nothing when it was not
// measured or the file is damaged. The file is read once for each process and path.
CONVSCOPE_API std::optional<CpuCeilings> remembered_cpu_ceilings();
// Remembers, in this process and on disk. A disk that cannot be written is a warning on stderr.
CONVSCOPE_API void remember_cpu_ceilings(const CpuCeilings& ceilings);
CONVSCOPE_API std::string cpu_ceilings_path();

// Of one GPU, as large products of random numbers, a copy and a row of small kernels find them.
struct GpuCeilings {
  double f32_flops = 0;       // per second; f32 products
  double tf32_flops = 0;      // tensor cores
  double half_flops = 0;      // tensor cores, bf16
  double copy_bytes = 0;      // read and written
  double launch_seconds = 0;  // from one small kernel to the next in a recording
};
// Of one H200, sustained: large products of random numbers, a copy. `auto` believes them of a GPU
// that was never measured: other GPUs have about the same ratios between them, and only these order
// the algorithms.
inline constexpr GpuCeilings kUnmeasuredGpu{.f32_flops = 50e12,
                                            .tf32_flops = 360e12,
                                            .half_flops = 740e12,
                                            .copy_bytes = 4.2e12,
                                            .launch_seconds = 2e-6};
// What `info --measure` finds on that H200, by its own short products, copy and launches. Costs are
// weighed with kUnmeasuredGpu, so `auto` believes of a measured GPU as many times those numbers as
// its measurement is of this one.
inline constexpr GpuCeilings kMeasuredH200{.f32_flops = 51.4e12,
                                           .tf32_flops = 409e12,
                                           .half_flops = 808e12,
                                           .copy_bytes = 2.76e12,
                                           .launch_seconds = 2.77e-6};
// Of the current CUDA device; nothing when there is none. The file's keys name the GPU and what its
// driver speaks.
CONVSCOPE_API std::optional<GpuCeilings> remembered_gpu_ceilings();
CONVSCOPE_API void remember_gpu_ceilings(const GpuCeilings& ceilings);
CONVSCOPE_API std::string gpu_ceilings_path();
// Forgets what this process remembers, so that the file is read again. For tests.
CONVSCOPE_API void forget_cpu_ceilings();

// False with CONVSCOPE_MEASURE=off in the environment, for results that must not depend on the
// machine: `auto` then takes the built-in numbers, whatever is remembered, and no command measures
// unless it is asked to.
CONVSCOPE_API bool believes_measured_ceilings();

// What `auto` believes of the machine; all threads together: what was set, or what was measured, or
// the numbers of one modern server core for each thread, which order algorithms well enough. Both
// figures grow alike with the threads, so that the order does not.
struct MachineCeilings {
  double flops_per_second = 0;
  double bytes_per_second = 0;
  // GPU only; 0 = as flops_per_second.
  double tf32_flops_per_second = 0;  // tensor cores
  double half_flops_per_second = 0;
  double launch_seconds = 0;
  double int8_flops_per_second = 0;  // CPU only; 0 = peak_of_bytes() times flops_per_second

  double peak(DType factors) const;  // without tensor cores
};
CONVSCOPE_API MachineCeilings machine_ceilings(DeviceType device = DeviceType::cpu);
CONVSCOPE_API void set_machine_ceilings(const MachineCeilings& ceilings,  // {} = defaults again
                                        DeviceType device = DeviceType::cpu);

}  // namespace convscope
