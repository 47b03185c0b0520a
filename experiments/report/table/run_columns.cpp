// SPDX-License-Identifier: Apache-2.0
// run_columns.cpp: the columns of a table of runs.
#include "experiments/report/table/run_columns.h"

#include <algorithm>
#include <set>

#include "experiments/config/flat/flat_config.h"
#include "experiments/run_folder/user_words.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using Cell = TableCell;

Cell text_cell(const std::string& text) { return text.empty() ? Cell{} : Cell{text}; }
Cell maybe(const std::optional<double>& value) { return value ? Cell{*value} : Cell{}; }
// Without a step, sums are 0 and not measurements.
Cell measured(const RunSummary& s, double value) {
  return s.timed_steps > 0 ? Cell{value} : Cell{};
}
Cell phase(const RunSummary& s, double value) {
  return s.phases == "whole step" ? Cell{} : measured(s, value);
}

using CellOf = Cell (*)(const RunSummary& summary);

RunColumn seconds(const char* name, const char* words, CellOf of) {
  return {.name = name,
          .digits = 4,
          .unit = "s",
          .words = words,
          .measured = true,
          .is_time = true,
          .of = of};
}
RunColumn mebibytes(const char* name, const char* words, CellOf of) {
  return {.name = name, .digits = 4, .unit = "MiB", .words = words, .measured = true, .of = of};
}
RunColumn percent(const char* name, const char* words, CellOf of) {
  return {.name = name, .digits = 0, .unit = "%", .words = words, .measured = true, .of = of};
}

constexpr const char* kTestAcc = "% of the test images, after the last evaluated epoch";

const std::vector<RunColumn> kColumns = {
    {.name = "id"},
    {.name = "name", .of = [](const RunSummary& s) { return text_cell(s.name); }},
    {.name = "batch_size",
     .words = "images in a step",
     .of = [](const RunSummary& s) { return Cell{s.batch_size}; }},
    seconds("avg_forward", "mean seconds of a step's forward",
            [](const RunSummary& s) { return phase(s, s.avg_forward); }),
    seconds("avg_backward", "mean seconds of a step's backward",
            [](const RunSummary& s) { return phase(s, s.avg_backward); }),
    mebibytes("avg_forward_mem", "MiB allocated at the end of a step's forward",
              [](const RunSummary& s) { return measured(s, s.avg_forward_mem); }),
    mebibytes("avg_backward_mem", "peak MiB in a step's backward",
              [](const RunSummary& s) { return measured(s, s.avg_backward_mem); }),
    {.name = "kernel_size",
     .words = "kernel size of the convolutions, pixels",
     .of = [](const RunSummary& s) { return text_cell(s.kernel_size); }},
    percent("acc", kTestAcc, [](const RunSummary& s) { return maybe(s.acc); }),
    percent("best_acc",
            "% of the validation images in the best epoch; without validation, of the test images",
            [](const RunSummary& s) { return maybe(s.best_acc); }),
    {.name = "execution",
     .words = "what is executed: fake-quant multiplies rounded numbers in f32, masked multiplies "
              "the zeros",
     .of = [](const RunSummary& s) { return text_cell(s.execution); }},
    {.name = "algorithm",
     .words = "algorithms of the convolutions",
     .of = [](const RunSummary& s) { return text_cell(s.algorithm); }},
    {.name = "device", .of = [](const RunSummary& s) { return text_cell(s.device); }},
    {.name = "precision", .of = [](const RunSummary& s) { return text_cell(s.precision); }},
    {.name = "threads", .of = [](const RunSummary& s) { return Cell{s.threads}; }},
    {.name = "isa",
     .words = "instruction set",
     .of = [](const RunSummary& s) { return text_cell(s.isa); }},
    {.name = "images_per_s",
     .digits = 5,
     .unit = "1/s",
     .words = "training images per second",
     .measured = true,
     .is_time = true,
     .of = [](const RunSummary& s) { return measured(s, s.images_per_s); }},
    {.name = "epochs", .of = [](const RunSummary& s) { return Cell{s.epochs}; }},
    {.name = "seed", .of = [](const RunSummary& s) { return Cell{s.seed}; }},
    {.name = "params",
     .words = "trained numbers",
     .of = [](const RunSummary& s) { return Cell{s.params}; }},
    seconds("avg_step", "mean seconds of a step: forward, backward and update",
            [](const RunSummary& s) { return measured(s, s.avg_step); }),
    {.name = "phases",
     .words = "whether forward and backward were timed apart",
     .of = [](const RunSummary& s) { return text_cell(s.phases); }},
    mebibytes("peak_workspace", "peak MiB of scratch memory in any step",
              [](const RunSummary& s) { return measured(s, s.peak_workspace); }),
    {.name = "data", .of = [](const RunSummary& s) { return text_cell(s.data); }},
    {.name = "model", .of = [](const RunSummary& s) { return text_cell(s.model); }},
    {.name = "train_loss",
     .digits = 4,
     .words = "training loss over the last epoch",
     .measured = true,
     .of = [](const RunSummary& s) { return s.epochs > 0 ? Cell{s.train_loss} : Cell{}; }},
    {.name = "test_loss",
     .digits = 4,
     .words = "test loss at the epoch of acc",
     .measured = true,
     .of = [](const RunSummary& s) { return maybe(s.test_loss); }},
    percent("val_acc", "% of the validation images, at the epoch of acc",
            [](const RunSummary& s) { return maybe(s.val_acc); }),
    seconds("seconds", "seconds of the whole run with evaluations, without avg_inference",
            [](const RunSummary& s) { return Cell{s.seconds}; }),
    {.name = "state"},
    {.name = "reason"},
    {.name = "path"},
    // Columns that were added later come last, after the columns that existing programs know.
    {.name = "step",
     .words = "recorded (CUDA graph), planned (compiled once, then replayed) or dynamic (a graph "
              "per step)",
     .of = [](const RunSummary& s) { return text_cell(s.step); }},
    {.name = "tags", .of = [](const RunSummary& s) { return text_cell(s.tags); }},
    {.name = "note", .of = [](const RunSummary& s) { return text_cell(s.note); }},
    seconds("avg_inference",
            "seconds of a batch in inference, as executed: median, measured when the run ends",
            [](const RunSummary& s) { return maybe(s.avg_inference); }),
    {.name = "weight_bytes",
     .digits = kWhole,
     .unit = "bytes",
     .words = "bytes of the trained weights as stored: of a quantised or sparse run its model "
              "file, else the parameters in the checkpoint",
     .measured = true,
     .of = [](const RunSummary& s) { return maybe(s.weight_bytes); }},
    {.name = "ranks",
     .words = "number of processes; threads are per process",
     .of = [](const RunSummary& s) { return Cell{s.ranks}; }},
    seconds("avg_exchange", "mean seconds of a step's backward spent waiting for other processes",
            [](const RunSummary& s) { return measured(s, s.avg_exchange); }),
    {.name = "busy",
     .words = "yes, or the number of runs in which other programs used the cores: the times may be "
              "too long",
     .of = [](const RunSummary& s) { return text_cell(s.disturbed() ? "yes" : ""); }},
    {.name = "cores_of_others",
     .digits = 2,
     .words = "mean number of cores that other programs kept busy during training",
     .of = [](const RunSummary& s) { return maybe(s.cores_of_others); }},
    percent("test_top5",
            "% of the test images, or of their pixels, whose class is among the 5 largest scores",
            [](const RunSummary& s) { return maybe(s.test_top5); }),
    percent("test_iou",
            "mean intersection over union of the classes on the test images, %; acc counts pixels",
            [](const RunSummary& s) { return maybe(s.test_iou); }),
};

Cell cell_of_value(const OptionValue& value) {
  if (const auto* yes = std::get_if<bool>(&value)) return *yes;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return value.index() == 0 ? Cell{} : Cell{to_text(value)};
}

}  // namespace

const std::vector<RunColumn>& run_columns() { return kColumns; }

const RunColumn* find_run_column(const std::string& name) {
  const auto at =
      std::ranges::find_if(kColumns, [&](const RunColumn& c) { return name == c.name; });
  return at == kColumns.end() ? nullptr : &*at;
}

Cell run_cell(const RunRow& row, const std::string& name) {
  if (name == "id") return text_cell(row.summary.id);
  if (name == "state") return text_cell(row.state);
  if (name == "reason") return text_cell(row.reason);
  if (name == "path") return text_cell(row.path);
  const RunColumn* const column = find_run_column(name);
  if (column == nullptr) {
    const auto at = row.config.find(name);
    return at == row.config.end() ? Cell{} : cell_of_value(at->second);
  }
  // A row without a summary has only a name, which comes from its folder.
  if (!row.has_summary && name != "name") return {};
  return column->of(row.summary);
}

void check_run_column(const std::string& name, const std::vector<RunRow>& rows) {
  if (find_run_column(name) != nullptr) return;
  std::set<std::string> keys(known_config_keys().begin(), known_config_keys().end());
  for (const RunRow& row : rows) {
    for (const auto& [key, value] : row.config) keys.insert(key);
  }
  if (keys.contains(name)) return;
  const auto inside = keys.lower_bound(name + ".");
  if (inside != keys.end() && inside->starts_with(name + ".")) {
    fail(ErrorKind::kInvalid, "report",
         cat("expected the key of one value because '", name,
             "' is a whole block of the config, try '", *inside, "'"));
  }
  std::vector<std::string> known = all_columns();
  known.insert(known.end(), keys.begin(), keys.end());
  fail(ErrorKind::kInvalid, "report",
       cat("expected a column of the table or a key of the config, got '", name, "'",
           did_you_mean(name, known), " (columns: ", join(all_columns()),
           "; `convscope config keys` lists the keys)"));
}

TextTable::Column head_of(const std::string& name) {
  const RunColumn* const column = find_run_column(name);
  if (column == nullptr) return {name};
  return {.name = name, .digits = column->digits, .unit = column->unit, .is_time = column->is_time};
}

std::string run_legend(const std::vector<std::string>& columns) {
  std::string out;
  for (const std::string& name : columns) {
    const RunColumn* const column = find_run_column(name);
    if (column != nullptr && column->words[0] != '\0') {
      out += cat("- ", name, ": ", column->words, "\n");
    }
  }
  return out;
}

}  // namespace convscope
