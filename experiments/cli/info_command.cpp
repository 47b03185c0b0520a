// SPDX-License-Identifier: Apache-2.0
// info_command.cpp: `convscope info`: version, machine, and all names that a config may use.
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/dataset.h"
#include "experiments/bench/bench_report.h"
#include "experiments/bench/peaks/measure_gpu_peaks.h"
#include "experiments/bench/peaks/measure_peaks.h"
#include "experiments/cli/command.h"
#include "experiments/operators/operator_table.h"
#include "experiments/run_folder/environment.h"
#include "framework/device.h"
#include "framework/io/json_text.h"
#include "framework/simd/cpu_isa.h"
#include "layers/dispatch/cost/device_table.h"
#include "layers/dispatch/plugin/plugin_algorithms.h"
#include "layers/layer_types.h"
#include "layers/losses/loss.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

template <class Entry>
Json docs_of(const Registry<Entry>& table) {
  Json out = Json::object();
  for (const auto& [name, entry] : table.entries()) out[name] = entry.doc;
  return out;
}

// Returns the formulas of the losses, followed by the options and their defaults.
Json docs_of_losses() {
  Json out = docs_of(loss_types());
  for (const auto& [name, type] : loss_types().entries()) {
    std::vector<std::string> options;
    for (const OptionField& field : type.fields) {
      const bool none = std::holds_alternative<std::monostate>(field.default_value);
      options.push_back(none ? field.name : cat(field.name, ": ", to_text(field.default_value)));
    }
    if (options.empty()) continue;
    out[name] = cat(type.doc, " {", join(options), "}");
  }
  return out;
}

Json algorithms_of(const std::string& operation, DeviceType device) {
  Json out = Json::object();
  for (const AlgorithmFacts& one : operator_table().get(operation).algorithms(device)) {
    out[one.name] = {{"idea", one.idea}, {"directions", one.directions}, {"paper", one.paper}};
    const PluginAlgorithm* const from = plugin_of_algorithm(operation, one.name);
    if (from != nullptr) out[one.name]["plugin"] = from->file;
  }
  return out;
}

Json gpu_peaks_json(const GpuPeaks& gpu) {
  return {{"f32_flops_per_second", gpu.f32_flops},
          {"tf32_flops_per_second", gpu.tf32_flops},
          {"bf16_flops_per_second", gpu.half_flops},
          {"copy_bytes_per_second", gpu.copy_bytes},
          {"launch_seconds", gpu.launch_seconds}};
}

std::string gpu_peaks_text(const GpuPeaks& gpu) {
  std::string out;
  const auto line = [&](const char* name, double value, const char* unit) {
    char text[80];
    std::snprintf(text, sizeof text, "  %-10s %8.1f  %s\n", name, value, unit);
    out += text;
  };
  line("f32", gpu.f32_flops * 1e-12, "TFLOP/s");
  line("TF32", gpu.tf32_flops * 1e-12, "TFLOP/s");
  line("bf16", gpu.half_flops * 1e-12, "TFLOP/s");
  line("copy", gpu.copy_bytes * 1e-9, "GB/s");
  line("launch", gpu.launch_seconds * 1e6, "us");
  return out;
}

Json facts() {
  Json out = Json::parse(environment_json({}));
  out["format"] = "convscope info 1";
  out.erase("arguments");
  out.erase("started");
  const auto peaks = remembered_cpu_peaks();
  out["peaks"] = peaks ? Json::parse(peaks_json_text(*peaks)) : Json();
  const auto gpu = remembered_gpu_peaks();
  out["cost_table"] = table_in_use(DeviceType::cpu).name;
  if (gpu) out["gpu_cost_table"] = table_in_use(DeviceType::cuda).name;
  out["gpu_peaks"] = gpu ? gpu_peaks_json(*gpu) : Json();
  for (const std::string& name : operator_table().names()) {
    out[name + "_algorithms"] = {{"cpu", algorithms_of(name, DeviceType::cpu)},
                                 {"cuda", algorithms_of(name, DeviceType::cuda)}};
  }
  out["models"] = docs_of(model_types());
  out["layers"] = docs_of(layer_types());
  out["datasets"] = docs_of(dataset_types());
  out["optimizers"] = docs_of(optimizer_types());
  out["losses"] = docs_of_losses();
  out["schedules"] = docs_of(schedule_types());
  return out;
}

void print_line(const std::string& name, const std::string& text) {
  std::cout << name << std::string(name.size() < 14 ? 14 - name.size() : 1, ' ') << text << "\n";
}

void print_table(const std::string& title, const Json& table, const char* text_key) {
  std::cout << "\n" << title << "\n";
  if (table.empty()) std::cout << "  none\n";
  for (const auto& [name, value] : table.items()) {
    const std::string text =
        text_key == nullptr ? value.get<std::string>() : value.at(text_key).get<std::string>();
    std::cout << "  " << name << std::string(name.size() < 18 ? 18 - name.size() : 1, ' ') << text;
    if (value.is_object() && value.contains("plugin")) {
      std::cout << " (plug-in " << value["plugin"].get<std::string>() << ")";
    }
    std::cout << "\n";
  }
}

std::string gpu_text(const Json& device) {
  const auto text = [&](const char* key) { return device.at(key).get<std::string>(); };
  const auto gib = [&](const char* key) {
    return std::to_string(device.at(key).get<std::int64_t>() >> 30);
  };
  return cat(text("name"), ", compute capability ", text("compute_capability"), ", ",
             device.at("multiprocessors").get<int>(), " multiprocessors, ", gib("memory_bytes"),
             " GiB (", gib("free_bytes"), " free), driver for CUDA ", text("driver"),
             ", built with CUDA ", text("runtime"));
}

std::string supported_isas() {
  std::string out;
  for (int i = 0; i < kIsaCount; ++i) {
    const Isa isa = static_cast<Isa>(i);
    if (supports_isa(isa)) out += cat(out.empty() ? "" : "|", name_of(isa));
  }
  return out;
}

void print_text(const Json& all) {
  const auto text = [&](const char* key) { return all.at(key).get<std::string>(); };
  print_line("convscope",
             text("version") + ", " + text("build_type") + " build, " + text("compiler"));
  print_line("cpu", text("cpu"));
  print_line("features", text("cpu_features"));
  print_line("kernels use",
             text("isa") + " (CONVSCOPE_ISA=" + supported_isas() + " chooses another)");
  print_line("threads", std::to_string(all.at("threads").get<int>()));
  const Json& cuda = all.at("cuda");
  if (!cuda.at("available").get<bool>()) {
    print_line("cuda", "not available: " + cuda.at("reason").get<std::string>());
  } else {
    int index = 0;
    for (const Json& device : cuda.at("devices"))
      print_line(cat("cuda:", index++), gpu_text(device));
  }
  const auto peaks = remembered_cpu_peaks();
  print_line("peaks", peaks ? "measured, in " + cpu_peaks_path()
                            : "not measured (convscope info --measure)");
  if (peaks) std::cout << peaks_text(*peaks);
  const auto print_estimates = [](const char* label, DeviceType device) {
    const TableInUse table = table_in_use(device);
    print_line(label, cat("table ", table.name, table.is_generic ? how_to_tune(device) : ""));
  };
  print_estimates("estimates", DeviceType::cpu);
  if (cuda.at("available").get<bool>()) {
    const auto gpu = remembered_gpu_peaks();
    print_line("gpu peaks", gpu ? "measured, in " + gpu_peaks_path()
                                : "not measured (convscope info --measure)");
    if (gpu) std::cout << gpu_peaks_text(*gpu);
    print_estimates("gpu estimates", DeviceType::cuda);
  }
  for (const auto& [name, entry] : operator_table().entries()) {
    const Json& lists = all[name + "_algorithms"];
    print_table(entry.list_titles[0], lists["cpu"], "idea");
    print_table(entry.list_titles[1], lists["cuda"], "idea");
  }
  print_table("Models (model.type)", all["models"], nullptr);
  print_table("Layers (layers: - type)", all["layers"], nullptr);
  print_table("Data sets (data.set)", all["datasets"], nullptr);
  print_table("Optimisers (optim.type)", all["optimizers"], nullptr);
  print_table("Losses (train.loss)", all["losses"], nullptr);
  print_table("Schedules (optim.schedule.type)", all["schedules"], nullptr);
}

std::function<int()> declare(CommandLine& app) {
  auto json = std::make_shared<bool>(false);
  auto measure = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "output as one JSON object");
  app.add_flag("--measure", *measure,
               "measurement of peak arithmetic and bandwidth (a few seconds), kept for `bench` and "
               "conv.algorithm: auto");
  return [json, measure] {
    if (*measure) {
      remember_cpu_peaks(measure_cpu_peaks());
      if (status_of(DeviceType::cuda).available) remember_gpu_peaks(measure_gpu_peaks());
    }
    const Json all = facts();
    if (*json) {
      print_result(json_text(all));
    } else {
      print_text(all);
    }
    return 0;
  };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "info", {.summary = "Show version, machine, algorithms and every name a config may use.",
             .usage = "info [--json] [--measure]",
             .examples = {"info", "info --measure", "info --json"},
             .order = 60,
             .declare = convscope::declare})
