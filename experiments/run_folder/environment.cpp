// SPDX-License-Identifier: Apache-2.0
// environment.cpp: writes env.json, the environment that a run's numbers depend on in addition to
// the config.
#include "experiments/run_folder/environment.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "experiments/plugins/plugins.h"
#include "experiments/run_folder/machine_load.h"
#include "experiments/run_folder/project_state.h"
#include "experiments/run_folder/run_folder.h"
#include "framework/check.h"
#include "framework/device.h"
#include "framework/distributed/process_group.h"
#include "framework/io/bytes.h"
#include "framework/io/former_names.h"
#include "framework/io/json_text.h"
#include "framework/machine/peaks.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {
namespace {

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

constexpr const char* kCompiler =
#if defined(__clang__)
    "clang " __clang_version__;
#else
    "gcc " __VERSION__;
#endif

nlohmann::ordered_json cuda_devices() {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  const DeviceBackend& backend = backend_of({DeviceType::cuda, 0});
  for (int index = 0; index < backend.device_count(); ++index) {
    const DeviceFacts facts = backend.facts(index);
    out.push_back({{"name", facts.name},
                   {"compute_capability", facts.compute_capability},
                   {"multiprocessors", facts.multiprocessors},
                   {"memory_bytes", facts.total_bytes},
                   {"free_bytes", facts.free_bytes},
                   {"l2_bytes", facts.l2_bytes},
                   {"driver", facts.driver_api},
                   {"runtime", facts.runtime}});
  }
  return out;
}

// Returns whether the peaks that conv.algorithm: auto uses are built-in or measured, and their
// values. Other peaks may lead to other algorithms.
std::string peaks_origin() {
  const auto measured = remembered_cpu_peaks();
  if (!measured || !believes_measured_peaks()) return "built-in";
  const auto text = [](double value) { return std::to_string(std::llround(value * 1e-9)); };
  return cat("measured, ", text(measured->flops.one_thread), " GFLOP/s and ",
             text(measured->dram_copy.one_thread), " GB/s for each thread");
}

nlohmann::ordered_json plugins_json() {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const OpenedPlugin& plugin : opened_plugins()) {
    out.push_back({{"file", plugin.file},
                   {"hash", plugin.hash},
                   {"source", plugin.source},
                   {"algorithms", plugin.algorithms}});
  }
  return out;
}

// Returns "mine 0123456789abcdef" for each plug-in.
std::string plugins_text(const nlohmann::json& plugins) {
  std::string out;
  if (!plugins.is_array()) return out;
  for (const nlohmann::json& one : plugins) {
    if (!one.is_object() || !one.contains("hash") || !one["hash"].is_string()) continue;
    const std::string names = one.contains("algorithms") ? one["algorithms"].dump() : "";
    out += cat(out.empty() ? "" : ", ", names, " ", one["hash"].get<std::string>());
  }
  return out;
}

}  // namespace

std::vector<std::string> process_arguments() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string word; std::getline(in, word, '\0');) arguments.push_back(word);
  return arguments;
}

std::string environment_change(const std::string& env_json_path) {
  const nlohmann::json before = nlohmann::json::parse(
      with_todays_names(text_if_there(env_json_path).value_or(""), env_json_path), nullptr,
      /*allow_exceptions=*/false);
  std::string changes;
  const auto compare = [&](const char* key, const std::string& now) {
    if (!before.is_object() || !before.contains(key) || !before[key].is_string()) return;
    const auto then = before[key].get<std::string>();
    if (then == now) return;
    changes += cat(changes.empty() ? "" : ", ", key, " was '", then, "' and is '", now, "'");
  };
  compare("version", CONVSCOPE_VERSION);
  compare("compiler", kCompiler);
  compare("build_type", CONVSCOPE_BUILD_TYPE);
  compare("isa", std::string(name_of(current_isa())));
  compare("peaks", peaks_origin());
  if (before.is_object() && before.contains("plugins")) {
    const std::string then = plugins_text(before["plugins"]);
    const std::string now = plugins_text(plugins_json());
    if (then != now) {
      changes += cat(changes.empty() ? "" : ", ", "plugins was '", then, "' and is '", now, "'");
    }
  }
  return changes.empty() ? "" : cat("the weights may end with other bits: ", changes);
}

std::string environment_json(const std::vector<std::string>& arguments) {
  const DeviceStatus& cuda = status_of(DeviceType::cuda);
  nlohmann::ordered_json out;
  out["version"] = CONVSCOPE_VERSION;
#if defined(CONVSCOPE_GIT_SHA)
  out["git"] = CONVSCOPE_GIT_SHA;
#else
  out["git"] = nullptr;
#endif
  out["compiler"] = kCompiler;
  out["build_type"] = CONVSCOPE_BUILD_TYPE;
  out["cpu"] = cpu_model();
  out["cpu_features"] = cpu_features();
  out["isa"] = name_of(current_isa());
  out["threads"] = num_threads();
  out["peaks"] = peaks_origin();
  out["kernel"] = first_line("/proc/sys/kernel/osrelease");
  out["cores"] = cores_online();
  out["load_average"] = first_line("/proc/loadavg");
  const std::optional<double> others = rounded_load(cores_of_others());
  out["cores_of_others"] = others ? nlohmann::ordered_json(*others) : nlohmann::ordered_json();
  out["cuda"] = {{"available", cuda.available}, {"reason", cuda.reason}};
  if (cuda.available) out["cuda"]["devices"] = cuda_devices();
  out["project"] = nullptr;
  if (const auto project = project_state(".")) {
    out["project"] = {{"path", project->path},
                      {"branch", project->branch},
                      {"commit", project->commit},
                      {"dirty", project->dirty}};
  }
  out["started"] = utc_time_text(unix_seconds_now());
  out["arguments"] = arguments;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  for (const char* name :
       {"CONVSCOPE_ISA", "GOMP_SPINCOUNT", "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_WAIT_POLICY"}) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  }
  out["variables"] = variables;
  out["plugins"] = plugins_json();
  if (const ProcessGroup* const group = process_group()) {
    std::vector<std::string> hosts;
    for (int rank = 0; rank < group->size(); ++rank) hosts.push_back(group->host_of(rank));
    out["ranks"] = {{"processes", group->size()},
                    {"launcher", group->launcher()},
                    {"library", group->library()},
                    {"hosts", hosts}};
  }
  out["format"] = "convscope env 1";
  return json_text(out);
}

}  // namespace convscope
