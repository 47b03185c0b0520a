// SPDX-License-Identifier: Apache-2.0
// peaks.cpp: the peak rates of this machine, which `convscope info --measure` measures: the
// height of the roofline.
#include "framework/machine/peaks.h"

#include <sched.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>

#include "framework/check.h"
#include "framework/io/json_format.h"
#include "framework/io/json_text.h"
#include "framework/machine/cache_file.h"
#include "framework/machine/machine.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

// `{"format": "convscope peaks 1", "machines": {"<key>": {...}}}`
constexpr const char* kFormat = "convscope peaks 1";

std::mutex given_mutex;
MachinePeaks peaks_given[kDeviceTypeCount];

std::mutex known_mutex;
std::map<std::string, Json> known_by_path;  // path -> "machines"; each file is read once

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::string key_here() {
  static const std::string kModel = cpu_model_name();
  return cat(kModel, " | ", name_of(current_isa()), " | cores=", usable_cores());
}

// The file may hold results that another version of the program has stored; keep them.
void keep_newer_file(const CacheText& text) {
  const Json content = Json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  if (!content.is_object() || !content.value("format", Json()).is_string()) return;
  const auto format = content["format"].get<std::string>();
  if (!is_other_version(format, kFormat)) return;
  fail(ErrorKind::kIo, "peaks", cat("the file has ", format_problem(format, {kFormat})));
}

Json parse_machines(const CacheText& text) {
  const Json content = Json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  const bool ours = content.is_object() && content.value("format", Json()) == kFormat &&
                    content.contains("machines") && content["machines"].is_object();
  return ours ? content["machines"] : Json::object();
}

struct Field {
  const char* name;
  Peak CpuPeaks::*member;
};
constexpr Field kFields[] = {
    {"flops", &CpuPeaks::flops},         {"l2_read", &CpuPeaks::l2_read},
    {"l2_copy", &CpuPeaks::l2_copy},     {"l3_read", &CpuPeaks::l3_read},
    {"l3_copy", &CpuPeaks::l3_copy},     {"dram_read", &CpuPeaks::dram_read},
    {"dram_copy", &CpuPeaks::dram_copy},
};

// The int8 peak depends on VNNI, so the file holds the peaks with and without VNNI under separate
// keys.
constexpr const char* kInt8 = "int8";
constexpr const char* kInt8Vnni = "int8_vnni";
const char* int8_name() { return uses_vnni() ? kInt8Vnni : kInt8; }

Json to_json(const CpuPeaks& peaks) {
  Json out = {{"cores", peaks.cores}, {"l2_bytes", peaks.l2_bytes}, {"l3_bytes", peaks.l3_bytes}};
  for (const Field& field : kFields) {
    const Peak& one = peaks.*field.member;
    out[field.name] = {one.one_thread, one.all_threads};
  }
  if (peaks.int8.one_thread > 0) {
    out[int8_name()] = {peaks.int8.one_thread, peaks.int8.all_threads};
  }
  return out;
}

// Returns nothing when a field is missing or implausible.
std::optional<CpuPeaks> from_json(const Json& json) {
  CpuPeaks out;
  try {
    out.cores = json.at("cores").get<int>();
    out.l2_bytes = json.at("l2_bytes").get<std::size_t>();
    out.l3_bytes = json.at("l3_bytes").get<std::size_t>();
    for (const Field& field : kFields) {
      const Json& pair = json.at(field.name);
      out.*field.member = {pair.at(0).get<double>(), pair.at(1).get<double>()};
    }
    if (json.contains(int8_name())) {  // files of older versions lack it
      const Json& pair = json.at(int8_name());
      out.int8 = {pair.at(0).get<double>(), pair.at(1).get<double>()};
    }
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  const auto sensible = [](const Peak& one) {
    return one.one_thread > 1e6 && one.all_threads > 1e6 && one.one_thread < 1e18 &&
           one.all_threads < 1e18;
  };
  const bool good = out.cores >= 1 && sensible(out.flops) && sensible(out.dram_read) &&
                    sensible(out.dram_copy) &&
                    (json.contains(int8_name()) ? sensible(out.int8) : true);
  return good ? std::optional(out) : std::nullopt;
}

Json& machines_of(const std::string& path) {
  const auto found = known_by_path.find(path);
  if (found != known_by_path.end()) return found->second;
  return known_by_path[path] = parse_machines(read_cache_file(path));
}

void remember(const std::string& path, const std::string& key, const Json& peaks) {
  const std::scoped_lock lock(known_mutex);
  machines_of(path)[key] = peaks;
  change_cache_file(path, "the measured peaks are not stored on disk", [&](const CacheText& text) {
    keep_newer_file(text);
    Json machines = parse_machines(text);  // another process may have added entries
    machines[key] = peaks;
    known_by_path[path] = machines;
    return json_text(Json{{"format", kFormat}, {"machines", machines}}, 1);
  });
}

struct GpuField {
  const char* name;
  double GpuPeaks::*member;
  double least, most;  // limits of plausible numbers
};
constexpr GpuField kGpuFields[] = {
    {"f32_flops", &GpuPeaks::f32_flops, 1e6, 1e18},
    {"tf32_flops", &GpuPeaks::tf32_flops, 1e6, 1e18},
    {"half_flops", &GpuPeaks::half_flops, 1e6, 1e18},
    {"copy_bytes", &GpuPeaks::copy_bytes, 1e6, 1e18},
    {"launch_seconds", &GpuPeaks::launch_seconds, 1e-9, 1},
};

}  // namespace

// Without VNNI, pairs of 16-bit values are multiplied: four instructions (multiplications and
// additions) compute as many products as four FMAs. With AVX-512, these instructions and FMAs share
// two ports. With AVX2 and SSE2, the additions run on a third port, and SSE2 has no FMA.
double peak_of_bytes() {
  if (uses_vnni()) return 4;
  return current_isa() == Isa::avx512 ? 1 : current_isa() == Isa::avx2 ? 1.5 : 2;
}

Peak CpuPeaks::peak(DType operand_type) const {
  if (operand_type != DType::i8 && operand_type != DType::u8) return flops;
  if (int8.one_thread > 0) return int8;
  return {flops.one_thread * peak_of_bytes(), flops.all_threads * peak_of_bytes()};
}

double MachinePeaks::peak(DType operand_type) const {
  if (operand_type != DType::i8 && operand_type != DType::u8) return flops_per_second;
  return int8_flops_per_second > 0 ? int8_flops_per_second : flops_per_second * peak_of_bytes();
}

std::string cpu_peaks_path() { return cache_path("peaks_cpu.json"); }
std::string gpu_peaks_path() { return cache_path("peaks_cuda.json"); }

std::optional<CpuPeaks> remembered_cpu_peaks() {
  const std::scoped_lock lock(known_mutex);
  const Json& machines = machines_of(cpu_peaks_path());
  const auto found = machines.find(key_here());
  if (found == machines.end()) return std::nullopt;
  return from_json(*found);
}

void remember_cpu_peaks(const CpuPeaks& peaks) {
  const std::string path = cpu_peaks_path(), key = key_here();
  Json now = to_json(peaks);
  {
    const std::scoped_lock lock(known_mutex);
    const Json& machines = machines_of(path);
    const auto before = machines.find(key);
    const char* const other = uses_vnni() ? kInt8 : kInt8Vnni;
    if (before != machines.end() && before->contains(other)) now[other] = before->at(other);
  }
  remember(path, key, now);
}

std::optional<GpuPeaks> remembered_gpu_peaks() {
  if (!status_of(DeviceType::cuda).available) return std::nullopt;
  const std::string key = gpu_name({.type = DeviceType::cuda});
  const std::scoped_lock lock(known_mutex);
  const Json& machines = machines_of(gpu_peaks_path());
  const auto found = machines.find(key);
  if (found == machines.end()) return std::nullopt;
  GpuPeaks out;
  for (const GpuField& field : kGpuFields) {
    const auto value = found->is_object() ? found->find(field.name) : found->end();
    if (value == found->end() || !value->is_number()) return std::nullopt;
    out.*field.member = value->get<double>();
    if (!(out.*field.member > field.least && out.*field.member < field.most)) return std::nullopt;
  }
  return out;
}

void remember_gpu_peaks(const GpuPeaks& peaks) {
  Json fields = Json::object();
  for (const GpuField& field : kGpuFields) fields[field.name] = peaks.*field.member;
  remember(gpu_peaks_path(), gpu_name({.type = DeviceType::cuda}), fields);
}

void forget_cpu_peaks() {
  const std::scoped_lock lock(known_mutex);
  known_by_path.clear();
}

bool believes_measured_peaks() {
  const char* const word = std::getenv("CONVSCOPE_MEASURE");
  return word == nullptr || std::string_view(word) != "off";
}

MachinePeaks machine_peaks(DeviceType device) {
  {
    const std::scoped_lock lock(given_mutex);
    const MachinePeaks& given = peaks_given[static_cast<int>(device)];
    if (given.flops_per_second > 0) return given;
  }
  if (device == DeviceType::cuda) {
    const GpuPeaks gpu = remembered_gpu_peaks().value_or(kMeasuredH200);
    MachinePeaks out{.flops_per_second = gpu.f32_flops,
                     .bytes_per_second = gpu.copy_bytes,
                     .tf32_flops_per_second = gpu.tf32_flops,
                     .half_flops_per_second = gpu.half_flops,
                     .launch_seconds = gpu.launch_seconds};
    if (status_of(DeviceType::cuda).available) {
      static const DeviceFacts kFacts = backend_of({.type = DeviceType::cuda}).facts(0);
      out.processors = kFacts.multiprocessors;
      out.l2_bytes = static_cast<double>(kFacts.l2_bytes);
    }
    return out;
  }
  // Uses the peaks of one thread times the number of threads, although threads share the memory
  // bandwidth. So the number of threads scales all estimates by the same factor. It changes neither
  // which algorithm has the lowest estimate, nor the bits of a result.
  const auto measured = remembered_cpu_peaks();
  if (measured && believes_measured_peaks()) {
    return {.flops_per_second = measured->flops.one_thread * num_threads(),
            .bytes_per_second = measured->dram_copy.one_thread * num_threads(),
            .int8_flops_per_second = measured->int8.one_thread * num_threads()};
  }
  // Assumes 32 FLOPs per cycle with FMA vectors, 8 with SSE2, at 3.5 GHz, and 25 GB/s per core.
  const double per_core = current_isa() < Isa::avx2 ? 28e9 : 112e9;
  return {per_core * num_threads(), 25e9 * num_threads()};
}

void set_machine_peaks(const MachinePeaks& peaks, DeviceType device) {
  const std::scoped_lock lock(given_mutex);
  peaks_given[static_cast<int>(device)] = peaks;
}

}  // namespace convscope
