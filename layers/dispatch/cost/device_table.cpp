// SPDX-License-Identifier: Apache-2.0
// device_table.cpp: the coefficients of the cost model for one device, and which table is in use.
#include "layers/dispatch/cost/device_table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "framework/check.h"
#include "framework/device.h"
#include "framework/io/json_format.h"
#include "framework/io/json_text.h"
#include "framework/machine/cache_file.h"
#include "framework/machine/machine.h"
#include "framework/machine/peaks.h"
#include "layers/dispatch/cost/device_texts.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "convscope device 1";
constexpr const char* kGeneric = "generic";
constexpr const char* kUser = "this machine";

constexpr const char* kCuda = "cuda";

std::span<const CostTerm> terms_of(const std::string& isa) {
  return cost_terms(isa == kCuda ? DeviceType::cuda : DeviceType::cpu);
}

Coefficients coefficients_in(std::span<const CostTerm> terms, const std::string& kernel,
                             const Json& content) {
  Coefficients out{};
  for (const auto& [name, value] : content.items()) {
    const auto term = std::ranges::find(
        terms, name, [](const CostTerm& of) { return std::string_view(of.name); });
    if (term == terms.end() || !value.is_number() || value.get<double>() < 0) {
      fail(ErrorKind::kInvalid, "device table",
           cat("expected terms of the cost model with numbers of at least 0 in '", kernel,
               "', got ", name, ": ", value.dump()));
    }
    out[static_cast<std::size_t>(term - terms.begin())] = value.get<double>();
  }
  return out;
}

Json to_json(std::span<const CostTerm> terms, const Coefficients& coefficients) {
  Json out = Json::object();
  for (std::size_t i = 0; i < terms.size(); ++i) {
    // Four digits are more than a fit means.
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.4g", coefficients[i]);
    if (coefficients[i] > 0) out[terms[i].name] = std::strtod(digits, nullptr);
  }
  return out;
}

struct CpuId {
  int family = 0, model = 0;
};
CpuId cpu_id() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return {};
  const unsigned base = a >> 8 & 15;
  const auto family = static_cast<int>(base == 15 ? base + (a >> 20 & 255) : base);
  const bool extended = base == 6 || base == 15;
  return {family, static_cast<int>((a >> 4 & 15) | (extended ? a >> 12 & 0xf0 : 0))};
#else
  return {};
#endif
}

bool is_for(const DeviceTable& table, DeviceType device) {
  if (device == DeviceType::cuda) {
    const std::string name = gpu_model_name();
    return std::ranges::any_of(table.gpus,
                               [&](const std::string& gpu) { return name.starts_with(gpu); });
  }
  const CpuId here = cpu_id();
  return std::ranges::any_of(table.cpus, [&](const DeviceTable::Cpu& cpu) {
    return cpu.family == here.family && std::ranges::count(cpu.models, here.model) > 0;
  });
}

// The table that is asked before the generic one.
struct FirstTable {
  std::string name;
  std::shared_ptr<const DeviceTable> table;
};

std::mutex tables_mutex;
std::atomic<std::uint64_t> table_changes{0};
std::shared_ptr<const FirstTable> tables_now[kDeviceTypeCount];  // null: not read yet

std::string model_name(DeviceType device) {
  return device == DeviceType::cpu ? cpu_model_name() : gpu_model_name();
}

FirstTable default_table(DeviceType device) {
  const CacheText text =
      believes_measured_peaks() ? read_cache_file(user_table_path(device)) : CacheText();
  if (text) {
    try {
      auto table = std::make_shared<const DeviceTable>(parse_device_table(*text));
      if (table->device == model_name(device)) return {kUser, table};
    } catch (const Error&) {
      // A damaged file counts as no file, as for measured peaks.
    }
  }
  if (believes_measured_peaks()) {
    for (const auto& [name, table] : device_tables()) {
      if (is_for(table, device)) return {name, std::make_shared<const DeviceTable>(table)};
    }
  }
  return {kGeneric, std::make_shared<const DeviceTable>(device_tables().at(kGeneric))};
}

std::shared_ptr<const FirstTable> first_table(DeviceType device) {
  const std::scoped_lock lock(tables_mutex);
  auto& now = tables_now[static_cast<int>(device)];
  if (now == nullptr) now = std::make_shared<const FirstTable>(default_table(device));
  return now;
}

const Coefficients* find(const DeviceTable& table, const std::string& isa,
                         const std::string& kernel) {
  const auto by_kernel = table.by_isa.find(isa);
  if (by_kernel == table.by_isa.end()) return nullptr;
  const auto found = by_kernel->second.find(kernel);
  return found == by_kernel->second.end() ? nullptr : &found->second;
}

// Finds any schedule of an algorithm in one direction, with this instruction set or another.
const Coefficients* find_nearest(const DeviceTable& table, const std::string& isa,
                                 const std::string& algorithm_and_direction) {
  const auto find_in = [&](const CoefficientsByKernel& kernels) -> const Coefficients* {
    const auto found = kernels.lower_bound(algorithm_and_direction);
    if (found == kernels.end()) return nullptr;
    const bool same = found->first == algorithm_and_direction ||
                      found->first.starts_with(algorithm_and_direction + " ");
    return same ? &found->second : nullptr;
  };
  if (const auto here = table.by_isa.find(isa); here != table.by_isa.end()) {
    if (const Coefficients* const found = find_in(here->second)) return found;
  }
  for (const auto& [other, kernels] : table.by_isa) {
    if ((other == kCuda) != (isa == kCuda)) continue;
    if (const Coefficients* const found = find_in(kernels)) return found;
  }
  return nullptr;
}

}  // namespace

DeviceTable parse_device_table(const std::string& text) {
  const auto check = [](bool right, const auto&... words) {
    if (!right) fail(ErrorKind::kInvalid, "device table", cat(words...));
  };
  const Json content = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  check(content.is_object() && content.value("format", Json()) == kFormat, "expected the format '",
        kFormat, "'");
  check(content.contains("coefficients") && content["coefficients"].is_object(),
        "expected 'coefficients' by instruction set");
  DeviceTable out;
  try {
    out.device = content.value("device", "");
    out.fitted = content.value("fitted", "");
    for (const Json& cpu : content.value("cpu", Json::array())) {
      out.cpus.push_back({cpu.at("family").get<int>(), cpu.at("models").get<std::vector<int>>()});
    }
    out.gpus = content.value("gpu", std::vector<std::string>());
    for (const auto& [isa, kernels] : content["coefficients"].items()) {
      for (const auto& [kernel, terms] : kernels.items()) {
        out.by_isa[isa][kernel] = coefficients_in(terms_of(isa), kernel, terms);
      }
    }
  } catch (const Json::exception& failure) {
    check(false, json_problem(failure.what()));
  }
  return out;
}

std::string device_table_text(const DeviceTable& table) {
  Json cpus = Json::array();
  for (const DeviceTable::Cpu& cpu : table.cpus) {
    cpus.push_back({{"family", cpu.family}, {"models", cpu.models}});
  }
  Json coefficients = Json::object();
  for (const auto& [isa, kernels] : table.by_isa) {
    coefficients[isa] = Json::object();
    for (const auto& [kernel, of] : kernels) coefficients[isa][kernel] = to_json(terms_of(isa), of);
  }
  return json_text(Json{{"format", kFormat},
                        {"device", table.device},
                        {"fitted", table.fitted},
                        {"cpu", cpus},
                        {"gpu", table.gpus},
                        {"coefficients", coefficients}});
}

const std::map<std::string, DeviceTable>& device_tables() {
  static const std::map<std::string, DeviceTable> kTables = [] {
    std::map<std::string, DeviceTable> out;
    for (const DeviceText& one : device_texts()) out[one.name] = parse_device_table(one.text);
    return out;
  }();
  return kTables;
}

std::string kernel_of(const CostKey& key, const char* schedule) {
  std::string out = cat(key.operation, " ", key.algorithm, " ", name_of(key.direction));
  if (*schedule != '\0') out += cat(" ", schedule);
  return out;
}

Coefficients coefficients_of(const CostKey& key, const char* schedule, DeviceType device) {
  const std::string kernel = kernel_of(key, schedule), algorithm = kernel_of(key, "");
  const std::string isa = device == DeviceType::cuda ? kCuda : std::string(name_of(current_isa()));
  const DeviceTable& generic = device_tables().at(kGeneric);
  const std::shared_ptr<const FirstTable> first = first_table(device);
  const Coefficients* found = find(*first->table, isa, kernel);
  if (found == nullptr) found = find(generic, isa, kernel);
  if (found == nullptr) found = find(*first->table, isa, algorithm);
  if (found == nullptr) found = find_nearest(generic, isa, algorithm);
  return found != nullptr ? *found : default_coefficients(device);
}

TableInUse table_in_use(DeviceType device) {
  const std::shared_ptr<const FirstTable> now = first_table(device);
  return {now->name, now->table->fitted, now->name == kGeneric};
}

void use_device_table(const std::string& text, DeviceType device) {
  std::shared_ptr<const FirstTable> next;
  if (const auto shipped = device_tables().find(text); shipped != device_tables().end()) {
    next = std::make_shared<const FirstTable>(
        FirstTable{text, std::make_shared<const DeviceTable>(shipped->second)});
  } else if (!text.empty()) {
    next = std::make_shared<const FirstTable>(
        FirstTable{kUser, std::make_shared<const DeviceTable>(parse_device_table(text))});
  }
  const std::scoped_lock lock(tables_mutex);
  tables_now[static_cast<int>(device)] = next;
  ++table_changes;
}

std::uint64_t device_table_changes() { return table_changes; }

std::string text_of_table_in_use(DeviceType device) {
  const std::shared_ptr<const FirstTable> now = first_table(device);
  return now->name == kUser ? device_table_text(*now->table) : now->name;
}

std::string user_table_path(DeviceType device) {
  return cache_path(cat("device_", name_of(device), ".json"));
}

void remember_device_table(const DeviceTable& table, DeviceType device) {
  change_cache_file(user_table_path(device), "the coefficients are not stored on disk",
                    [&](const CacheText& text) {
                      DeviceTable merged = table;
                      try {
                        const DeviceTable old = parse_device_table(text.value_or(""));
                        if (old.device == table.device)
                          merged.by_isa.insert(old.by_isa.begin(), old.by_isa.end());
                      } catch (const Error&) {
                        // replaced
                      }
                      return device_table_text(merged);
                    });
  forget_device_tables();
}

void forget_device_tables() {
  use_device_table("", DeviceType::cpu);
  use_device_table("", DeviceType::cuda);
}

}  // namespace convscope
