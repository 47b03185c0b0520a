// SPDX-License-Identifier: Apache-2.0
// slurm_script.cpp: the script that Slurm runs for each member of a sweep.
#include "experiments/sweep/cluster/slurm_script.h"

#include <algorithm>

#include "framework/check.h"

namespace convscope {
namespace {

constexpr std::size_t kLongestName = 80;

bool is_plain(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || letter == '_' || letter == '-' || letter == '.';
}

}  // namespace

std::string shell_word(const std::string& text) {
  const auto needs_no_quotes = [](char letter) { return is_plain(letter) || letter == '/'; };
  if (!text.empty() && std::ranges::all_of(text, needs_no_quotes)) {
    return text;
  }
  std::string out = "'";
  for (const char letter : text)
    out += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return out + "'";
}

std::string array_text(const std::vector<std::size_t>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    out += cat(out.empty() ? "" : ",", numbers[i]);
    if (end - i > 1) out += cat("-", numbers[end - 1]);
    i = end;
  }
  return out;
}

std::string slurm_job_name(const std::string& sweep) {
  std::string out = "convscope-";
  for (const char letter : sweep.substr(0, kLongestName)) out += is_plain(letter) ? letter : '_';
  return out;
}

long notice_seconds(const SlurmSettings& settings) {
  const long limit = seconds_of_slurm_time(settings.of("time"));
  return limit <= 0 ? 60 : std::clamp(limit / 6, 10L, 60L);
}

std::string slurm_script(const SlurmScript& script) {
  const SlurmSettings& settings = script.settings;
  const std::string at_once = settings.of("at_once");
  std::string out = "#!/bin/sh\n";
  const auto option = [&](const std::string& text) { out += "#SBATCH " + text + "\n"; };
  const auto given = [&](const char* key, const char* name) {
    if (!settings.of(key).empty()) option(cat("--", name, "=", settings.of(key)));
  };
  option("--job-name=" + slurm_job_name(script.name));
  option("--array=" + array_text(script.queue) + (at_once.empty() ? "" : "%" + at_once));
  option("--ntasks=1");
  given("cpus", "cpus-per-task");
  given("mem", "mem");
  if (!settings.of("gpus").empty()) option("--gres=gpu:" + settings.of("gpus"));
  given("time", "time");
  given("partition", "partition");
  given("account", "account");
  given("qos", "qos");
  // Slurm removes the quotes; they keep '&' and '|' together.
  if (!settings.of("constraint").empty()) {
    option("--constraint=\"" + settings.of("constraint") + "\"");
  }
  option("--requeue");
  option("--open-mode=append");
  option("--output=sweep.slurm-%a.log");
  option(cat("--signal=B:TERM@", notice_seconds(settings)));
  out +=
      "# Submitted from the folder of the sweep. Task I trains member I of sweep.members.json.\n";
  out += cat("cd ", shell_word(script.start_folder), " || exit 6\n");
  out += "export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}\n";
  if (!script.call.empty()) {
    out += cat("export CONVSCOPE_SWEEP_CALL=", shell_word(script.call), "\n");
  }
  // The program replaces the shell, so that the signal reaches it.
  out += cat("exec ", shell_word(script.program), " sweep ", shell_word(script.folder),
             " --work --member \"$SLURM_ARRAY_TASK_ID\"");
  for (const std::string& plugin : script.plugins) out += " --plugin " + shell_word(plugin);
  return out + "\n";
}

}  // namespace convscope
