// SPDX-License-Identifier: Apache-2.0
// checkpoint_target.h: a fuzz target that resumes a run from a checkpoint of arbitrary bytes. A
// second attempt corrects the checksum, so that the code after the checksum test is reached.
#pragma once

#include <filesystem>

#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/checksum.h"
#include "experiments/trainer/trainer.h"
#include "framework/check.h"
#include "tests/fuzz/target.h"

namespace convscope::testing {

// A run of a small network, in a private folder.
class ResumedRun {
 public:
  static ResumedRun& only() {
    static ResumedRun run;
    return run;
  }

  std::string sound_checkpoint() {
    const std::string path = folder_.file("ckpt/sound.safetensors");
    TrainingState state;
    state.step = 1;
    state.batch = 1;
    save_checkpoint(path, *setup_.model, setup_.optimizer.get(), state, setup_.config_yaml);
    return text_of(read_file(path));
  }

  void resume_from(Bytes bytes) {
    put_file(last_, view_of(bytes));
    try {
      resume();
    } catch (const Error&) {
    }
    SafetensorsFile file = parse_safetensors(bytes, "fuzz");
    file.metadata[kChecksumKey] = checksum_of(file);
    write_safetensors(last_, file.tensors, file.metadata);
    resume();
  }

 private:
  ResumedRun()
      : setup_(setup_training(parse_config_text(
            "name: fuzz\nthreads: 1\ndata: {set: synthetic_digits, train_size: 16, test_size: 8, "
            "batch_size: 8, image_size: 8}\nlayers:\n  - {type: conv2d, out_channels: 2, "
            "kernel_size: 3}\n  - {type: batch_norm2d}\n  - {type: flatten}\n  - {type: linear, "
            "out_features: 10}\noptim: {type: adam}\ntrain: {epochs: 2}\n",
            "fuzz.yaml"))),
        folder_(RunFolder::create(root_.path(), "fuzz", 1)),
        last_(folder_.file("ckpt/last.safetensors")) {}

  void resume() {
    std::filesystem::resize_file(folder_.file("log.txt"), 0);  // each input adds a line
    Progress progress(Progress::Mode::quiet);
    Trainer trainer(setup_, folder_, progress);
    trainer.resume();
  }

  TemporaryFolder root_;
  TrainingSetup setup_;
  RunFolder folder_;
  std::string last_;
};

inline std::vector<FuzzTarget> checkpoint_targets() {
  return {{"checkpoint", [](Bytes bytes) { ResumedRun::only().resume_from(bytes); },
           [] { return std::vector<std::string>{ResumedRun::only().sound_checkpoint()}; }}};
}

}  // namespace convscope::testing
