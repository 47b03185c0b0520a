// SPDX-License-Identifier: Apache-2.0
// op_command.cpp: `convscope op`: one operation on NumPy files, for comparison with any other
// system. The operators are in experiments/operators, lsq is in op_lsq.cpp, a whole network in
// op_net.cpp.
#include <map>
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/cli/nested_commands.h"
#include "experiments/operators/operator_table.h"

namespace convscope {
namespace {

std::function<int()> declare(CommandLine& app) {
  app.require_subcommand(1);
  auto chosen = std::make_shared<std::function<int()>>();
  std::map<std::string, void (*)(CommandLine&, std::function<int()>&)> others = {
      {"lsq", declare_op_lsq}, {"net", declare_op_net}};
  for (const std::string& name : operator_table().names()) others[name] = nullptr;
  for (const auto& [name, declare_other] : others) {  // the help lists them by name
    declare_other == nullptr ? declare_op(app, name, *chosen) : declare_other(app, *chosen);
  }
  return [chosen] { return (*chosen)(); };
}

CommandCalls calls() {
  CommandCalls out{.usage = cat("op ", operator_choice(), " --x X.npy --w W.npy [options]\n",
                                "op lsq --v V.npy --step S.npy [options]\n",
                                "op net CONFIG [KEY=VALUE...] --x X.npy [options]"),
                   .examples = operator_examples("op", &OperatorEntry::op_examples)};
  out.examples.emplace_back(
      "op lsq --v v.npy --step s.npy --bits 4 --dy dy.npy --out-dstep ds.npy");
  return out;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("op", {.summary = "Run one operator on NumPy files.",
                                  .calls_of_operators = convscope::calls,
                                  .order = 50,
                                  .declare = convscope::declare})
