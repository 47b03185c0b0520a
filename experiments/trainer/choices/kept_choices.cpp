// SPDX-License-Identifier: Apache-2.0
// kept_choices.cpp: stores, in choices.json of a run's folder, the measurements on which its
// choices of algorithms depend.
#include "experiments/trainer/choices/kept_choices.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/run_folder/files/own_file.h"
#include "framework/check.h"
#include "framework/io/atomic_file.h"
#include "framework/io/bytes.h"
#include "framework/io/former_names.h"
#include "framework/io/json_text.h"
#include "framework/machine/peaks.h"
#include "layers/dispatch/cost/device_table.h"
#include "layers/dispatch/measure.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFile = "choices.json";
constexpr const char* kFormat = "convscope choices 1";
constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

struct Field {
  const char* name;
  double MachinePeaks::*member;
  bool later = false;  // missing in files of earlier versions
};
constexpr Field kFields[] = {
    {"flops_per_second", &MachinePeaks::flops_per_second},
    {"bytes_per_second", &MachinePeaks::bytes_per_second},
    {"tf32_flops_per_second", &MachinePeaks::tf32_flops_per_second},
    {"half_flops_per_second", &MachinePeaks::half_flops_per_second},
    {"launch_seconds", &MachinePeaks::launch_seconds},
    {"int8_flops_per_second", &MachinePeaks::int8_flops_per_second, true},
    {"processors", &MachinePeaks::processors, true},
    {"l2_bytes", &MachinePeaks::l2_bytes, true},
};

}  // namespace

void KeptChoices::take_over(const std::string& run) {
  const std::string path = cat(run, "/", kFile);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;  // a run of an earlier version
  try {
    const Json content = Json::parse(with_todays_names(read_text(path, kMaxBytes), path));
    CONVSCOPE_CHECK(content.at("format") == kFormat, "choices", "expected the format '", kFormat,
                    "'");
    const auto measured = content.at("measured").get<std::map<std::string, std::string>>();
    const Device device = Device::parse(content.at("device").get<std::string>());
    MachinePeaks peaks;
    for (const Field& field : kFields) {
      if (field.later && !content.at("peaks").contains(field.name)) continue;
      peaks.*field.member = content.at("peaks").at(field.name).get<double>();
      CONVSCOPE_CHECK(peaks.*field.member >= 0 && peaks.*field.member < 1e18, "choices",
                      "expected a number of at least 0 as ", field.name);
    }
    if (content.contains("costs")) {
      use_device_table(content["costs"].get<std::string>(), device.type);
    }
    take_over_answers(measured);
    set_machine_peaks(peaks, device.type);
  } catch (const std::exception& failure) {
    fail(ErrorKind::kIo, "resume",
         cat("expected the choices of a run in ", path, ", got: ", json_problem(failure.what()),
             "; without this file the run continues with newly chosen algorithms"));
  }
}

void KeptChoices::write(const std::string& run) {
  const MachinePeaks peaks = machine_peaks(device_.type);
  Json numbers = Json::object();
  for (const Field& field : kFields) numbers[field.name] = peaks.*field.member;
  const std::string text = json_text(Json{{"format", kFormat},
                                          {"device", device_.str()},
                                          {"peaks", numbers},
                                          {"costs", text_of_table_in_use(device_.type)},
                                          {"measured", given_answers()}});
  if (text == written_) return;
  write_file(own_path(run, kFile), text);
  written_ = text;
}

}  // namespace convscope
