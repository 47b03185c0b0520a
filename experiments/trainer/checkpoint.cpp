// SPDX-License-Identifier: Apache-2.0
// checkpoint.cpp: the state of a run in one safetensors file, written atomically, so that weights
// and counters always belong together.
#include "experiments/trainer/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/config/experiment_config.h"
#include "experiments/trainer/checksum.h"
#include "framework/io/bytes.h"
#include "framework/io/json_text.h"
#include "framework/io/safetensors.h"
#include "quant/quantized_file.h"
#include "sparsity/file/sparse_file.h"
#include "sparsity/mask.h"

namespace convscope {
namespace {

using json = nlohmann::json;

constexpr const char* kFormat = "convscope-checkpoint-1";
constexpr const char* kOptimizerPrefix = "optimizer/";

// Writing and reading use the same list of numbers.
template <class Totals, class Visitor>
void visit_steps(Totals& t, const std::string& prefix, Visitor&& field) {
  field(prefix + ".steps", t.steps);
  field(prefix + ".images", t.images);
  field(prefix + ".forward_s", t.forward_s);
  field(prefix + ".backward_s", t.backward_s);
  field(prefix + ".update_s", t.update_s);
  field(prefix + ".wait_s", t.wait_s);
  field(prefix + ".forward_bytes", t.forward_bytes);
  field(prefix + ".backward_peak_bytes", t.backward_peak_bytes);
  field(prefix + ".workspace_peak_bytes", t.workspace_peak_bytes);
  field(prefix + ".whole_steps", t.whole_steps);
  field(prefix + ".whole_s", t.whole_s);
  field(prefix + ".exchange_s", t.exchange_s);
  field(prefix + ".planned_steps", t.planned_steps);
}

template <class Totals, class Visitor>
void visit_losses(Totals& t, const std::string& prefix, Visitor&& field) {
  field(prefix + ".loss_sum", t.loss_sum);
  field(prefix + ".images", t.images);
  field(prefix + ".correct", t.correct);
  field(prefix + ".labels_per_image", t.labels_per_image);
}

template <class Result, class Visitor>
void visit_evaluation(Result& r, const std::string& prefix, Visitor&& field) {
  field(prefix + ".loss", r.loss);
  field(prefix + ".accuracy", r.accuracy);
  field(prefix + ".images", r.images);
  field(prefix + ".top5", r.top5);
  field(prefix + ".class_iou", r.class_iou);
}

template <class State, class Visitor>
void visit(State& s, Visitor&& field) {
  field("epoch", s.epoch);
  field("batch", s.batch);
  field("step", s.step);
  visit_losses(s.epoch_loss, "epoch_loss", field);
  visit_losses(s.last_epoch, "last_epoch", field);
  visit_losses(s.window_loss, "window_loss", field);
  visit_steps(s.epoch_steps, "epoch_steps", field);
  visit_steps(s.run_steps, "run_steps", field);
  visit_steps(s.warmup_steps, "warmup_steps", field);
  field("epoch_allocations", s.epoch_allocations);
  field("epoch_s", s.epoch_s);
  field("run_s", s.run_s);
  field("alarm.window_sum", s.alarm.window_sum);
  field("alarm.window_steps", s.alarm.window_steps);
  field("alarm.warned", s.alarm.warned);
  field("loss_scale.scale", s.loss_scale.scale);
  field("loss_scale.good_steps", s.loss_scale.good_steps);
  field("loss_scale.skipped", s.loss_scale.skipped);
  visit_evaluation(s.val, "val", field);
  visit_evaluation(s.test, "test", field);
  field("best_accuracy", s.best_accuracy);
  field("best_epoch", s.best_epoch);
  field("early_stop.waited_evaluations", s.waited_evaluations);
  field("early_stop.waits_since_epoch", s.waits_since_epoch);
  field("early_stop.waits_for", s.waits_for);
  field("metrics_bytes", s.metrics_bytes);
  field("epochs_bytes", s.epochs_bytes);
}

// Fields that checkpoints of earlier versions lack. The defaults are the values that those versions
// used.
bool is_recent(std::string_view name) {
  return name.ends_with(".whole_steps") || name.ends_with(".whole_s") ||
         name.ends_with(".exchange_s") || name.ends_with(".planned_steps") ||
         name.ends_with(".top5") || name.ends_with(".labels_per_image") ||
         name.ends_with(".class_iou") || name.starts_with("loss_scale.") ||
         name.starts_with("early_stop.");
}

std::string progress_text(const TrainingState& state) {
  json out;
  visit(state, [&](const std::string& name, const auto& value) { out[name] = value; });
  return out.dump();
}

[[noreturn]] void fail_mismatch(const std::string& path, const std::string& sentence) {
  fail(ErrorKind::kConfig, "checkpoint", cat(sentence, " (", path, ")"));
}

// Returns whether a tensor keeps its initial value when a new run starts from existing weights.
// This holds for the state of quantisers and masks, which belong to the new run.
bool starts_anew(const std::string& name) {
  return belongs_to_quantizer(name) || belongs_to_mask(name);
}

// Returns whether the file is a quantised or sparse model file.
bool is_model_file(const SafetensorsFile& file) {
  return is_quantized_file(file) || is_sparse_file(file);
}

// Returns whether the beginning of the file names the format of a model file. This also works for a
// damaged file.
bool seems_model_file(const std::string& path) {
  constexpr std::size_t kMax = 1 << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // opening a pipe would block
  std::ifstream in(path, std::ios::binary);
  std::string text(kMax, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text.find(kQuantizedFormats) != std::string::npos ||
         text.find(kSparseFormats) != std::string::npos;
}

// The exit code differs. A damaged checkpoint is one of the user's own files that cannot be read
// (exit code 6). A model file may come from other people, so its defects are bad data (exit code
// 4).
[[noreturn]] void fail_reading(const std::string& path, const Error& error) {
  fail(seems_model_file(path) ? ErrorKind::kData : ErrorKind::kIo, "checkpoint", error.what());
}

std::map<std::string, std::string> metadata_of(const std::string& path) {
  try {
    return read_safetensors_header(path).metadata;
  } catch (const Error& error) {
    fail_reading(path, error);
  }
}

SafetensorsFile read(const std::string& path, std::string* note = nullptr) {
  SafetensorsFile file;
  try {
    file = read_safetensors(path);
  } catch (const Error& error) {
    fail_reading(path, error);
  }
  const Checksum checksum = verify_checksum(file);
  if (checksum == Checksum::differs) {
    const auto stored = file.metadata.find(kChecksumKey);
    fail(is_model_file(file) ? ErrorKind::kData : ErrorKind::kIo, "checkpoint",
         cat("expected the bytes of ", path,
             " to be unchanged, got a wrong checksum: the file says ",
             stored == file.metadata.end() ? "damaged" : stored->second, ", its content has ",
             checksum_of(file)));
  }
  const bool ours = file.metadata.contains("format");
  if (note != nullptr) {
    *note =
        checksum == Checksum::none && ours
            ? cat(path,
                  " has no checksum, because an earlier version wrote it: damage is not detected")
            : "";
  }
  return file;
}

[[noreturn]] void fail_size(const std::string& path, const std::string& name, const Tensor& to,
                            DType dtype, const Shape& shape) {
  fail_mismatch(path, cat("expected '", name, "' to be ", name_of(to.dtype()), to.shape(),
                          " because the config makes it so, got ", name_of(dtype), shape));
}

// Returns the tensors of a network and its optimiser, which may be null.
std::vector<NamedTensor> checkpoint_tensors(const Module& model, Optimizer* optimizer) {
  std::vector<NamedTensor> out;
  for (const NamedParameter& parameter : model.parameters()) {
    out.push_back({parameter.name, parameter.variable.value()});
  }
  for (const NamedTensor& buffer : model.buffers()) out.push_back(buffer);
  if (optimizer != nullptr) {
    for (const OptimState& entry : optimizer->state()) {
      out.push_back({kOptimizerPrefix + entry.name, entry.tensor});
    }
  }
  return out;
}

// Reads only the header, and refuses a file that has far more data than the network needs. Smaller
// files are read as a whole before they are compared with the network. Then the checksum can show
// whether a mismatch comes from a damaged header or from another network.
void refuse_larger_network(const std::string& path, const Module& model) {
  constexpr std::int64_t kLittle = std::int64_t{16} << 20;
  std::map<std::string, Tensor> wanted;
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint_tensors(model, nullptr)) {
    wanted.emplace(name, tensor);
    bytes += tensor.size_bytes();
  }
  SafetensorsHeader header;
  try {
    header = read_safetensors_header(path);
  } catch (const Error&) {
    return;  // read() reports what is wrong
  }
  // An optimiser's state has at most four numbers per parameter, two of them slow weights.
  if (header.data_bytes <= kLittle + 6 * bytes) return;
  for (const SafetensorsHeader::Entry& entry : header.tensors) {
    if (entry.name.starts_with(kOptimizerPrefix) || starts_anew(entry.name)) continue;
    const auto it = wanted.find(entry.name);
    if (it == wanted.end()) {
      fail_mismatch(path,
                    cat("expected no tensor '", entry.name, "' because the config has none, got ",
                        name_of(entry.dtype), entry.shape));
    }
    if (!(entry.shape == it->second.shape()) || entry.dtype != it->second.dtype()) {
      fail_size(path, entry.name, it->second, entry.dtype, entry.shape);
    }
  }
}

// Gives the network the averages of the weights, if the file has them and its config says that
// evaluations use them (optim/slow_weights.h).
void take_averages(SafetensorsFile& file, const std::string& path) {
  const std::string prefix = cat(kOptimizerPrefix, "average.");
  std::map<std::string, Tensor> averages;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with(prefix)) averages.emplace(name.substr(prefix.size()), tensor);
  }
  const auto config = file.metadata.find("config");
  if (averages.empty() || config == file.metadata.end()) return;
  if (!parse_config_text(config->second, cat("config of ", path)).optim.ema.evaluate) return;
  for (NamedTensor& named : file.tensors) {
    const auto average = averages.find(named.name);
    if (average != averages.end()) named.tensor = average->second;
  }
}

// Copies the tensor `name` from `found` into `to`, and removes it from `found`.
void restore(const std::string& path, std::map<std::string, Tensor>& found, const std::string& name,
             const Tensor& to) {
  const auto it = found.find(name);
  if (it == found.end()) {
    fail_mismatch(path, cat("expected a tensor '", name, "' because the config has it, got none"));
  }
  const Tensor& from = it->second;
  if (!(from.shape() == to.shape()) || from.dtype() != to.dtype()) {
    fail_size(path, name, to, from.dtype(), from.shape());
  }
  to.copy_from(from);
  found.erase(it);
}

// Copies all tensors of a file into those of a network and its optimiser, which must be the same
// ones. Leaves out those whose names `ignores`.
template <class Ignores>
void restore_all(const std::string& path, const SafetensorsFile& file, Module& model,
                 Optimizer* optimizer, const Ignores& ignores) {
  std::map<std::string, Tensor> found;
  for (const auto& [name, tensor] : file.tensors) {
    if (!ignores(name)) found.emplace(name, tensor);
  }
  for (const auto& [name, tensor] : checkpoint_tensors(model, optimizer)) {
    if (!ignores(name)) restore(path, found, name, tensor);
  }
  for (const auto& [name, tensor] : found) {
    fail_mismatch(path, cat("expected no tensor '", name, "' because the config has none, got ",
                            tensor.str()));
  }
}

TrainingState progress_of(const SafetensorsFile& file, const std::string& path) {
  TrainingState state;
  try {
    const json in = json::parse(file.metadata.at("progress"));
    visit(state, [&](const std::string& name, auto& value) {
      if (!in.contains(name) && is_recent(name)) return;  // an older checkpoint
      in.at(name).get_to(value);
    });
  } catch (const json::exception& error) {
    fail(is_model_file(file) ? ErrorKind::kData : ErrorKind::kIo, "checkpoint",
         cat("expected the progress of a run in the metadata of ", path,
             ", got: ", json_problem(error.what())));
  }
  return state;
}

void refuse_model_file(const SafetensorsFile& file, const std::string& path, bool trains) {
  if (!trains || !is_model_file(file)) return;
  const bool codes = is_quantized_file(file);
  fail(ErrorKind::kConfig, "checkpoint",
       cat("expected a checkpoint, because training goes on with weights that are not ",
           codes ? "rounded" : "pruned", ", got the ", codes ? "quantised" : "sparse",
           " model file ", path));
}

// Removes the masks from the config of a quantised model file: pruned weights are stored as
// quantised zeros, so the file needs no masks.
std::string without_masks(const std::string& config_yaml) {
  ExperimentConfig config = parse_config_text(config_yaml, "config of the run");
  config.sparsity = {};
  return to_yaml(config);
}

// Returns the progress and results of a training for a model file. Times are left out, so that
// equal networks have files of equal size.
TrainingState without_times(const TrainingState& state) {
  TrainingState out;
  out.epoch = state.epoch;
  out.batch = state.batch;
  out.step = state.step;
  out.last_epoch = state.last_epoch;
  out.val = state.val;
  out.test = state.test;
  out.best_accuracy = state.best_accuracy;
  out.best_epoch = state.best_epoch;
  return out;
}

void save_model_file(const std::string& path, SafetensorsFile file, const TrainingState& state,
                     const std::string& config_yaml) {
  file.metadata["version"] = CONVSCOPE_VERSION;
  file.metadata["config"] = config_yaml;
  file.metadata["progress"] = progress_text(without_times(state));
  file.metadata[kChecksumKey] = checksum_of(file);
  write_safetensors(path, file.tensors, file.metadata);
}

// Returns the first value that is NaN or infinite; 0 if all are finite.
template <class T>
double first_not_finite(const Tensor& tensor) {
  const T* const values = tensor.data<T>();
  const T* const end = values + tensor.numel();
  const T* const found = std::find_if(values, end, [](T v) { return !std::isfinite(v); });
  return found == end ? 0.0 : static_cast<double>(*found);
}

}  // namespace

std::string not_finite(const Module& model, Optimizer* optimizer) {
  for (const auto& [name, there] : checkpoint_tensors(model, optimizer)) {
    const Tensor tensor = there.to(Device{});
    const double value = tensor.dtype() == DType::f32   ? first_not_finite<float>(tensor)
                         : tensor.dtype() == DType::f64 ? first_not_finite<double>(tensor)
                                                        : 0.0;
    if (!std::isfinite(value)) return cat(value, " in '", name, "'");
  }
  return "";
}

void save_quantized_model(const std::string& path, Module& model, const TrainingState& state,
                          const std::string& config_yaml) {
  save_model_file(path, to_quantized_file(model, belongs_to_mask), state,
                  without_masks(config_yaml));
}

void save_sparse_model(const std::string& path, Module& model, const TrainingState& state,
                       const std::string& config_yaml) {
  save_model_file(path, to_sparse_file(model), state, config_yaml);
}

void save_checkpoint(const std::string& path, const Module& model, Optimizer* optimizer,
                     const TrainingState& state, const std::string& config_yaml,
                     const std::string& execution) {
  SafetensorsFile file;
  file.tensors = checkpoint_tensors(model, optimizer);
  for (NamedTensor& named : file.tensors) named.tensor = named.tensor.to(Device{});
  file.metadata = {{"format", kFormat},
                   {"version", CONVSCOPE_VERSION},
                   {"config", config_yaml},
                   {"progress", progress_text(state)}};
  if (!execution.empty()) file.metadata["execution"] = execution;
  file.metadata[kChecksumKey] = checksum_of(file);
  write_safetensors(path, file.tensors, file.metadata);
}

TrainingState load_checkpoint(const std::string& path, Module& model, Optimizer* optimizer,
                              std::string* note) {
  refuse_larger_network(path, model);
  SafetensorsFile file = read(path, note);
  if (is_model_file(file)) {
    refuse_model_file(file, path, optimizer != nullptr);
    is_quantized_file(file) ? load_quantized_file(file, path, model)
                            : load_sparse_file(file, path, model);
    return file.metadata.contains("progress") ? progress_of(file, path) : TrainingState{};
  }
  if (optimizer == nullptr) take_averages(file, path);
  restore_all(path, file, model, optimizer, [&](const std::string& name) {
    return optimizer == nullptr && name.starts_with(kOptimizerPrefix);
  });
  if (!file.metadata.contains("progress")) {
    if (optimizer == nullptr) return {};  // weights of another program
    fail(ErrorKind::kIo, "checkpoint",
         cat("expected the progress of a run in the metadata of ", path, ", got none"));
  }
  return progress_of(file, path);
}

void load_start_weights(const std::string& path, Module& model) {
  const bool is_folder = std::filesystem::is_directory(path);
  const std::string file_path = is_folder ? path + "/ckpt/last.safetensors" : path;
  refuse_larger_network(file_path, model);
  SafetensorsFile file = read(file_path);
  refuse_model_file(file, file_path, true);
  take_averages(file, file_path);
  restore_all(file_path, file, model, nullptr, [](const std::string& name) {
    return name.starts_with(kOptimizerPrefix) || starts_anew(name);
  });
}

std::string checkpoint_config(const std::string& path) {
  // For a large file only the header is read. The data are checked later, when the weights are
  // loaded.
  constexpr std::uintmax_t kLarge = std::uintmax_t{64} << 20;
  std::error_code error;
  const bool large = std::filesystem::file_size(path, error) > kLarge && !error;
  const std::map<std::string, std::string> metadata =
      large ? metadata_of(path) : read(path).metadata;
  const auto it = metadata.find("config");
  if (it == metadata.end()) {
    fail(ErrorKind::kIo, "checkpoint",
         cat("expected a checkpoint of `convscope run`, which holds its config, got ", path,
             ", which holds only weights; name the run folder, or load weights of another program "
             "into a config's network with `convscope op net CONFIG --weights FILE`"));
  }
  return it->second;
}

}  // namespace convscope
