// SPDX-License-Identifier: Apache-2.0
// bench_command.cpp: `convscope bench`: times algorithms, next to another library and the machine's
// peaks, and whole networks. The operators are in experiments/operators, `bench net` is in
// bench_net.cpp, `bench sparse_net` in bench_sparse_net.cpp, `bench exchange` in
// bench_exchange.cpp.
#include <algorithm>
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/cli/nested_commands.h"
#include "experiments/operators/operator_table.h"

namespace convscope {
namespace {

std::function<int()> declare(CommandLine& app) {
  app.require_subcommand(1);
  auto chosen = std::make_shared<std::function<int()>>();
  for (const std::string& name : operator_table().names()) declare_bench(app, name, *chosen);
  declare_bench_sparse_net(app, *chosen);
  declare_bench_net(app, *chosen);
  declare_bench_exchange(app, *chosen);
  return [chosen] { return (*chosen)(); };
}

// Operators that take the same words share a line of the usage.
std::string usage_of_operators() {
  std::vector<std::pair<std::string, std::string>> lines;  // words, names
  for (const auto& [name, entry] : operator_table().entries()) {
    const auto same =
        std::ranges::find(lines, entry.bench_problems, &decltype(lines)::value_type::first);
    if (same == lines.end()) {
      lines.emplace_back(entry.bench_problems, name);
    } else {
      same->second += cat("|", name);
    }
  }
  std::string out;
  for (const auto& [words, names] : lines) out += cat("bench ", names, " ", words, " [options]\n");
  return out;
}

CommandCalls calls() {
  CommandCalls out{.usage = cat(usage_of_operators(),
                                "bench net CONFIG|MODEL|RUN [KEY=VALUE...] [options]\n"
                                "bench sparse_net|exchange [options]"),
                   .examples = operator_examples("bench", &OperatorEntry::bench_examples)};
  out.examples.emplace_back(
      "bench sparse_net --device cuda --precision f32,f16 --json sparse_net.json");
  out.examples.emplace_back("bench net resnet18 --batch 1,8 --mode inference");
  return out;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("bench",
                           {.summary = "Time algorithms, other libraries or whole networks.",
                            .calls_of_operators = convscope::calls,
                            .order = 52,
                            .group = "Study algorithms",
                            .declare = convscope::declare})
