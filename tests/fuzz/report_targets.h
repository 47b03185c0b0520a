// SPDX-License-Identifier: Apache-2.0
// report_targets.h: fuzz targets for the files that `report`, `compare`, `plot`, `index` and
// `watch` read: benchmarks, run folders, sweep folders, lists of problems. Each target also makes
// tables, figures and pages from the file.
#pragma once

#include <filesystem>

#include "experiments/bench/problem_list.h"
#include "experiments/compare/bench_sides.h"
#include "experiments/compare/compare_benches.h"
#include "experiments/compare/compare_runs.h"
#include "experiments/compare/comparison_text.h"
#include "experiments/compare/run_sides.h"
#include "experiments/report/bench_data.h"
#include "experiments/report/html/html_report.h"
#include "experiments/report/index/index_page.h"
#include "experiments/report/ladder_data.h"
#include "experiments/report/run_groups.h"
#include "experiments/sweep/sweep_folder.h"
#include "experiments/watch/run_frame.h"
#include "framework/check.h"
#include "layers/deform_conv2d/problem.h"
#include "tests/experiments/report/run_folders.h"
#include "tests/fuzz/target.h"

namespace convscope::testing {

// One folder per process: its files are rewritten for each input.
inline const std::string& fuzz_folder() {
  static const TemporaryFolder folder;
  return folder.path();
}

// ---- benchmarks --------------------------------------------------------------------------------

inline std::string bench_rows_seed() {
  const std::string row =
      R"({"problem":"n=1,c=2,h=8,w=8,k=3,r=3,s=3","direction":"forward","device":"cpu",)"
      R"("threads":1,"median_ms":0.5,"p10_ms":0.4,"p90_ms":0.6,"block_medians_ms":[0.5,0.6],)"
      R"("gflops_executed":2,"workspace_bytes":10,"baseline":"onednn","baseline_median_ms":1,)"
      R"("auto_choice":true,"algorithm":)";
  return R"({"format":"convscope bench conv2d 1","machine":{"cpu":"c","isa":"avx2","peaks":)"
         R"({"cores":2,"flops_per_second":{"one_thread":1e11,"all_threads":2e11},)"
         R"("dram_copy_bytes_per_second":{"one_thread":1e10,"all_threads":2e10},)"
         R"("int8_ops_per_second":{"one_thread":4e11,"all_threads":8e11}}},)"
         R"("settings":{"device":"cpu","threads":1,"cache":"warm","clock":"wall"},"rows":[)" +
         row + "\"direct\"}," + row +
         "\"fft\"}],\"refusals\":[{\"problem\":\"n=1,c=2,h=8,w=8,k=3,r=3,s=3\",\"direction\":"
         "\"forward\",\"algorithm\":\"gemm_1x1\",\"reason\":\"no\"}]}";
}

inline std::string ladder_seed() {
  return R"({"format":"convscope bench conv2d ladder 1","machine":{"cpu":"c"},"settings":)"
         R"({"device":"cpu","threads":1,"cache":"warm"},"ladders":[{"ladder":"direct","problem":)"
         R"("n=1,c=2,h=8,w=8,k=3,r=3,s=3","direction":"forward","peak_gflops":100,)"
         R"("total_factor":4,"rungs":[{"rung":"a","adds":"b","median_ms":1,"gflops_effective":2,)"
         R"("peak_percent":2,"factor":1},{"rung":"c","adds":"d","median_ms":0.5,"factor":2}]}]})";
}

inline std::string bench_net_seed() {
  return R"({"format":"convscope bench net 1","machine":{"cpu":"c"},"settings":{"threads":1},)"
         R"("rows":[{"net":"lenet5","mode":"train","batch":4,"image":"1x28x28","device":"cpu",)"
         R"("median_ms":1.5,"p10_ms":1.4,"p90_ms":1.6}]})";
}

// One reader may accept a file that another one refuses.
template <class Read>
bool try_to(Read&& read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return false;
  }
}

inline void read_bench_file(Bytes bytes) {
  const std::string path = fuzz_folder() + "/bench.json";
  const std::string sound = fuzz_folder() + "/sound.json";
  put_file(path, view_of(bytes));
  put_file(sound, bench_rows_seed());
  bool read = try_to([&] {
    const BenchSet set = read_bench({path, sound});
    html_report(set, draw_plots(set));
  });
  if (is_ladder_file(path)) {
    read |= try_to([&] {
      const LadderSet set = read_ladders({path});
      html_report(set, draw_plots(set));
    });
  }
  for (const char* other : {"sound.json", "bench.json"}) {
    read |= try_to([&] {
      const CompareResult result =
          compare_benches({read_bench_side(path), read_bench_side(fuzz_folder() + "/" + other)});
      comparison_markdown(result);
      comparison_csv(result);
      comparison_latex(result);
      comparison_json(result);
    });
  }
  if (!read) fail(ErrorKind::kData, "fuzz", "no reader takes it");
}

// ---- runs --------------------------------------------------------------------------------------

// The first byte of an input selects which file of the run the other bytes replace.
inline const std::vector<std::pair<const char*, std::string>>& run_files() {
  static const std::vector<std::pair<const char*, std::string>> files = [] {
    const std::string run = write_run(fuzz_folder() + "/seed", {.name = "lenet"});
    std::vector<std::pair<const char*, std::string>> out;
    for (const char* name :
         {"config.yaml", "status.json", "summary.json", "epochs.csv", "metrics.jsonl"}) {
      out.emplace_back(name, text_of(read_file(run + "/" + name)));
    }
    out.emplace_back("layers.csv",
                     "layer,kind,output,params,kernel,forward,backward_data,backward_weight,step,"
                     "forward_ms,backward_ms,kept_mib,timed_with,inference\n"
                     "c1,conv2d,16x6x24x24,156,5,fft,-,direct,planned,0.12,0.2,0.14,,int8_direct\n"
                     "loss,,,,,,,,planned,0.01,,,c1,\n");
    out.emplace_back("sparsity.csv", "step,layer,density\n1,c1,0.5\n2,c1,0.25\n");
    out.emplace_back("quant.csv", "step,layer,tensor,bits,signed,step_size\n1,c1,w,4,true,0.1\n");
    out.emplace_back("env.json",
                     R"({"version":"1","cpu":"c","isa":"avx2","started":"2026-01-01T00:00:00Z",)"
                     R"("arguments":["a","b"],"variables":{"A":"b"},"project":null})");
    out.emplace_back("log.txt", "2026-01-01T00:00:00Z warning: one line\n");
    return out;
  }();
  return files;
}

inline std::vector<std::string> run_seeds() {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < run_files().size(); ++i) {
    out.push_back(static_cast<char>(i) + run_files()[i].second);
  }
  return out;
}

struct DamagedRun {
  std::string root, run, other;  // the folder of all runs, the damaged run, a sound run
};

inline const DamagedRun& damaged_run(Bytes bytes) {
  static const std::string root = fuzz_folder() + "/runs";
  static const DamagedRun out{root, write_run(root, {.name = "lenet"}),
                              write_run(root, {.name = "lenet", .seed = 2})};
  static std::size_t before = run_files().size();  // all files must be rewritten
  for (std::size_t i = 0; i < run_files().size(); ++i) {
    if (before != i && before < run_files().size()) continue;
    put_file(out.run + "/" + run_files()[i].first, run_files()[i].second);
  }
  before = bytes.empty() ? 0 : bytes[0] % run_files().size();
  if (!bytes.empty()) {
    put_file(out.run + "/" + run_files()[before].first, view_of(bytes.subspan(1)));
  }
  return out;
}

// Only `compare` may refuse a broken run. All other outputs show the run as broken.
inline void read_run_folder(Bytes bytes) {
  const DamagedRun& where = damaged_run(bytes);
  const RunData data = read_run(where.run);
  RunRow row = read_run_row(where.run);
  read_config(row);
  to_markdown({row}, reading_columns({row}));
  to_json({row}, all_columns());
  to_csv({row}, all_columns());
  RunReader reader(where.run);
  const RunView& view = reader.look();
  run_frame(view, {});
  run_frame(view, {.columns = 30, .rows = 60, .ink = CurveInk::braille});
  try_to([&] {
    comparison_markdown(compare_runs(
        {read_run_side(where.run, where.root), read_run_side(where.other, where.root)}));
  });
  if (!data.problems.empty()) fail(ErrorKind::kData, "fuzz", data.problems[0]);
}

// Makes all figures and pages of a run. This target takes a hundred times as long as the others.
inline void make_run_page(Bytes bytes) {
  const DamagedRun& where = damaged_run(bytes);
  html_report(where.run);
  index_page("runs", read_run_index(where.root), where.root);
  std::vector<RunData> both;
  both.push_back(read_run(where.run));
  both.push_back(read_run(where.other));
  draw_plots(group_runs(std::move(both)));
}

// ---- sweeps ------------------------------------------------------------------------------------

inline SweepPlan small_sweep() {
  return parse_sweep_text(
      "name: s\ndata: {set: synthetic_digits, train_size: 16, test_size: 8, batch_size: 8}\n"
      "model: {type: lenet5}\ntrain: {epochs: 1}\nsweep: {grid: {optim.lr: [0.1, 0.2]}}\n",
      "s.yaml");
}

inline std::string sweep_state_seed() {
  return R"({"name":"s","state":"DONE","pid":1,"members":[{"row":"lr-0.1","seed":1,)"
         R"("state":"done","run":"lr-0.1/x","jobs":2,"error":""},{"row":"lr-0.2","seed":1,)"
         R"("state":"failed","run":"","jobs":1,"error":"e"}]})";
}

// Reads the state file of a sweep, and config and summary of a member, as `sweep`, `watch` and
// `index` do.
inline void read_sweep_folder(Bytes bytes) {
  const std::string folder = fuzz_folder() + "/sweep/s";
  static const SweepPlan plan = small_sweep();
  static const std::string run = folder + "/lr-0.1/2026-01-01_000000-s1";
  static const std::string summary =
      text_of(read_file(write_run(fuzz_folder() + "/seed", {.name = "s"}) + "/summary.json"));
  write_text(run + "/config.yaml", to_yaml(plan.members[0].config));
  put_file(run + "/summary.json", summary);
  put_file(run + "/status.json", R"({"state":"DONE","exit_code":0})");
  put_file(folder + "/sweep.state.json", sweep_state_seed());
  if (bytes.empty()) return;
  const std::string files[] = {folder + "/sweep.state.json", run + "/config.yaml",
                               run + "/summary.json", run + "/status.json"};
  put_file(files[bytes[0] % 4], view_of(bytes.subspan(1)));
  std::vector<SweepOutcome> outcomes;
  const SweepFolder sweep(folder, plan, {});
  for (const SweepMember& member : plan.members) {
    outcomes.push_back({member_state(folder, member, false), "", sweep.jobs_before(member)});
  }
  sweep_markdown(plan, outcomes);
  to_csv(sweep_table(plan, outcomes));
  index_page("sweeps", read_run_index(fuzz_folder() + "/sweep"), fuzz_folder());
}

inline std::vector<FuzzTarget> report_targets() {
  return {
      {"bench", read_bench_file,
       [] {
         return std::vector<std::string>{bench_rows_seed(), ladder_seed(), bench_net_seed()};
       }},
      {"run_folder", read_run_folder, run_seeds},
      {"run_page", make_run_page, run_seeds},
      {"sweep_folder", read_sweep_folder,
       [] {
         return std::vector<std::string>{std::string(1, '\0') + sweep_state_seed(),
                                         '\1' + to_yaml(small_sweep().members[0].config),
                                         '\2' + run_files()[2].second,
                                         '\3' + run_files()[1].second};
       }},
      {"shapes",
       [](Bytes bytes) {
         const std::string path = fuzz_folder() + "/shapes.txt";
         put_file(path, view_of(bytes));
         try {
           problems_of_file(path);
         } catch (const Error&) {  // a list for another operator, perhaps
         }
         problems_of_file<DeformConv2dProblem>(path);
       },
       [] {
         return std::vector<std::string>{
             "# a list\nn=1,c=2,h=8,w=8,k=3,r=3,s=3,pad=1\n\nn=2,c=4,h=9,w=7,k=4,r=5,s=3,stride=2,"
             "dilation=1,groups=2\n",
             "n=1,c=8,h=8,w=8,k=3,r=3,s=3,pad=1,offset_groups=4,mask=0\n"};
       }},
  };
}

}  // namespace convscope::testing
