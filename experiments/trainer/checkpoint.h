// SPDX-License-Identifier: Apache-2.0
// checkpoint.h: the state of a run in one safetensors file, written atomically, so that weights and
// counters always belong together.
//
//   tensors   "c1.weight"                     parameters and buffers, by name
//             "optimizer/momentum.c1.weight"  the optimiser's state
//             "optimizer/average.c1.weight"   the average of the weights, with optim.ema
//   metadata  "format", "config" (resolved YAML), "progress" (JSON: TrainingState), "version",
//             "crc32" (checksum.h)
//
// The quantised model file (quant/quantized_file.h) has a different "format" and the same metadata,
// but its config has no masks. load_checkpoint() and checkpoint_config() accept this file like a
// checkpoint. Defects of a model file are errors of kind kData.
#pragma once

#include <string>

#include "experiments/trainer/training_state.h"
#include "layers/module.h"
#include "optim/optimizer.h"

namespace convscope {

// The checkpoint from which a run resumes, relative to the run folder.
inline constexpr const char* kLastCheckpoint = "ckpt/last.safetensors";

// Returns the first value that is NaN or infinite among the tensors of a checkpoint, with its name:
// "nan in 'bn1.running_var'"; "" if all values are finite. optimizer may be null.
CONVSCOPE_API std::string not_finite(const Module& model, Optimizer* optimizer);

// Writes the file atomically. optimizer may be null (best.safetensors holds only the network).
// `execution` (execution_text()) is stored in the metadata; "" omits its key.
CONVSCOPE_API void save_checkpoint(const std::string& path, const Module& model,
                                   Optimizer* optimizer, const TrainingState& state,
                                   const std::string& config_yaml,
                                   const std::string& execution = "");

// Writes the quantised model file of a network whose quantisers are calibrated.
CONVSCOPE_API void save_quantized_model(const std::string& path, Module& model,
                                        const TrainingState& state, const std::string& config_yaml);
// Writes the sparse model file of a network with masks.
CONVSCOPE_API void save_sparse_model(const std::string& path, Module& model,
                                     const TrainingState& state, const std::string& config_yaml);

// Fills model, optimizer (unless null) and the returned state. Without an optimizer, the network
// gets the averages of the weights, if there are any and optim.ema.evaluate of the file's config is
// true; load_start_weights() does the same. Errors: kIo when the file cannot be
// read or its checksum differs, kConfig when the file belongs to another network or optimiser (the
// error names the first difference). `note` (may be null) receives a message for the user, or "".
CONVSCOPE_API TrainingState load_checkpoint(const std::string& path, Module& model,
                                            Optimizer* optimizer, std::string* note = nullptr);

// Fills weights and buffers of the network from a checkpoint, or from the last checkpoint of a run
// folder, as the initial state of another run. The state of quantisers is not loaded, so they
// calibrate again.
CONVSCOPE_API void load_start_weights(const std::string& path, Module& model);

// Returns the config of the training that wrote the checkpoint.
CONVSCOPE_API std::string checkpoint_config(const std::string& path);

}  // namespace convscope
