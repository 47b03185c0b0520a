// SPDX-License-Identifier: Apache-2.0
#include "layers/conv2d/measure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "framework/io/atomic_file.h"
#include "framework/parallel.h"
#include "framework/random.h"
#include "framework/simd/cpu_isa.h"
#include "framework/tensor.h"
#include "layers/conv2d/execute.h"

namespace convscope {
namespace {

using Answers = std::map<std::string, std::string>;  // key -> algorithm

// Guards everything below; measuring holds it, so that two layers never time at once.
std::mutex answers_mutex;
std::map<std::string, Answers> answers_by_path;  // a file is read once

std::string key_of(const Conv2dProblem& problem, Direction direction, Device device) {
  if (device.type != DeviceType::cpu) {
    return cat(gpu_name(device), " | ", name_of(direction), " | ", problem.text());
  }
  static const std::string kModel = cpu_model_name();
  return cat(kModel, " | ", name_of(current_isa()), " | threads=", num_threads(), " | ",
             name_of(direction), " | ", problem.text());
}

void warn(const std::string& sentence) {
  std::fprintf(stderr, "convscope: warning: [measure] %s\n", sentence.c_str());
}

// {"format": "convscope conv2d measurements 1", "fastest": {"<key>": "<algorithm>"}}
constexpr const char* kFormat = "convscope conv2d measurements 1";

Answers read_answers(const std::string& path) {
  Answers out;
  std::ifstream file(path, std::ios::binary);
  if (!file) return out;  // the first run on this machine
  const nlohmann::json content =
      nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/false);
  const bool ours = content.is_object() && content.contains("format") &&
                    content["format"] == kFormat && content.contains("fastest") &&
                    content["fastest"].is_object();
  if (!ours) {
    warn(cat("expected measurements of ours in ", path, "; the file is ignored and written anew"));
    return out;
  }
  for (const auto& [key, name] : content["fastest"].items()) {
    if (name.is_string()) out[key] = name.get<std::string>();
  }
  return out;
}

Answers& answers_of(const std::string& path) {
  const auto found = answers_by_path.find(path);
  if (found != answers_by_path.end()) return found->second;
  return answers_by_path[path] = read_answers(path);
}

void write_answers(const std::string& path, const Answers& answers) {
  nlohmann::json content;
  content["format"] = kFormat;
  content["fastest"] = answers;
  try {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_file(path, content.dump(1) + "\n");
  } catch (const std::exception& error) {
    warn(cat("the measurement is not remembered on disk: ", error.what()));
  }
}

// The remembered algorithm, when it is still there and still accepts the problem.
const Conv2dAlgorithm* remembered(const std::string& path, const std::string& key,
                                  const Conv2dProblem& problem, Direction direction,
                                  Device device) {
  const Answers& answers = answers_of(path);
  const auto found = answers.find(key);
  if (found == answers.end()) return nullptr;
  const Conv2dAlgorithm* algorithm = conv2d_algorithms(device.type).find(found->second);
  if (algorithm == nullptr || !support_of(*algorithm, problem, direction).yes) return nullptr;
  return algorithm;
}

Tensor random_tensor(const Shape& shape, DType dtype, Device device, std::uint64_t stream) {
  Tensor out = Tensor::empty(shape, DType::f32);
  Generator random(1, stream);
  float* values = out.data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) values[i] = random.normal();
  return out.to(dtype).to(device);
}

class Timing {
 public:
  Timing(const Conv2dProblem& problem, Direction direction, Device device)
      : problem_(problem),
        direction_(direction),
        device_(device),
        x_(random_tensor(problem.x_shape(), problem.dtype, device, 1)),
        w_(random_tensor(problem.w_shape(), problem.dtype, device, 2)),
        y_(random_tensor(problem.y_shape(), problem.dtype, device, 3)) {}

  // Best of 5 to 50 runs, about 50 ms in all, after one warm-up. On a device with recordings: best of
  // 5 recordings of several runs, timed by marks, so that no time of the host is counted.
  double best_seconds(const Conv2dAlgorithm& algorithm) const {
    const Conv2dScratch scratch(algorithm, problem_, direction_, device_);
    const DeviceBackend& backend = backend_of(device_);
    if (backend.begin_recording != nullptr) {
      return recorded_seconds(algorithm, scratch, backend);
    }
    double best = 1e300;
    double total = 0;
    for (int run = 0; run < 51 && (run < 6 || total < 0.05); ++run) {
      const auto begin = std::chrono::steady_clock::now();
      execute(algorithm, scratch);
      if (backend.synchronize != nullptr) backend.synchronize(device_.index);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      total += seconds.count();
      if (run > 0 && seconds.count() < best) best = seconds.count();
      if (total > 2 && run > 0) break;  // a slow candidate is slow
    }
    return best;
  }

 private:
  double recorded_seconds(const Conv2dAlgorithm& algorithm, const Conv2dScratch& scratch,
                          const DeviceBackend& backend) const {
    const int index = device_.index;
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
    double best = 1e300;
    try {
      execute(algorithm, scratch);  // loads code, makes handles
      const double once = seconds_of([&] { execute(algorithm, scratch); });
      const int repeats = static_cast<int>(std::clamp(1e-3 / std::max(once, 1e-7), 1.0, 32.0));
      backend.begin_recording(index);
      try {
        for (int i = 0; i < repeats; ++i) execute(algorithm, scratch);
      } catch (...) {
        recording = backend.end_recording(index);
        throw;
      }
      recording = backend.end_recording(index);
      for (int run = 0; run < 6; ++run) {
        const double seconds = seconds_of([&] { backend.replay(index, recording); }) / repeats;
        if (run > 0 && seconds < best) best = seconds;
        if (once > 0.5 && run > 0) break;  // a slow candidate is slow
      }
    } catch (...) {
      free_all();
      throw;
    }
    free_all();
    return best;
  }

  void execute(const Conv2dAlgorithm& algorithm, const Conv2dScratch& scratch) const {
    switch (direction_) {
      case Direction::forward:
        return algorithm.forward({problem_,
                                  x_.raw_data(),
                                  w_.raw_data(),
                                  nullptr,
                                  y_.raw_data(),
                                  scratch.workspace(),
                                  {},
                                  scratch.prepare(w_.raw_data())});
      case Direction::backward_data:
        return algorithm.backward_data({problem_, y_.raw_data(), w_.raw_data(), x_.raw_data(),
                                        scratch.workspace(), scratch.prepare(w_.raw_data())});
      case Direction::backward_weight:
        return algorithm.backward_weight(
            {problem_, x_.raw_data(), y_.raw_data(), w_.raw_data(), false, scratch.workspace()});
    }
  }

  const Conv2dProblem& problem_;
  const Direction direction_;
  const Device device_;
  const Tensor x_, w_, y_;
};

}  // namespace

std::string cpu_model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::string gpu_name(Device device) {
  const auto ask = [](Device of) {
    const DeviceFacts facts = backend_of(of).facts(of.index);
    return cat(facts.name, " | driver ", facts.driver_api);
  };
  if (device.index != 0) return ask(device);
  static const std::string kFirst =
      ask(device);  // each estimate asks, and the driver takes its time
  return kFirst;
}

std::string measure_cache_path(Device device) {
  std::filesystem::path folder;
  const auto given = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? std::string(value) : std::string();
  };
  if (const std::string own = given("CONVSCOPE_CACHE_DIR"); !own.empty()) {
    folder = own;
  } else if (const std::string xdg = given("XDG_CACHE_HOME"); !xdg.empty()) {
    folder = std::filesystem::path(xdg) / "convscope";
  } else if (const std::string home = given("HOME"); !home.empty()) {
    folder = std::filesystem::path(home) / ".cache" / "convscope";
  } else {
    folder = std::filesystem::path("/tmp") / "convscope-cache";
  }
  return (folder / cat("conv2d_", name_of(device.type), ".json")).string();
}

const Conv2dAlgorithm* measured_conv2d(const Conv2dProblem& problem, Direction direction,
                                       Device device) {
  const std::scoped_lock lock(answers_mutex);
  return remembered(measure_cache_path(device), key_of(problem, direction, device), problem,
                    direction, device);
}

const Conv2dAlgorithm& measure_conv2d(const Conv2dProblem& problem, Direction direction,
                                      Device device) {
  const std::vector<const Conv2dAlgorithm*> candidates =
      conv2d_candidates(problem, direction, device);
  CONVSCOPE_CHECK(!candidates.empty(), "measure", "expected an algorithm that accepts ",
                  problem.text());
  const std::scoped_lock lock(answers_mutex);
  const std::string path = measure_cache_path(device);
  const std::string key = key_of(problem, direction, device);
  if (const auto* known = remembered(path, key, problem, direction, device)) return *known;
  const Conv2dAlgorithm* fastest = candidates.front();
  if (candidates.size() > 1 && problem.n > 0) {
    const Timing timing(problem, direction, device);
    double best = 1e300;
    for (const Conv2dAlgorithm* candidate : candidates) {
      const double seconds = timing.best_seconds(*candidate);
      if (seconds < best) {
        best = seconds;
        fastest = candidate;
      }
    }
  }
  // Another process may have added to the file since we read it.
  Answers answers = read_answers(path);
  answers.merge(answers_of(path));
  answers[key] = fastest->name;
  write_answers(path, answers);
  answers_by_path[path] = std::move(answers);
  return *fastest;
}

void forget_measured_conv2d() {
  const std::scoped_lock lock(answers_mutex);
  answers_by_path.clear();
}

}  // namespace convscope
