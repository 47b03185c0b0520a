// SPDX-License-Identifier: Apache-2.0
// bench_command.cpp: `convscope bench`: times algorithms, next to another library and the machine's
// peaks, and whole networks. The operators are in experiments/operators, `bench net` is in
// bench_net.cpp, `bench sparse_net` in bench_sparse_net.cpp, `bench exchange` in
// bench_exchange.cpp.
#include <memory>

#include "experiments/cli/bench/bench_exchange.h"
#include "experiments/cli/bench/bench_net.h"
#include "experiments/cli/bench/bench_sparse_net.h"
#include "experiments/cli/command.h"
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

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "bench",
    {.summary = "Time algorithms, other libraries or whole networks.",
     .usage = "bench conv2d --shapes FILE|--problem TEXT|--ladder NAME [options]\n"
              "bench deform_conv2d|sparse_conv --shapes FILE|--problem TEXT [options]\n"
              "bench net CONFIG|MODEL|RUN [KEY=VALUE...] [options]\n"
              "bench sparse_net|exchange [options]",
     .examples = {"bench conv2d --shapes experiments/shapes/resnet18.txt --threads 1",
                  "bench conv2d --problem n=8,c=64,h=56,w=56,k=64,r=3,s=3,pad=1 "
                  "--direction forward --baseline onednn --json bench.json",
                  "bench conv2d --shapes experiments/shapes/resnet18.txt --types u8:i8:i32:u8 "
                  "--weights often --baseline onednn",
                  "bench conv2d --ladder winograd --json ladder.json",
                  "bench conv2d --shapes resnet18 --algorithm auto --against /usr/bin/convscope "
                  "--fail-above 1.10",
                  "bench deform_conv2d --shapes experiments/shapes/deform.txt --threads 1",
                  "bench sparse_conv --shapes experiments/shapes/sparse.txt --threads 1",
                  "bench sparse_net --device cuda --precision f32,f16 --json sparse_net.json",
                  "bench net resnet18 --batch 1,8 --mode inference"},
     .order = 52,
     .group = "Study algorithms",
     .declare = convscope::declare})
