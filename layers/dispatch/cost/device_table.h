// SPDX-License-Identifier: Apache-2.0
// device_table.h: the coefficients of the cost model for one device, and which table is in use.
//
//   {"format": "convscope device 1", "device": "AMD Zen 4", "cpu": [{"family": 25, "models":
//   [16]}],
//    "coefficients": {"avx512": {"conv2d direct forward nchw16c": {"issued": 1.1, "tiles": 30}}}}
//   {"format": "convscope device 1", "device": "NVIDIA H200", "gpu": ["NVIDIA H200"],
//    "coefficients": {"cuda": {"conv2d direct forward 3x3": {"issued": 1.2, "chain": 90}}}}
//
// Tables of known devices are in devices/ and compiled into the library. `convscope tune` writes a
// table of this machine into the cache folder, which comes first. A device without a table uses
// `generic`, and `explain` says so. A kernel that a table lacks takes the entry of `generic`, else
// the table's entry of its algorithm ("conv2d direct forward", fitted to all schedules together),
// else that of `generic`, also of another instruction set. A kernel of an algorithm that no table
// has, such as a plug-in's, has default_coefficients().
#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/simd/cpu_isa.h"
#include "layers/dispatch/cost/model.h"

namespace convscope {

// Products at the peak, every byte from memory, one cycle for everything else that is counted.
inline constexpr Coefficients kDefaultOfCpu = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
// On a GPU also a thousand cycles for the first bytes of a block, and a hundred for each step.
inline constexpr Coefficients kDefaultOfGpu = {1000, 100, 50,  50, 1,   1.5, 100, 10, 0.5,
                                               1,    1,   0.7, 1,  0.7, 1,   1,   1,  1};
inline Coefficients default_coefficients(DeviceType device) {
  return device == DeviceType::cpu ? kDefaultOfCpu : kDefaultOfGpu;
}

// Coefficients by instruction set (a GPU: "cuda"), then by kernel: "conv2d direct forward nchw16c".
using CoefficientsByKernel = std::map<std::string, Coefficients>;
struct DeviceTable {
  std::string device;  // "AMD Zen 4"
  struct Cpu {         // as CPUID reports
    int family = 0;
    std::vector<int> models;
  };
  std::vector<Cpu> cpus = {};          // the processors that the table is for
  std::vector<std::string> gpus = {};  // or the GPUs: how their names begin
  std::string fitted = {};             // a sentence: date, cases, error
  std::map<std::string, CoefficientsByKernel> by_isa;
};

// Throws an error of kind kInvalid that names the first problem.
CONVSCOPE_API DeviceTable parse_device_table(const std::string& text);
CONVSCOPE_API std::string device_table_text(const DeviceTable& table);
// Returns the tables that are compiled into the library, by file name ("zen4").
CONVSCOPE_API const std::map<std::string, DeviceTable>& device_tables();

CONVSCOPE_API std::string kernel_of(const CostKey& key, const char* schedule);

// Returns the coefficients of a kernel on this CPU with the current instruction set, or on this
// GPU.
CONVSCOPE_API Coefficients coefficients_of(const CostKey& key, const char* schedule,
                                           DeviceType device);

// The table in use: its name ("zen4", "generic", or "this machine" for one that `convscope tune`
// wrote) and its sentence about the fit.
struct TableInUse {
  std::string name, fitted;
  bool is_generic = false;
};
CONVSCOPE_API TableInUse table_in_use(DeviceType device);
// Returns the end of a sentence about the generic table.
inline const char* how_to_tune(DeviceType device) {
  return device == DeviceType::cpu
             ? ", because this processor has none; `convscope tune` measures one"
             : ", because this GPU has none; `convscope tune --device cuda` measures one";
}
// Uses `table` in this process: a resumed run keeps the estimates it began with. "" = the default.
CONVSCOPE_API void use_device_table(const std::string& text, DeviceType device);
// Returns the text that makes use_device_table() restore the current state.
CONVSCOPE_API std::string text_of_table_in_use(DeviceType device);

// Returns the path of the user's table. remember_device_table() replaces the coefficients of the
// instruction sets in `table` and keeps the others.
CONVSCOPE_API std::string user_table_path(DeviceType device);
CONVSCOPE_API void remember_device_table(const DeviceTable& table, DeviceType device);
CONVSCOPE_API std::uint64_t device_table_changes();  // how often a table was exchanged
CONVSCOPE_API void forget_device_tables();           // reads the user's file again; for tests

}  // namespace convscope
