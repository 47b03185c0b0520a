// SPDX-License-Identifier: Apache-2.0
// sequential.h: layers one after the other.
//
// Shapes     inputs of the first layer -> outputs of the last one; a layer takes all outputs of the
//            layer before it
// Usage      auto net = std::make_shared<Sequential>(); net->add("f1", linear); net->forward(x);
// Names      the parameters of a layer are called "<layer name>.<parameter>": "f1.weight"
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/autograd/parallel_pass.h"
#include "layers/module.h"

namespace convscope {

class CONVSCOPE_API Sequential final : public Module {
 public:
  Sequential() = default;
  // Takes the registered name of a whole model that is built this way ("lenet5").
  explicit Sequential(std::string kind_name) : kind_(std::move(kind_name)) {}

  void add(const std::string& name, std::shared_ptr<Module> layer);
  std::size_t size() const { return layers_.size(); }
  Module& layer(std::size_t index) const { return *layers_.at(index); }

  std::string kind() const override { return kind_; }
  Variable forward(const Variable& x) override;
  Variables forward(const Variables& inputs) override;
  Shape output_shape(const Shape& input) const override;
  Shapes output_shapes(const Shapes& inputs) const override;
  void walk(const Shapes& inputs, const WalkVisitor& visit) override;
  std::size_t input_count() const override {
    return layers_.empty() ? 1 : layers_[0]->input_count();
  }
  bool has_lists() const override { return has_lists_; }

 private:
  std::string kind_ = "sequential";
  std::vector<std::shared_ptr<Module>> layers_;
  std::vector<std::string> names_;
  bool has_lists_ = false;    // a layer has
  ParallelPass in_parallel_;  // eager
};

}  // namespace convscope
