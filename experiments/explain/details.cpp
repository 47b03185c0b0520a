// SPDX-License-Identifier: Apache-2.0
// details.cpp: writes the long answer of `convscope explain`: every algorithm of a convolution, in
// each direction.
#include "experiments/explain/details.h"

#include <algorithm>

#include "experiments/explain/text_layout.h"

namespace convscope {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

// Returns the mark of an algorithm: "!" if it refuses, else "*" if the step runs it, else "+" if
// the config chooses it.
const char* mark_of(const Verdict& verdict, const ExplainedDirection& of) {
  if (verdict.refused) return "!";
  const std::string ran = of.ran ? of.ran->kernel : "";
  const std::string checked = " checked by ";
  const bool runs = ran == verdict.algorithm || ran.starts_with(verdict.algorithm + checked) ||
                    ran.ends_with(checked + verdict.algorithm);
  return runs ? "*" : verdict.chosen || verdict.checks ? "+" : " ";
}

std::string mib(std::size_t bytes) {
  return number_text("%.2f", static_cast<double>(bytes) / kMiB);
}

std::string name_of(const Verdict& verdict, const ExplainedDirection& of) {
  return cat(mark_of(verdict, of), " ", verdict.algorithm);
}

std::string accepting_text(const ExplainedDirection& of) {
  std::vector<std::vector<std::string>> rows(1, {"  algorithm", "ms", "workspace", "prepared", ""});
  for (const Verdict& one : of.verdicts) {
    if (!one.accepts) continue;
    rows.push_back({name_of(one, of), number_text("%.3f", one.estimated_ms),
                    mib(one.workspace_bytes), mib(one.prepared_bytes), one.reason});
  }
  return rows.size() == 1 ? "" : columns_text(rows, 4, {1, 2, 3});
}

std::string refusing_text(const ExplainedDirection& of) {
  std::size_t width = 0;
  for (const Verdict& one : of.verdicts) {
    if (!one.accepts) width = std::max(width, one.algorithm.size() + 2);
  }
  std::string out;
  for (const Verdict& one : of.verdicts) {
    if (one.accepts) continue;
    const std::string name = name_of(one, of);
    out += cat("    ", name, std::string(width - name.size() + 2, ' '));
    // Only the reason is wrapped, after the name.
    const std::string reason =
        wrapped_text(cat(std::string(width + 6, ' '), "refuses: ", one.reason), width + 8);
    out += reason.substr(width + 6);
  }
  return out;
}

std::string what_runs(const ExplainedLayer& layer, const ExplainedDirection& of) {
  if (of.ran) {
    return cat("runs ", of.ran->kernel, ", ", of.ran->execution,
               of.ran->layout == "nchw" ? "" : ", images " + of.ran->layout);
  }
  if (!of.asked) return "not run: this gradient is not needed";
  return layer.is_refused() ? "nothing runs: an algorithm refuses this layer"
                            : "nothing runs: an algorithm refuses another layer";
}

// Explains that the layer runs inside a chain of layers and not by its own algorithm. Returns ""
// when the layer is in no chain.
std::string chain_text(const ExplainedDirection& of) {
  if (!of.ran || of.ran->kernel.find(": ") == std::string::npos) return "";
  return wrapped_text(
      "    The chain computes these layers with their activations and pools in one operation: "
      "images "
      "are converted before and after the chain only. The times below are those of this layer "
      "by itself.",
      4);
}

}  // namespace

std::string marks_text() {
  return "* the training step runs it; + the config chooses it, but the step runs something else, "
         "or nothing;\n! the config names it, but it refuses.\nMilliseconds are estimates; "
         "workspace and prepared weights are in MiB.\n";
}

std::string layer_text(const ExplainedLayer& layer) {
  std::string out = cat(layer.conv.name, "  ", layer.conv.use->problem(), ", ",
                        number_text("%.4g", layer.conv.use->nominal_flops() * 1e-6), " MFLOP\n");
  for (const Direction direction : kDirections) {
    const ExplainedDirection& of = layer.of(direction);
    out += cat("  ", name_of(direction), " (", of.policy, "): ", what_runs(layer, of), "\n",
               chain_text(of));
    for (const auto& [word, reason] : of.decision.refusals) {
      const bool taken = of.decision.error.empty();
      out += wrapped_text(cat("    '", word, "' ", reason, "; ",
                              taken ? cat(of.decision.word, " is taken") : acceptance_text(of)),
                          6);
    }
    out += accepting_text(of) + refusing_text(of);
  }
  return out;
}

}  // namespace convscope
