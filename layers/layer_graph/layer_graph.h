// SPDX-License-Identifier: Apache-2.0
// layer_graph.h: layers that are connected by name: a network with branches.
//
// Shapes     the input of the network -> the results of the last layer
// Names      the parameters of a layer are called "<layer name>.<parameter>", as in a Sequential
// Usage      layers:
//              - {type: conv2d, name: c1, out_channels: 8, kernel_size: 3, padding: 1}
//              - {type: conv2d, name: c2, out_channels: 8, kernel_size: 1, from: input}
//              - {type: concat, from: [c1, c2]}
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/autograd/parallel_pass.h"
#include "layers/layer_graph/connections.h"

namespace convscope {

class CONVSCOPE_API LayerGraph final : public Module {
 public:
  struct Entry {
    std::string name;
    std::shared_ptr<Module> layer;
    std::vector<LayerSource> sources;
    std::size_t results = 1;  // how many variables the layer returns
  };
  explicit LayerGraph(std::vector<Entry> entries);

  std::string kind() const override { return "layer_graph"; }
  Variable forward(const Variable& x) override;
  Variables forward(const Variables& inputs) override;
  Shape output_shape(const Shape& input) const override;
  Shapes output_shapes(const Shapes& inputs) const override;
  void walk(const Shapes& inputs, const WalkVisitor& visit) override;

  const std::vector<Entry>& entries() const { return entries_; }
  // Goes through the layers in order, with one T for each variable. run(entry, inputs) returns the
  // results of a layer. Returns the results of the last one. A result is freed after its last
  // reader.
  template <class T, class Run>
  std::vector<T> pass(std::vector<T> inputs, Run&& run) const {
    std::vector<std::vector<T>> values(entries_.size() + 1);
    values[0] = std::move(inputs);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      values[i + 1] = run(entries_[i], gathered(values, entries_[i].sources));
      for (const LayerSource& source : entries_[i].sources) {
        if (last_reader_[source.value] == i) values[source.value].clear();
      }
    }
    return std::move(values.back());
  }

 private:
  std::vector<Entry> entries_;
  std::vector<std::size_t> last_reader_;  // by value
  ParallelPass in_parallel_;              // eager
};

}  // namespace convscope
