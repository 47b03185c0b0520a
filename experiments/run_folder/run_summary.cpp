// SPDX-License-Identifier: Apache-2.0
// run_summary.cpp: the results of a run: summary.json, and one row of `convscope report`.
#include "experiments/run_folder/run_summary.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "experiments/run_folder/machine_load.h"
#include "framework/check.h"
#include "framework/io/clean_text.h"
#include "framework/io/json_format.h"
#include "framework/io/json_text.h"

namespace convscope {
namespace {

using json = nlohmann::ordered_json;
using NamedValues = decltype(RunSummary::test_class_iou);

constexpr const char* kFormat = "convscope summary 1";

// Reading and writing use the same list of fields, so they cannot differ.
template <class Summary, class Visitor>
void visit(Summary& s, Visitor&& field) {
  field("id", s.id);
  field("name", s.name);
  field("data", s.data);
  field("model", s.model);
  field("batch_size", s.batch_size);
  field("avg_forward", s.avg_forward);
  field("avg_backward", s.avg_backward);
  field("avg_update", s.avg_update);
  field("avg_wait", s.avg_wait);
  field("avg_step", s.avg_step);
  field("phases", s.phases);
  field("avg_forward_mem", s.avg_forward_mem);
  field("avg_backward_mem", s.avg_backward_mem);
  field("peak_workspace", s.peak_workspace);
  field("kernel_size", s.kernel_size);
  field("algorithm", s.algorithm);
  field("execution", s.execution);
  field("step", s.step);
  field("tags", s.tags);
  field("note", s.note);
  field("acc", s.acc);
  field("test_loss", s.test_loss);
  field("val_acc", s.val_acc);
  field("val_loss", s.val_loss);
  field("best_acc", s.best_acc);
  field("best_epoch", s.best_epoch);
  field("best_split", s.best_split);
  field("train_acc", s.train_acc);
  field("train_loss", s.train_loss);
  field("device", s.device);
  field("device_name", s.device_name);
  field("precision", s.precision);
  field("isa", s.isa);
  field("threads", s.threads);
  field("images_per_s", s.images_per_s);
  field("epochs", s.epochs);
  field("epochs_planned", s.epochs_planned);
  field("steps", s.steps);
  field("timed_steps", s.timed_steps);
  field("seed", s.seed);
  field("params", s.params);
  field("seconds", s.seconds);
  field("system_allocations", s.system_allocations);
  field("version", s.version);
  // New fields come last, so that programs that know the earlier order still work.
  field("avg_inference", s.avg_inference);
  field("weight_bytes", s.weight_bytes);
  field("ranks", s.ranks);
  field("avg_exchange", s.avg_exchange);
  field("cores_of_others", s.cores_of_others);
  field("cores", s.cores);
  field("test_top5", s.test_top5);
  field("test_iou", s.test_iou);
  field("test_class_iou", s.test_class_iou);
}

struct Writer {
  json& out;
  template <class T>
  void operator()(const char* name, const T& value) const {
    out[name] = value;
  }
  void operator()(const char* name, const std::optional<double>& value) const {
    out[name] = value ? json(*value) : json(nullptr);
  }
  void operator()(const char* name, const NamedValues& values) const {
    out[name] = json::object();
    for (const auto& [key, value] : values) {
      out[name][key] = value ? json(*value) : json(nullptr);
    }
  }
};

struct Reader {
  const json& in;
  template <class T>
  void operator()(const char* name, T& value) const {
    for (const std::string_view recent : {"ranks", "cores"}) {
      if (name == recent && !in.contains(name)) return;  // an older summary
    }
    value = in.at(name).get<T>();
  }
  void operator()(const char* name, std::string& value) const {
    const std::string_view field = name;
    for (const std::string_view recent :
         {"execution", "phases", "device_name", "precision", "step", "tags", "note"}) {
      if (field == recent && !in.contains(name)) return;  // an older summary
    }
    value = clean_line(in.at(name).get<std::string>());
  }
  void operator()(const char* name, double& value) const {  // JSON has no NaN: null
    for (const std::string_view recent : {"avg_step", "avg_exchange"}) {
      if (name == recent && !in.contains(name)) return;  // an older summary
    }
    value = in.at(name).is_null() ? 0.0 : in.at(name).get<double>();
  }
  void operator()(const char* name, std::optional<double>& value) const {
    value.reset();
    for (const std::string_view recent :
         {"avg_inference", "weight_bytes", "cores_of_others", "test_top5", "test_iou"}) {
      if (name == recent && !in.contains(name)) return;  // an older summary
    }
    if (!in.at(name).is_null()) value = in.at(name).get<double>();
  }
  void operator()(const char* name, NamedValues& values) const {
    values.clear();
    if (!in.contains(name)) return;  // an older summary
    for (const auto& [key, value] : in.at(name).items()) {
      values.emplace_back(clean_line(key),
                          value.is_null() ? std::nullopt : std::optional(value.get<double>()));
    }
  }
};

}  // namespace

std::string execution_text(Arithmetic arithmetic, Form form) {
  std::string text = arithmetic == Arithmetic::f32          ? ""
                     : arithmetic == Arithmetic::fake_quant ? "fake-quant f32"
                                                            : "int8";
  if (form != Form::dense) {
    text += cat(text.empty() ? "" : ", ", form == Form::masked    ? "masked dense"
                                          : form == Form::compact ? "compact dense"
                                                                  : "block-sparse");
  }
  return text.empty() ? "f32 dense" : text;
}

bool RunSummary::disturbed() const {
  const bool on_gpu = device.starts_with("cuda");  // on a GPU, one thread per process feeds it
  return is_disturbed(cores_of_others, static_cast<int>((on_gpu ? 1 : threads) * ranks),
                      static_cast<int>(cores));
}

std::string to_json_text(const RunSummary& summary) {
  json out;
  visit(summary, Writer{out});
  out["format"] = kFormat;
  return json_text(out);
}

RunSummary parse_summary(const std::string& json_text) {
  RunSummary summary;
  try {
    const json in = json::parse(json_text);
    if (in.is_object() && in.contains("format")) {  // missing in files of earlier versions
      const std::string problem = format_problem(in.at("format").get<std::string>(), {kFormat});
      if (!problem.empty()) {
        fail(ErrorKind::kIo, "summary", cat("expected a run's summary, got ", problem));
      }
    }
    visit(summary, Reader{in});
  } catch (const json::exception& error) {
    fail(ErrorKind::kIo, "summary",
         cat("expected the JSON of a run's summary, got: ", json_problem(error.what())));
  }
  return summary;
}

}  // namespace convscope
