// SPDX-License-Identifier: Apache-2.0
// bench_head.cpp: the facts in a benchmark's JSON file that hold for all of its rows.
#include "experiments/report/bench_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/report/html/run_environment.h"
#include "experiments/report/json_fields.h"
#include "experiments/run_folder/machine_load.h"
#include "framework/check.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

Json parsed(const std::string& text) {
  Json out = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return out.is_object() ? out : Json::object();
}

// "convscope bench conv2d ladder 1" -> "conv2d ladder"
std::string what_of(std::string format) {
  constexpr std::string_view kBegin = "convscope bench ";
  if (!format.starts_with(kBegin)) return format;
  format.erase(0, kBegin.size());
  return format.substr(0, format.rfind(' '));
}

// Leaves out values that are shown elsewhere.
std::string settings_text(const Json& settings) {
  std::vector<std::string> out;
  for (const auto& [key, value] : settings.items()) {
    if (key == "device" || key == "threads" || value.is_null() || value.is_structured()) continue;
    std::string name = key;
    std::ranges::replace(name, '_', ' ');
    out.push_back(cat(name, " ", value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return join(out);
}

// Joins the different values of all files, each value once, in the order of the files: "1 and 2".
template <class Value>
std::string each(const std::vector<BenchHead>& heads, Value&& value) {
  std::vector<std::string> words;
  for (const BenchHead& head : heads) {
    const std::string word = value(head);
    if (!word.empty() && std::ranges::count(words, word) == 0) words.push_back(word);
  }
  return join(words, " and ");
}

}  // namespace

bool BenchHead::disturbed() const {
  return is_disturbed(cores_of_others, device.starts_with("cuda") ? 1 : threads, cores);
}

std::vector<std::string> BenchHead::warnings() const {
  std::vector<std::string> out;
  if (!complete) {
    out.push_back(cat(file,
                      ": the benchmark did not finish; these are the rows that it measured; run it "
                      "again for the missing rows"));
  }
  if (disturbed()) {
    out.push_back(fmt::format(
        "{}: other programs kept {:.1f}{} cores busy while {} thread{} measured: the times may be "
        "too long; measure again on a quiet machine",
        file, *cores_of_others, cores > 0 ? fmt::format(" of {}", cores) : "", threads,
        threads == 1 ? "" : "s"));
  }
  return out;
}

BenchHead bench_head(const std::string& file, const std::string& format, bool complete,
                     const std::string& machine_text, const std::string& settings_json) {
  const Json machine = parsed(machine_text), settings = parsed(settings_json);
  const RunEnvironment environment = parse_run_environment(machine_text);
  BenchHead out{.file = file,
                .what = what_of(format),
                .device = text_at(settings, "device"),
                .device_name = environment.cpu,
                .isa = text_at(machine, "isa"),
                .started = environment.started,
                .version = environment.version,
                .commit = environment.commit,
                .project = environment.project,
                .settings = settings_text(settings),
                .command = {},
                .threads = environment.threads,
                .cores = environment.cores,
                .cores_of_others = environment.cores_of_others,
                .complete = complete};
  if (out.device.empty()) out.device = "cpu";
  if (out.device.starts_with("cuda")) {
    const auto cuda = machine.find("cuda");
    const bool named = cuda != machine.end() && cuda->is_object() && cuda->contains("devices") &&
                       (*cuda)["devices"].is_array() && !(*cuda)["devices"].empty() &&
                       (*cuda)["devices"][0].is_object();
    out.device_name = named ? text_at((*cuda)["devices"][0], "name") : "";
  }
  const auto arguments = machine.find("arguments");
  if (arguments != machine.end() && arguments->is_array()) {
    for (const Json& word : *arguments) {
      if (word.is_string())
        out.command += (out.command.empty() ? "" : " ") + word.get<std::string>();
    }
  }
  return out;
}

std::string bench_title(const std::vector<BenchHead>& heads) {
  const std::string names = each(heads, [](const BenchHead& head) { return head.device_name; });
  const std::string devices = each(heads, [](const BenchHead& head) { return head.device; });
  const std::string threads =
      each(heads, [](const BenchHead& head) { return head.threads > 0 ? cat(head.threads) : ""; });
  std::string out = each(heads, [](const BenchHead& head) { return head.what; });
  if (out.empty()) out = "benchmark";
  out += cat(" on ", names.empty() ? devices : names);
  const bool on_cpu = std::ranges::any_of(
      heads, [](const BenchHead& head) { return !head.device.starts_with("cuda"); });
  if (on_cpu && !threads.empty())
    out += cat(", ", threads, threads == "1" ? " thread" : " threads");
  return out;
}

}  // namespace convscope
