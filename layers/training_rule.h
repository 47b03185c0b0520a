// SPDX-License-Identifier: Apache-2.0
// training_rule.h: what a layer requires of its input's shape in a training step, beyond
// output_shape(). The same rule holds for every path: forward() and describe() apply it, and a run
// checks it before its first step.
#pragma once

#include <string>
#include <string_view>

#include "framework/check.h"
#include "framework/export.h"
#include "layers/module.h"

namespace convscope {

class CONVSCOPE_API TrainingRule {
 public:
  virtual ~TrainingRule() = default;
  // Returns a sentence that says why no training step supports an input of this shape; "": training
  // steps support it.
  virtual std::string why_not_trained(const Shape& input) const = 0;
};

struct TrainingRefusal {
  std::string kind, layer, why;  // "batch_norm2d", "layer4.0.bn1", a sentence
};

// Returns the refusal of the first layer that cannot train on batches of this shape. If all layers
// can, `why` is empty.
inline TrainingRefusal training_refusal(Module& model, const Shape& input) {
  TrainingRefusal out;
  const Module* refuses = nullptr;
  model.walk({input}, [&](Module& module, const Shapes& inputs) {
    const auto* const rule = dynamic_cast<const TrainingRule*>(&module);
    if (rule == nullptr || refuses != nullptr) return;
    out.why = rule->why_not_trained(inputs[0]);
    if (!out.why.empty()) refuses = &module;
  });
  if (refuses == nullptr) return out;
  out.kind = refuses->kind();
  for (const NamedModule& part : model.modules()) {
    if (part.module == refuses) out.layer = part.name;
  }
  return out;
}

// Throws when a layer cannot train on batches of this shape. `advice` ends the sentence.
inline void require_trainable(Module& model, const Shape& input, std::string_view advice) {
  const TrainingRefusal refusal = training_refusal(model, input);
  if (refusal.why.empty()) return;
  fail(ErrorKind::kRun, refusal.kind,
       cat(refusal.why, " in layer '", refusal.layer, "'; ", advice));
}

}  // namespace convscope
