// SPDX-License-Identifier: Apache-2.0
// measure.cpp: the policy "measure": times every algorithm that accepts a problem and remembers the
// fastest, in this process and on disk.
#include "layers/dispatch/measure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "framework/io/json_format.h"
#include "framework/io/json_text.h"
#include "framework/machine/cache_file.h"
#include "framework/machine/machine.h"
#include "framework/memory/unbacked.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {
namespace {

using Answers = std::map<std::string, std::string>;  // key -> algorithm

// Guards all variables below. The mutex is held while measuring, so that two layers never time at
// once.
std::mutex answers_mutex;
std::map<std::string, Answers> answers_by_path;  // a file is read once
Answers given;  // in this process: key_of_any_machine() -> algorithm
Answers taken_over;

const char* use_text(const MeasureKey& key) {
  return key.use == WeightUse::often ? " | weights prepared before" : "";
}

// The key without processor and number of threads.
std::string key_of_any_machine(const MeasureKey& key) {
  return cat(key.operation, " | ", name_of(key.device.type), " | ", name_of(key.direction), " | ",
             key.problem, use_text(key));
}

std::string text_of(const MeasureKey& key) {
  const std::string use = cat(use_text(key), key.plugins);
  if (key.device.type != DeviceType::cpu) {
    return cat(gpu_name(key.device), " | ", name_of(key.direction), " | ", key.problem, use);
  }
  static const std::string kModel = cpu_model_name();
  return cat(kModel, " | ", name_of(current_isa()), " | threads=", num_threads(), " | ",
             name_of(key.direction), " | ", key.problem, use);
}

void warn(const std::string& sentence) {
  std::fprintf(stderr, "convscope: warning: [measure] %s\n", sentence.c_str());
}

// {"format": "convscope conv2d measurements 1", "fastest": {"<key>": "<algorithm>"}}
std::string format_of(const char* operation) {
  return cat("convscope ", operation, " measurements 1");
}

// A file of a newer version of this program must not be overwritten.
bool is_newer_file(const char* operation, const nlohmann::json& content) {
  return content.is_object() && content.contains("format") && content["format"].is_string() &&
         is_other_version(content["format"], format_of(operation));
}

void keep_newer_file(const char* operation, const CacheText& text) {
  const nlohmann::json content =
      nlohmann::json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  if (!is_newer_file(operation, content)) return;
  fail(ErrorKind::kIo, "measure", "the file is of another version and is left unchanged");
}

Answers parse_answers(const char* operation, const std::string& path, const CacheText& text) {
  Answers out;
  if (!text) return out;  // the first run on this machine
  const nlohmann::json content =
      nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/false);
  const bool ours = content.is_object() && content.contains("format") &&
                    content["format"] == format_of(operation) && content.contains("fastest") &&
                    content["fastest"].is_object();
  if (is_newer_file(operation, content)) {
    warn(cat(path, " has ", format_problem(content["format"], {format_of(operation)}),
             "; it is left as it is, and nothing is remembered"));
    return out;
  }
  if (!ours) {
    warn(cat("expected measurements by convscope in ", path,
             "; the file is ignored and written again"));
    return out;
  }
  for (const auto& [key, name] : content["fastest"].items()) {
    if (name.is_string()) out[key] = name.get<std::string>();
  }
  return out;
}

Answers& answers_of(const char* operation, const std::string& path) {
  const auto found = answers_by_path.find(path);
  if (found != answers_by_path.end()) return found->second;
  return answers_by_path[path] = parse_answers(operation, path, read_cache_file(path));
}

// Stores an answer, merged with what other processes have added since the file was read.
void remember(const MeasureKey& key, const std::string& fastest) {
  const std::string path = measure_cache_path(key.operation, key.device);
  Answers& ours = answers_of(key.operation, path);
  ours[text_of(key)] = fastest;
  change_cache_file(path, "the measurement is not stored on disk", [&](const CacheText& text) {
    keep_newer_file(key.operation, text);
    Answers all = parse_answers(key.operation, path, text);
    all[text_of(key)] = fastest;
    all.merge(ours);
    ours = all;
    nlohmann::json content;
    content["format"] = format_of(key.operation);
    content["fastest"] = all;
    return json_text(content, 1);
  });
}

// Returns "" when there is no answer. The caller holds the mutex.
std::string find_answer(const MeasureKey& key) {
  const auto kept = taken_over.find(key_of_any_machine(key));
  if (kept != taken_over.end()) return kept->second;
  const Answers& answers = answers_of(key.operation, measure_cache_path(key.operation, key.device));
  const auto found = answers.find(text_of(key));
  return found == answers.end() ? "" : found->second;
}

constexpr double kRecordedSeconds = 0.005;  // per candidate; longer runs are replayed once
// A shorter run that is not recorded may wait for the host between its kernels.
constexpr double kHostBoundSeconds = 2e-4;

// Times runs by events in the device's queue. The device must support recordings (CUDA graphs).
double recorded_seconds(const std::function<void()>& run, Device device, double enough) {
  const DeviceBackend& backend = backend_of(device);
  const int index = device.index;
  void* const begin = backend.make_mark(index);
  void* const end = backend.make_mark(index);
  void* recording = nullptr;
  const auto seconds_of = [&](auto&& work) {
    backend.set_mark(index, begin);
    work();
    backend.set_mark(index, end);
    return 1e-3 * backend.ms_between(index, begin, end);
  };
  const auto free_all = [&] {
    if (recording != nullptr) backend.free_recording(index, recording);
    backend.free_mark(index, begin);
    backend.free_mark(index, end);
  };
  double best = 1e300, total = 0;
  try {
    run();  // loads code, creates handles
    const double once = seconds_of(run);
    if (once > std::max(enough, kHostBoundSeconds)) {
      free_all();
      return once;
    }
    const int repeats = static_cast<int>(std::clamp(5e-4 / std::max(once, 1e-7), 1.0, 32.0));
    backend.begin_recording(index);
    try {
      for (int i = 0; i < repeats; ++i) run();
    } catch (...) {
      recording = backend.end_recording(index);
      throw;
    }
    recording = backend.end_recording(index);
    for (int sample = 0; sample < 6; ++sample) {
      const double seconds = seconds_of([&] { backend.replay(index, recording); }) / repeats;
      if (sample > 0 && seconds < best) best = seconds;
      total += seconds * repeats;
      if (total > kRecordedSeconds && sample > 0) break;
    }
  } catch (...) {
    free_all();
    throw;
  }
  free_all();
  return best;
}

}  // namespace

double best_seconds(const std::function<void()>& run, Device device, double enough) {
  const DeviceBackend& backend = backend_of(device);
  if (backend.begin_recording != nullptr) return recorded_seconds(run, device, enough);
  double best = 1e300;
  double total = 0;
  for (int sample = 0; sample < 51 && (sample < 6 || total < 0.05); ++sample) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    if (backend.synchronize != nullptr) backend.synchronize(device.index);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    total += seconds.count();
    if (sample > 0 && seconds.count() < best) best = seconds.count();
    if (total > 2 && sample > 0) break;  // a slow candidate needs no more samples
  }
  return best;
}

std::string measure_cache_path(const char* operation, Device device) {
  return cache_path(cat(operation, "_", name_of(device.type), ".json"));
}

std::string remembered_fastest(const MeasureKey& key) {
  const std::scoped_lock lock(answers_mutex);
  return find_answer(key);
}

std::string measured_fastest(const MeasureKey& key, const std::vector<std::string>& candidates,
                             const std::function<SecondsOf()>& timing) {
  const std::scoped_lock lock(answers_mutex);
  const std::string known = find_answer(key);
  if (std::ranges::count(candidates, known) > 0) return given[key_of_any_machine(key)] = known;
  if (memory_is_unbacked()) return candidates.front();  // nothing can run
  std::string fastest = candidates.front();
  if (candidates.size() > 1) {
    const SecondsOf seconds_of = timing();
    double best = 1e300;
    for (const std::string& candidate : candidates) {
      double seconds = 1e300;
      try {
        seconds = seconds_of(candidate);
      } catch (const Error& error) {  // no memory for the workspace: others may need less
        if (error.kind() != ErrorKind::kRun) throw;
      }
      if (seconds < best) {
        best = seconds;
        fastest = candidate;
      }
    }
  }
  remember(key, fastest);
  return given[key_of_any_machine(key)] = fastest;
}

std::map<std::string, std::string> given_answers() {
  const std::scoped_lock lock(answers_mutex);
  return given;
}

void take_over_answers(const std::map<std::string, std::string>& answers) {
  const std::scoped_lock lock(answers_mutex);
  taken_over = answers;
  given.insert(answers.begin(), answers.end());
}

void forget_measured() {
  const std::scoped_lock lock(answers_mutex);
  answers_by_path.clear();
  given.clear();
  taken_over.clear();
}

}  // namespace convscope
