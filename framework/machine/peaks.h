// SPDX-License-Identifier: Apache-2.0
// peaks.h: the peak rates of this machine, which `convscope info --measure` measures: the height
// of the roofline. `auto` estimates times with the measured peaks if available, and with built-in
// numbers otherwise.
//
// The file is peaks_cpu.json (peaks_cuda.json) in the cache folder (machine.h). Its keys name
// the CPU, the instruction set and the number of cores. So one file serves several machines, and a
// machine without measurements uses the built-in numbers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "framework/device.h"
#include "framework/dtype.h"

namespace convscope {

// A rate per second.
struct Peak {
  double one_thread = 0;
  double all_threads = 0;
  // Returns the rate of `threads` threads on a machine with `cores` cores. The rate grows with the
  // number of threads up to the limit of all cores together.
  double with(int threads, int cores) const {
    const double sum = one_thread * threads;
    return threads < cores && sum < all_threads ? sum : threads == 1 ? one_thread : all_threads;
  }
};

struct CpuPeaks {
  int cores = 1;          // the number of threads of `all_threads`
  Peak flops;             // f32, multiply and add counted as two
  Peak l2_read, l2_copy;  // bytes; copy counts bytes read and bytes written
  Peak l3_read, l3_copy;  // 0 when there is no such cache
  Peak dram_read, dram_copy;
  std::size_t l2_bytes = 0;  // per core
  std::size_t l3_bytes = 0;  // total
  // Rate of u8 x i8 products added to i32, where a multiplication and an addition count as two. 0
  // means not measured: files of older versions lack this peak.
  Peak int8 = {};

  // Returns the peak for operands of type `operand_type`. For int8, this is the measured int8 peak;
  // without a measurement, it is peak_of_bytes() times the f32 peak.
  CONVSCOPE_API Peak peak(DType operand_type) const;
};

// Returns how many int8 products the current instruction set computes in the time of one f32
// product: 4 with VNNI.
CONVSCOPE_API double peak_of_bytes();

// Returns the stored peaks of this machine with the current instruction set; nothing when not
// measured or when the file is damaged. Reads the file once per process and path.
CONVSCOPE_API std::optional<CpuPeaks> remembered_cpu_peaks();
// Stores the peaks in this process and on disk. Prints a warning on stderr when the file cannot be
// written.
CONVSCOPE_API void remember_cpu_peaks(const CpuPeaks& peaks);
CONVSCOPE_API std::string cpu_peaks_path();

// Peaks of a GPU, measured with large products of random numbers, a copy, and small kernels.
struct GpuPeaks {
  double f32_flops = 0;       // per second; f32 products
  double tf32_flops = 0;      // tensor cores
  double half_flops = 0;      // tensor cores, bf16
  double copy_bytes = 0;      // read and written
  double launch_seconds = 0;  // between the starts of two small kernels in a recording
};
// The results of `info --measure` on an H200, with short products, copies and launches. `auto` uses
// them for a GPU without measurements.
inline constexpr GpuPeaks kMeasuredH200{.f32_flops = 51.4e12,
                                        .tf32_flops = 409e12,
                                        .half_flops = 808e12,
                                        .copy_bytes = 2.76e12,
                                        .launch_seconds = 2.77e-6};
// Returns the stored peaks of the current CUDA device, or nothing without a device or stored peaks.
// The file's keys name the GPU and the CUDA version that its driver supports.
CONVSCOPE_API std::optional<GpuPeaks> remembered_gpu_peaks();
CONVSCOPE_API void remember_gpu_peaks(const GpuPeaks& peaks);
CONVSCOPE_API std::string gpu_peaks_path();
// Discards the peaks cached in this process, so that tests can read the file again.
CONVSCOPE_API void forget_cpu_peaks();

// Returns false with CONVSCOPE_MEASURE=off in the environment, which is for results that must not
// depend on the machine. Then `auto` uses the built-in numbers even if peaks are stored, and
// commands measure only on request.
CONVSCOPE_API bool believes_measured_peaks();

// The peaks that `auto` assumes for all threads together. The caller may set them. Otherwise, on a
// CPU, they are the measured peaks of one thread, or built-in peaks of a server core, times the
// number of threads. Peak arithmetic and bandwidth are then proportional to the number of threads,
// so that this number does not change the ranking of algorithms.
struct MachinePeaks {
  double flops_per_second = 0;
  double bytes_per_second = 0;
  // GPU only; 0 = as flops_per_second.
  double tf32_flops_per_second = 0;  // tensor cores
  double half_flops_per_second = 0;
  double launch_seconds = 0;
  double processors = 132;  // SMs
  double l2_bytes = 50e6;
  double int8_flops_per_second = 0;  // CPU only; 0 = peak_of_bytes() times flops_per_second

  double peak(DType operand_type) const;  // without tensor cores
};
CONVSCOPE_API MachinePeaks machine_peaks(DeviceType device = DeviceType::cpu);
CONVSCOPE_API void set_machine_peaks(const MachinePeaks& peaks,  // {} = defaults again
                                     DeviceType device = DeviceType::cpu);

}  // namespace convscope
