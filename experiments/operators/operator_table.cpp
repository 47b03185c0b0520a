// SPDX-License-Identifier: Apache-2.0
// operator_table.cpp: the operators as the commands and the Python package know them.
#include "experiments/operators/operator_table.h"

#include "experiments/operators/bench_call.h"
#include "experiments/operators/op_call.h"

namespace convscope {

Registry<OperatorEntry>& operator_table() {
  static Registry<OperatorEntry> table("operator");
  return table;
}

namespace {

template <class Call>
void declare_call(const std::shared_ptr<Call>& call, CommandLine* app, std::function<int()>& run) {
  call->declare(*app);
  app->callback([call, &run] { run = [call] { return call->run(); }; });
}

}  // namespace

void declare_op(CommandLine& op, const std::string& name, std::function<int()>& run) {
  const OperatorEntry& entry = operator_table().get(name);
  declare_call(entry.op(), op.add_subcommand(name, entry.op_summary), run);
}

void declare_bench(CommandLine& bench, const std::string& name, std::function<int()>& run) {
  const OperatorEntry& entry = operator_table().get(name);
  declare_call(entry.bench(), bench.add_subcommand(name, entry.bench_summary), run);
}

void check_offered(const char* operation, const std::vector<std::string>& algorithms,
                   const char* caller, const char* option, Device device) {
  if (!algorithms.empty()) return;
  fail(ErrorKind::kUnavailable, caller,
       cat("expected ", option, "cpu because there is no algorithm of ",
           operator_table().get(operation).title, " for ", name_of(device.type),
           " in this build, got ", option, device.str()));
}

std::string operator_choice() { return join(operator_table().names(), "|"); }

std::vector<std::string> operator_examples(const std::string& command,
                                           std::vector<std::string> OperatorEntry::*examples) {
  std::vector<std::string> out;
  for (const auto& [name, entry] : operator_table().entries()) {
    for (const std::string& words : entry.*examples)
      out.push_back(cat(command, " ", name, " ", words));
  }
  return out;
}

std::string join_or(const std::vector<std::string>& words) {
  const std::vector<std::string> first(words.begin(), words.end() - (words.empty() ? 0 : 1));
  return cat(join(first), first.empty() ? "" : " or ", words.empty() ? "" : words.back());
}

std::string operator_bench_commands(bool quoted) {
  std::vector<std::string> out;
  for (const std::string& name : operator_table().names()) {
    const std::string command =
        cat(quoted && out.empty() ? "convscope " : "", "bench ", name, " --json");
    out.push_back(quoted ? cat("`", command, "`") : command);
  }
  return join_or(out);
}

std::vector<std::string> operator_bench_formats() {
  std::vector<std::string> out;
  for (const std::string& name : operator_table().names()) {
    out.push_back(cat("convscope bench ", name, " 1"));
  }
  return out;
}

}  // namespace convscope
