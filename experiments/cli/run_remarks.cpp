// SPDX-License-Identifier: Apache-2.0
// run_remarks.cpp: the messages of `convscope run` before the first step.
#include "experiments/cli/run_remarks.h"

#include "experiments/run_folder/machine_load.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {
namespace {

std::string mask_remark(const TrainingSetup& setup) {
  if (!setup.pruner) return "";
  if (setup.remove_when_final) {
    return "runs   masked dense until the masks are final, then compact dense without the pruned "
           "outputs";
  }
  if (setup.form == Form::sparse) {
    return "runs   block-sparse: convolutions skip pruned blocks where this is estimated to be "
           "faster; layers.csv names what runs";
  }
  return "runs   masked dense: zeros are multiplied like other numbers; neither time nor memory is "
         "saved";
}

std::string quantiser_remark(const TrainingSetup& setup) {
  if (!setup.quant) return "";
  const std::int64_t begin = setup.quant->begin_step;
  if (setup.quant->on_integers && !uses_vnni() && setup.device.type == DeviceType::cpu) {
    return cat("runs   int8 in evaluations", begin > 0 ? cat(" after step ", begin) : "",
               " if this is estimated to be faster than f32 on this CPU without VNNI, or required "
               "(quant.execute=int8_always); `execution` in summary.json names what ran");
  }
  if (setup.quant->on_integers) {
    return cat("runs   int8 in evaluations", begin > 0 ? cat(" after step ", begin) : "",
               ": integer products; training steps round numbers and multiply them in f32");
  }
  return cat("runs   fake-quant f32", begin > 0 ? cat(" after step ", begin) : "",
             ": numbers are rounded and multiplied in f32; neither time nor memory is saved");
}

std::string best_remark(const TrainingSetup& setup) {
  if (!setup.keep_best || setup.val || !setup.test) return "";
  return "warning: best.safetensors and best_acc are chosen on the test images, because there are "
         "no val images; data.val_split sets some aside";
}

}  // namespace

std::vector<std::string> remarks_before(const TrainingSetup& setup) {
  std::vector<std::string> lines;
  for (const std::string& line : {mask_remark(setup), quantiser_remark(setup), best_remark(setup),
                                  load_warning(cores_of_others(), num_threads(), cores_online())}) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

}  // namespace convscope
