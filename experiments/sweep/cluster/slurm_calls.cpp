// SPDX-License-Identifier: Apache-2.0
// slurm_calls.cpp: calls of Slurm's programs.
#include "experiments/sweep/cluster/slurm_calls.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/run_folder/files/own_file.h"
#include "experiments/sweep/cluster/slurm_script.h"
#include "framework/check.h"
#include "framework/io/atomic_file.h"
#include "framework/io/bytes.h"
#include "framework/io/clean_text.h"
#include "framework/io/json_text.h"
#include "framework/number_text.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kScriptFile = "sweep.slurm.sh";
constexpr const char* kNoteFile = "sweep.slurm.json";
constexpr const char* kMissing =
    "Slurm's programs (Debian: slurm-client) and its slurm.conf belong on the machine from which "
    "jobs are submitted";

bool is_number(const std::string& text) {
  return !text.empty() && text.size() <= 12 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream cells(line);
  for (std::string cell; std::getline(cells, cell, '|');) out.push_back(clean_line(cell));
  return out;
}

bool is_unknown_job(const OutsideAnswer& answer) {
  return answer.err.find("Invalid job id") != std::string::npos;
}

// Returns a path without special characters for Slurm.
std::string plain_path(const std::string& path) {
  std::error_code error;
  std::string out;
  for (const char letter : std::filesystem::absolute(path, error).lexically_normal().string()) {
    if (letter == '%') out += '%';
    out += letter;
  }
  return out;
}

[[noreturn]] void fail_silent(const OutsideAnswer& answer) {
  fail(ErrorKind::kUnavailable, "sweep",
       cat("expected an answer of Slurm, because it may train members of this sweep already, got: ",
           answer.last_words()));
}

bool same_folder(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) && !error;
}

}  // namespace

OutsideAnswer ask_slurm(const std::vector<std::string>& words, const std::string& folder) {
  return ask_program(words, folder, kMissing);
}

void ask_for_slurm(const std::string& program) { need_program(program, kMissing); }

std::string slurm_state_of(const std::string& job) {
  const OutsideAnswer answer = ask_slurm({"squeue", "--noheader", "--jobs=" + job, "--format=%T"});
  if (answer.exit_code != 0) return "";
  return clean_line(answer.out.substr(0, answer.out.find('\n')));
}

std::map<std::size_t, SlurmTask> parse_slurm_tasks(const std::string& text) {
  std::map<std::size_t, SlurmTask> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells = cells_of(line);
    const std::optional<std::size_t> task =
        cells.size() < 3 ? std::nullopt : parse_number<std::size_t>(cells[0]);
    if (!task) continue;
    cells.resize(4);
    out[*task] = {.state = cells[1], .reason = cells[2], .node = cells[3]};
  }
  return out;
}

std::optional<std::map<std::size_t, SlurmTask>> slurm_tasks(const std::string& job) {
  const OutsideAnswer answer =
      ask_slurm({"squeue", "--noheader", "--array", "--jobs=" + job, "--format=%K|%T|%r|%N"});
  if (answer.exit_code == 0) return parse_slurm_tasks(answer.out);
  if (is_unknown_job(answer)) return std::map<std::size_t, SlurmTask>{};
  return std::nullopt;
}

std::map<std::size_t, std::string> slurm_ends(const std::string& job) {
  const OutsideAnswer answer = ask_slurm(
      {"squeue", "--noheader", "--array", "--states=all", "--jobs=" + job, "--format=%K|%T|%r|%N"});
  std::map<std::size_t, std::string> out;
  if (answer.exit_code != 0) return out;
  for (const auto& [number, task] : parse_slurm_tasks(answer.out)) out[number] = task.state;
  return out;
}

std::string slurm_job_in(const std::string& folder, const std::string& sweep) {
  const SlurmNote note = read_slurm_note(folder);
  if (!note.job.empty()) {
    const OutsideAnswer answer =
        ask_slurm({"squeue", "--noheader", "--jobs=" + note.job, "--format=%T|%Z"});
    if (answer.exit_code != 0 && !is_unknown_job(answer)) fail_silent(answer);
    // A noted job number may belong to another job: numbers begin again after a new installation of
    // Slurm.
    std::istringstream lines(answer.exit_code == 0 ? answer.out : "");
    for (std::string line; std::getline(lines, line);) {
      const std::size_t bar = line.find('|');
      if (bar != std::string::npos && same_folder(line.substr(bar + 1), folder)) return note.job;
    }
  }
  const OutsideAnswer answer =
      ask_slurm({"squeue", "--noheader", "--name=" + slurm_job_name(sweep), "--format=%F|%Z"});
  if (answer.exit_code != 0) fail_silent(answer);
  std::istringstream lines(answer.out);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t bar = line.find('|');
    if (bar == std::string::npos || !is_number(line.substr(0, bar))) continue;
    if (same_folder(line.substr(bar + 1), folder)) return line.substr(0, bar);
  }
  return "";
}

std::string submit_to_slurm(const std::string& folder, const std::string& script) {
  write_file(own_path(folder, kScriptFile), script);
  std::vector<std::string> words = {"sbatch", "--parsable"};
  // Slurm interprets % and \ in the name of the folder, so the output path of such a folder is
  // passed explicitly, with each % doubled.
  if (folder.find_first_of("%\\") != std::string::npos) {
    words.push_back("--output=" + plain_path(folder) + "/sweep.slurm-%a.log");
  }
  words.emplace_back(kScriptFile);
  const OutsideAnswer answer = ask_slurm(words, folder);
  // "17", or "17;cluster"
  const std::string job = answer.out.substr(0, answer.out.find_first_of(";\n"));
  if (answer.exit_code != 0 || !is_number(job)) {
    fail(ErrorKind::kUnavailable, "sweep",
         cat("expected sbatch to take ", folder, "/", kScriptFile, ", got: ", answer.last_words()));
  }
  return job;
}

void cancel_in_slurm(const std::string& job) {
  const OutsideAnswer answer = ask_slurm({"scancel", job});
  if (answer.exit_code != 0 && !is_unknown_job(answer)) {
    fail(ErrorKind::kUnavailable, "sweep",
         cat("expected scancel to end job ", job, ", got: ", answer.last_words()));
  }
}

SlurmNote read_slurm_note(const std::string& folder) {
  SlurmNote note;
  const Json read = Json::parse(text_if_there(cat(folder, "/", kNoteFile)).value_or(""), nullptr,
                                /*allow_exceptions=*/false);
  if (!read.is_object()) return note;
  const Json job = read.value("job", Json()), cancelled = read.value("cancelled", Json());
  if (job.is_string() && is_number(job.get<std::string>())) note.job = job.get<std::string>();
  note.cancelled = cancelled.is_boolean() && cancelled.get<bool>();
  return note;
}

void write_slurm_note(const std::string& folder, const SlurmNote& note) {
  const Json out = {{"job", note.job}, {"cancelled", note.cancelled}};
  write_file(own_path(folder, kNoteFile), json_text(out));
}

}  // namespace convscope
