// SPDX-License-Identifier: Apache-2.0
// operator_table.h: the operators (layers with several algorithms) as the commands and the Python
// package know them. A file of this folder describes an operator and registers it in its last
// lines; no command names an operator:
//
//   CONVSCOPE_REGISTER_OPERATOR(DeformConv2dProblem, DeformConv2dOpCall, DeformConv2dBenchCall,
//                               {.title = "deformable convolution", ...})
//
// The Python module is compiled separately, so its functions are in experiments/python.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "experiments/check/check_row.h"
#include "layers/dispatch/operator_use.h"

namespace convscope {

class BenchCall;    // bench_call.h
class CommandLine;  // experiments/cli/command_line.h
class OpCall;       // op_call.h
class Tuning;       // experiments/tune/tuning.h

// What lists of algorithms show of one algorithm.
struct AlgorithmFacts {
  std::string name, idea, paper;
  std::vector<std::string> directions;
  bool auto_ok = true;
};

struct OperatorEntry {
  const char* title;                       // "deformable convolution"
  std::array<const char*, 2> list_titles;  // of the algorithms on the CPU and on CUDA
  const char* op_summary = "";             // of `convscope op`, a sentence
  const char* bench_summary = "";          // of `convscope bench`
  const char* bench_problems = "--shapes FILE|--problem TEXT";  // in its usage
  // The options of examples, without "op conv2d ".
  std::vector<std::string> op_examples = {}, bench_examples = {}, check_examples = {};
  OperatorCheck check = {};  // of `convscope check`
  std::function<std::shared_ptr<OpCall>()> op = {};
  std::function<std::shared_ptr<BenchCall>()> bench = {};
  std::function<std::vector<AlgorithmFacts>(DeviceType)> algorithms = {};
  // Returns the operator for a problem's text; null: no text describes a problem.
  std::function<std::shared_ptr<const OperatorUse>(const std::string&, const AlgorithmPolicy&)>
      use = {};
  // Times the algorithms on one problem of a designed set, for `convscope tune`; null: the operator
  // calls kernels of another one.
  void (*tune)(Tuning&) = nullptr;
};
// Returns the operators by name ("deform_conv2d").
CONVSCOPE_API Registry<OperatorEntry>& operator_table();

// Throws when the operator has no algorithm on this kind of device, that is, when `algorithms` is
// empty. The error begins with `caller`; `option` names the device there ("--device ").
CONVSCOPE_API void check_offered(const char* operation, const std::vector<std::string>& algorithms,
                                 const char* caller, const char* option, Device device);

// Adds the subcommand of an operator to `convscope op` or `convscope bench`. Parsing sets `run` to
// its action when it was given.
void declare_op(CommandLine& op, const std::string& name, std::function<int()>& run);
void declare_bench(CommandLine& bench, const std::string& name, std::function<int()>& run);

// Returns the operators' names as "a|b|c", for usage lines.
CONVSCOPE_API std::string operator_choice();
// Returns the examples of all operators ("op conv2d --x x.npy ...") that the member of
// OperatorEntry has.
CONVSCOPE_API std::vector<std::string> operator_examples(
    const std::string& command, std::vector<std::string> OperatorEntry::*examples);

// Returns "a, b or c".
CONVSCOPE_API std::string join_or(const std::vector<std::string>& words);

// Returns "`convscope bench conv2d --json`, `bench deform_conv2d --json` or ...", or without
// `quoted` "bench conv2d --json, bench ...".
CONVSCOPE_API std::string operator_bench_commands(bool quoted = true);
// Returns the formats of these files: "convscope bench conv2d 1", ...
CONVSCOPE_API std::vector<std::string> operator_bench_formats();

template <class Problem>
std::vector<AlgorithmFacts> algorithm_facts(DeviceType device) {
  std::vector<AlgorithmFacts> out;
  for (const auto& [name, one] : Operator<Problem>::algorithms(device).entries()) {
    out.push_back({name, one.idea, one.paper, {}, one.auto_ok});
    for (const Direction direction : kDirections) {
      if (one.offers(direction)) out.back().directions.emplace_back(name_of(direction));
    }
  }
  return out;
}

// Fills in what follows from the operator's types.
template <class Problem, class Op, class Bench>
OperatorEntry operator_entry(OperatorEntry entry) {
  entry.op = [] { return std::make_shared<Op>(); };
  entry.bench = [] { return std::make_shared<Bench>(); };
  entry.algorithms = algorithm_facts<Problem>;
  if constexpr (requires { Problem::parse(std::string()); }) {
    entry.use = [](const std::string& problem, const AlgorithmPolicy& policy) {
      return std::shared_ptr<const OperatorUse>(operator_use_of(Problem::parse(problem), policy));
    };
  }
  return entry;
}

}  // namespace convscope

#define CONVSCOPE_REGISTER_OPERATOR(Problem, Op, Bench, ...)                                  \
  namespace {                                                                                 \
  const bool registered_operator = ::convscope::operator_table().add(                         \
      ::convscope::Operator<::convscope::Problem>::kOperation,                                \
      ::convscope::operator_entry<::convscope::Problem, ::convscope::Op, ::convscope::Bench>( \
          __VA_ARGS__),                                                                       \
      __FILE__);                                                                              \
  }
