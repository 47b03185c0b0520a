// SPDX-License-Identifier: Apache-2.0
// prunable_network.h: describes a network for pruning: its convolutions and linear layers, each
// with a weight matrix [K, C R S]. If these layers form a sequence, it also says which layer reads
// which outputs.
//
//   rows     K: filters of a convolution, units of a linear layer. In a transposed convolution the
//            rows are its input channels: a network with one is not a sequence here
//   columns  C R S: they form `inputs` groups of `span` neighbouring columns. Group c reads channel
//            c of the preceding layer. Conv2d: inputs C, span R S. Linear after a flatten layer:
//            inputs = channels of the flattened image, span H W.
//
// Between two such layers a sequence may have only layers that keep channels apart (activation,
// pooling, batch norm, dropout, flatten). So channel c of a layer and column group c of the next
// layer are removed together.
#pragma once

#include <string>
#include <vector>

#include "layers/module.h"

namespace convscope {

struct PrunableLayer {
  std::string name;  // "c1"
  Module* module = nullptr;
  bool is_conv = false;
  std::int64_t rows = 0, columns = 0;
  std::int64_t inputs = 0, span = 0;
  std::int64_t channels_in = 0, channels_out = 0;  // for ERK: of the convolution or linear layer
  std::int64_t kernel_h = 1, kernel_w = 1;
  std::int64_t groups = 1;
  std::int64_t positions = 0;  // outputs of each row for one image: P Q, 1; 0: unknown

  Tensor weight() const { return module->weight().value(); }
  std::int64_t weights() const { return rows * columns; }
};

struct PrunableNetwork {
  std::vector<PrunableLayer> layers;  // in the order in which an image passes them
  std::string no_sequence_reason;     // "" when the layers form a sequence

  bool in_line() const { return no_sequence_reason.empty(); }
  // Returns the index of the layer of that name; throws with the nearest name if there is none.
  std::size_t index_of(const std::string& name) const;
};

// Returns the network's layers. `input` is the shape of a batch, [N,C,H,W] or [N,I].
CONVSCOPE_API PrunableNetwork prunable_network(Module& model, const Shape& input);

}  // namespace convscope
