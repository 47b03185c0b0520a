// SPDX-License-Identifier: Apache-2.0
// run_facts.cpp: the first section of a run's page.
#include "experiments/report/html/run_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "experiments/report/chart/svg_text.h"
#include "experiments/report/html/markup.h"
#include "experiments/report/html/run_environment.h"
#include "framework/check.h"
#include "framework/registry.h"

namespace convscope {
namespace {

// The machine counts as busy if its load at the start of the run was at least half a core.
constexpr double kBusyLoad = 0.5;
constexpr std::size_t kShownWarnings = 8;  // from the log; the others are counted

// Returns warnings of log.txt: "<time> warning: <sentence>".
std::vector<std::string> logged_warnings(const RunData& run) {
  std::vector<std::string> out;
  std::istringstream lines(file_text(run.path + "/log.txt"));
  constexpr std::string_view kMark = " warning: ";
  std::size_t more = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(kMark);
    if (at == std::string::npos) continue;
    const std::string sentence = line.substr(at + kMark.size());
    if (std::find(out.begin(), out.end(), sentence) != out.end()) continue;
    if (out.size() < kShownWarnings) {
      out.push_back(sentence);
    } else {
      ++more;
    }
  }
  if (more > 0) out.push_back(cat(more, " more warnings are in log.txt"));
  return out;
}

std::string lead_sentence(const RunData& run) {
  if (!run.summary) return "No epoch is finished yet.";
  const RunSummary& s = *run.summary;
  std::string out = cat(s.model, " on ", s.data);
  if (s.model.empty() || s.data.empty()) out = run.name;
  if (s.acc)
    out += cat(": ", percent_text(s.acc), " of the test ", s.test_iou ? "pixels" : "images",
               " are right");
  return out + cat(" after ", s.epochs, s.epochs_planned > 0 ? cat(" of ", s.epochs_planned) : "",
                   s.epochs == 1 && s.epochs_planned <= 1 ? " epoch." : " epochs.");
}

std::string best_text(const RunSummary& s) {
  if (!s.best_acc) return "";
  return cat("after epoch ", s.best_epoch, ", chosen on the ",
             s.best_split == "val" ? "validation" : "test", " images");
}

std::string loss_text(const std::optional<double>& loss, const char* of) {
  return loss && std::isfinite(*loss) ? fmt::format("{} loss {:.4g}", of, *loss) : "";
}

// Returns the intersection over union of each class.
std::string class_iou_text(const RunSummary& s) {
  std::vector<std::string> out;
  for (const auto& [name, iou] : s.test_class_iou) {
    if (iou) out.push_back(cat(name, " ", percent_text(iou)));
  }
  return join(out);
}

std::vector<Fact> facts_of_summary(const RunSummary& s, const RunEnvironment& environment) {
  const bool timed = s.timed_steps > 0;
  const auto measured = [&](double value) { return timed ? value : 0.0; };
  const std::string name = s.device_name.empty() ? environment.cpu : s.device_name;
  const std::string step = s.step.empty() ? "" : ", " + s.step + " step";
  std::vector<Fact> facts = {
      {"Test accuracy", percent_text(s.acc), loss_text(s.test_loss, "test")},
      {"Mean IoU", percent_text(s.test_iou), class_iou_text(s)},
      {"Top-5 accuracy", percent_text(s.test_top5),
       cat("of the test ", s.test_iou ? "pixels" : "images")},
      {"Validation accuracy", percent_text(s.val_acc), loss_text(s.val_loss, "validation")},
      {"Best accuracy", percent_text(s.best_acc), best_text(s)},
      {"Training accuracy", s.epochs > 0 ? percent_text(s.train_acc) : "",
       loss_text(s.train_loss, "training")},
      {"Data", s.data, cat("batches of ", s.batch_size)},
      {"Model", s.model,
       s.params > 0 ? count_text(static_cast<double>(s.params)) + " parameters" : ""},
      {"Convolution", s.algorithm, s.kernel_size.empty() ? "" : "kernel size " + s.kernel_size},
      {"Execution", s.execution + step, s.precision == "f32" ? "" : s.precision + " operands"},
      {"Device", s.device.empty() ? "" : s.device + (name.empty() ? "" : ": " + name),
       cat(s.ranks == 1 ? "" : cat(s.ranks, " processes, each "), s.threads,
           s.threads == 1 ? " thread" : " threads", s.isa.empty() ? "" : ", " + s.isa)},
      {"Training step", seconds_text(measured(s.avg_step)),
       timed ? cat("mean of ", s.timed_steps, " steps",
                   s.phases == "timed apart" ? "" : ", " + s.phases)
             : ""},
      {"Forward", seconds_text(measured(s.avg_forward)), "of a step, with the loss"},
      {"Backward", seconds_text(measured(s.avg_backward)),
       cat(s.avg_update > 0 ? "update " + seconds_text(s.avg_update) : "",
           s.avg_exchange > 0
               ? ", of it waiting for other processes " + seconds_text(s.avg_exchange)
               : "")},
      {"Inference", s.avg_inference ? seconds_text(*s.avg_inference) : "",
       cat("a batch of ", s.batch_size, ", without loss and loader")},
      {"Weights", s.weight_bytes ? count_text(*s.weight_bytes) + " bytes" : "", "as stored"},
      {"Speed", timed ? count_text(s.images_per_s) + " images/s" : "", ""},
      {"Memory", mib_text(measured(s.avg_backward_mem)),
       s.avg_forward_mem > 0
           ? "peak of a backward pass; a forward pass leaves " + mib_text(s.avg_forward_mem)
           : "peak of a backward pass"},
      {"Wall time", seconds_text(s.seconds), "evaluation included"},
      {"Seed", std::to_string(s.seed), ""},
      {"Tags", s.tags, ""},
      {"Note", s.note, ""}};
  return facts;
}

}  // namespace

std::string state_badge(const std::string& state) {
  const char* look = state == "DONE"                                                     ? "good"
                     : state == "RUNNING" || state == "INTERRUPTED" || state == "PAUSED" ? "going"
                                                                                         : "bad";
  return fmt::format("<span class=\"state {}\">{}</span>", look, escape_markup(state));
}

std::vector<std::string> run_warnings(const RunData& run) {
  std::vector<std::string> out;
  if (run.state != "DONE" && !run.reason.empty()) out.push_back(run.reason);
  if (run.state == "RUNNING") {
    out.emplace_back(
        "the run was not finished when this page was written; its numbers are preliminary");
  }
  for (std::string& sentence : logged_warnings(run)) out.push_back(std::move(sentence));
  if (run.summary && run.summary->disturbed()) {
    out.push_back(fmt::format(
        "other programs kept {:.1f} of {} cores busy while the run trained, so its times may be "
        "too long",
        *run.summary->cores_of_others, run.summary->cores));
  }
  const double busy = read_run_environment(run.path).load;
  const bool told = std::any_of(out.begin(), out.end(), [](const std::string& sentence) {
    return (sentence.find("load") != std::string::npos &&
            sentence.find("loss") == std::string::npos) ||
           sentence.find("other programs") != std::string::npos;
  });
  if (busy >= kBusyLoad && !told) {
    out.push_back(fmt::format(
        "the machine was busy when the run began (load {:.2f}), so its times may be too long",
        busy));
  }
  if (run.summary && run.summary->step == "dynamic") {
    out.emplace_back("the steps ran as a dynamic graph, which is slower than a planned step");
  }
  out.insert(out.end(), run.problems.begin(), run.problems.end());
  return out;
}

std::string run_facts(const RunData& run) {
  std::string out =
      cat("<p>", state_badge(run.state), " ", escape_markup(lead_sentence(run)), "</p>\n");
  const std::string warnings = html_list(run_warnings(run));
  if (!warnings.empty()) {
    out +=
        cat("<div class=\"note\" role=\"note\" aria-label=\"Warnings\">\n", warnings, "</div>\n");
  }
  const RunEnvironment environment = read_run_environment(run.path);
  std::vector<Fact> facts;
  if (run.summary) facts = facts_of_summary(*run.summary, environment);
  facts.push_back({"Begun", environment.started, "UTC"});
  facts.push_back({"Program", environment.version,
                   environment.commit.empty() ? "" : "built from " + environment.commit});
  facts.push_back({"Your project", environment.project, ""});
  // Important facts come first, so that figures follow soon on small screens too.
  const auto is_first = [](const Fact& fact) {
    constexpr const char* kFirst[] = {"Test accuracy", "Data",      "Model", "Device",
                                      "Training step", "Inference", "Speed", "Memory"};
    return std::ranges::find(kFirst, fact.name) != std::end(kFirst);
  };
  const auto others = std::stable_partition(facts.begin(), facts.end(), is_first);
  const std::string more = html_facts({others, facts.end()});
  return cat(out, html_facts({facts.begin(), others}),
             more.empty()
                 ? ""
                 : "<details><summary>more about this run</summary>\n" + more + "</details>\n");
}

}  // namespace convscope
