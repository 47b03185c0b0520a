// SPDX-License-Identifier: Apache-2.0
// quant_block.h: the keys of the block `quant:` and of an entry of its `per_layer` (schema.h
// explains key tables). Without the block, or with `quant: null`, weights and activations stay f32.
#pragma once

#include "experiments/config/schema.h"

namespace convscope::config {

const Keys<QuantConfig>& quant_keys();
const Keys<LayerBits>& layer_bits_keys();

}  // namespace convscope::config
