// SPDX-License-Identifier: Apache-2.0
// run_check.cpp: checks algorithms, each in its own process.
#include "experiments/check/run_check.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>

#include "experiments/plugins/child_process.h"
#include "experiments/plugins/plugins.h"

namespace convscope {
namespace {

constexpr double kSecondsForOneCase = 120, kSecondsToOpen = 10;

std::string without_operation(const std::string& text) {
  const std::size_t end = text.find("] ");
  return text.starts_with("[") && end != std::string::npos ? text.substr(end + 2) : text;
}

const char* likely_cause_of_signal(int signal) {
  switch (signal) {
    case SIGABRT:
      return ": abort(), a failed assert, or overwritten heap memory";
    case SIGFPE:
      return ": an integer is divided by zero";
    case SIGILL:
      return ": this CPU lacks the instruction, or a function ends without a return";
    case SIGSEGV:
    case SIGBUS:
      return ": an index may lead far outside of an array";
    case SIGKILL:
      return ": it was ended from outside, perhaps by the system because memory ran out";
    default:
      return "";
  }
}

// Returns the cause when an algorithm's process did not end normally.
std::string cause_of(const ChildEnd& end) {
  switch (end.kind) {
    case ChildEnd::Kind::threw:
      return cat("it ends with an exception: ", end.said);
    case ChildEnd::Kind::exited:
      return cat(
          "it ", end.cause,
          " before its result is judged: exit(), _exit() or the like is called; an algorithm "
          "returns to its caller");
    case ChildEnd::Kind::signalled:
      return cat("it ", end.cause, likely_cause_of_signal(end.code));
    case ChildEnd::Kind::silent:
      return cat("it ", end.cause, ": a loop may not end");
    case ChildEnd::Kind::late:
      return cat("it ", end.cause, ", which --timeout allows");
    case ChildEnd::Kind::loud:
      return cat("it ", end.cause, ": an algorithm prints nothing");
    case ChildEnd::Kind::finished:
      return "its process ended without a result: the memory of the check was changed";
  }
  return "";
}

// "forward of n=1,c=2,..., integers" -> "n=1,c=2,..."
std::string problem_in(const std::string& doing) {
  const std::size_t begin = doing.find(" of ");
  const std::size_t stop = doing.find(", ");
  if (begin == std::string::npos || stop == std::string::npos || stop < begin) return "";
  const std::string problem = doing.substr(begin + 4, stop - begin - 4);
  return problem.find('=') == std::string::npos ? "" : problem;
}

}  // namespace

std::vector<CheckTask> tasks_of_plugin(const std::string& file) {
  const ChildEnd end = run_in_child(
      [&](const ChildWork& work) {
        const OpenedPlugin plugin = open_plugin_here(file, work.note);
        work.hand_over(nlohmann::json(plugin.algorithms).dump());
        return 0;
      },
      {.note_seconds = kSecondsToOpen});
  const auto refused = [&](std::string why) {
    return std::vector<CheckTask>{{.plugin = file, .algorithm = "", .refusal = std::move(why)}};
  };
  if (end.kind == ChildEnd::Kind::threw) return refused(without_operation(end.said));
  const nlohmann::json algorithms = nlohmann::json::parse(end.result, nullptr, false);
  if (!end.finished() || !algorithms.is_array() || algorithms.empty()) {
    return refused(cat("expected a plug-in in ", file, ", but it ",
                       end.finished() ? "names no algorithm" : cat(end.cause, " ", end.doing)));
  }
  std::vector<CheckTask> out;
  for (const nlohmann::json& algorithm : algorithms) {
    out.push_back({.plugin = file, .algorithm = algorithm.get<std::string>(), .refusal = ""});
  }
  return out;
}

CheckRow run_check(const CheckTask& task, const CheckSettings& settings,
                   const AlgorithmChecker& checker,
                   const std::function<std::string(const std::string&)>& command,
                   const std::function<void(const std::string&)>& watch) {
  CheckRow out{.plugin = task.plugin, .algorithm = task.algorithm};
  if (!task.refusal.empty()) {
    out.status = "refused";
    out.cause = task.refusal;
    return out;
  }
  const auto begin = std::chrono::steady_clock::now();
  const ChildEnd end = run_in_child(
      [&](const ChildWork& work) {
        std::string hash;
        if (!task.plugin.empty()) hash = open_plugin_here(task.plugin, work.note).hash;
        CheckedAlgorithm checked = checker(task.algorithm, work.note);
        CheckRow& row = checked.row;
        row.plugin = task.plugin;
        row.hash = hash;
        if (!checked.problem.empty()) row.again = command(checked.problem);
        work.hand_over(row_json(row));
        return 0;
      },
      {.note_seconds = kSecondsForOneCase, .total_seconds = settings.timeout}, watch);
  bool judged = false;
  if (end.finished()) {
    try {
      out = row_from_json(end.result);
      judged = out.plugin == task.plugin && out.algorithm == task.algorithm;
    } catch (const std::exception&) {
      judged = false;
    }
  }
  if (!judged) {
    out = CheckRow{.plugin = task.plugin, .algorithm = task.algorithm};
    out.status = end.kind == ChildEnd::Kind::late ? "timeout" : "ended";
    out.cause = cause_of(end);
    out.first = end.doing;
    const std::string problem = problem_in(end.doing);
    if (!problem.empty()) out.again = command(problem);
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  } else if (end.left_processes && out.passes()) {
    out.status = "wrong";
    out.cause = "it starts processes that continue after its calls; they were ended";
  }
  out.output = end.output;
  out.output_bytes = end.output_bytes;
  return out;
}

}  // namespace convscope
