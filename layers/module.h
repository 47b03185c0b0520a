// SPDX-License-Identifier: Apache-2.0
// module.h: the base class of layers and networks: named parameters, named buffers, named children,
// and a forward pass.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/autograd/variable.h"

namespace convscope {

class OperatorUse;
class Graph;

struct NamedParameter {
  std::string name;  // "c1.weight"
  Variable variable;
  // The factor by which the network's learning rate is multiplied: Module::scale_learning_rate().
  double lr_scale = 1.0;
};

class Module;
struct NamedModule {
  std::string name;  // "c1"; "" for the module itself
  Module* module;
};

// The inputs or outputs of a module, and their shapes.
using Variables = std::vector<Variable>;
using Shapes = std::vector<Shape>;

// Called with a module and the shapes of its inputs.
using WalkVisitor = std::function<void(Module&, const Shapes&)>;

class CONVSCOPE_API Module {
 public:
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual std::string kind() const = 0;  // the registered type name: "conv2d"
  virtual Variable forward(const Variable& x) = 0;
  // Does the same with a list of inputs and a list of outputs. A module with several of them is a
  // MultiModule; the lists of all others have one entry.
  virtual Variables forward(const Variables& inputs);
  // Calls forward(). While a graph is recorded (framework/graph/graph.h), x is symbolic. If
  // forward() then reads the numbers of x, the layer becomes one operation that runs eagerly. Its
  // results are right, but it is not fused with its neighbours, and the step cannot be recorded as
  // a CUDA graph.
  Variable operator()(const Variable& x);
  Variables operator()(const Variables& inputs);
  // Returns the number of inputs. check_inputs() throws unless there are as many.
  virtual std::size_t input_count() const { return 1; }
  void check_inputs(std::size_t count) const;
  // Returns whether forward() takes or returns several variables.
  virtual bool has_lists() const { return false; }
  // Returns the shape of forward(x) for x of shape `input`, to build and explain networks without
  // running them. Throws with the layer's message when the input does not fit.
  virtual Shape output_shape(const Shape& input) const = 0;
  virtual Shapes output_shapes(const Shapes& inputs) const;
  // Visits the layers that inputs of these shapes pass, in order, without running them. A layer
  // visits itself; a module made of layers (Sequential, Residual) forwards the walk to them. If a
  // module with parts visited itself, the shapes that reach the parts would be unknown.
  virtual void walk(const Shapes& inputs, const WalkVisitor& visit) { visit(*this, inputs); }

  // Sets train mode, which is the default, or eval mode. The mode changes dropout and batch norm.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  // Returns whether forward(x) is a training step: the mode of the graph while one is recorded,
  // else that of the module.
  bool trains_on(const Variable& x) const;

  // Sets the number of the training step of the next forward, counted over the whole run. The
  // trainer calls it before each step. Dropout draws its masks from (seed, layer, step), so a
  // resumed run drops the same elements as an uninterrupted one.
  void set_step(std::int64_t step);
  std::int64_t step() const { return step_; }

  // Adds a transform of the layer's input or weight: a quantiser, a pruning mask. A transform is a
  // Module, so its parameters are trained and saved. Layers with a weight (conv2d, linear) apply
  // both kinds, a residual block (residual.h) applies input transforms. Transforms run in the order
  // added. With `first` a transform is inserted before the present ones: a mask is added in this
  // way, so that a quantiser rounds the masked weight.
  void add_input_transform(const std::string& name, std::shared_ptr<Module> transform);
  void add_weight_transform(const std::string& name, std::shared_ptr<Module> transform,
                            bool first = false);
  // Returns the weight before any transform; undefined for layers without one.
  virtual Variable weight() const { return {}; }
  // Returns the weight after all transforms; undefined for layers without one.
  Variable used_weight() const {
    return weight().defined() ? transformed_weight(weight()) : weight();
  }
  // Returns the number of independent parts of the channels of weight(): a convolution's groups.
  virtual std::int64_t weight_groups() const { return 1; }

  // Returns the problem of an operator for an input of this shape, and what its policy chooses
  // (dispatch/operator_use.h). Null for all other layers.
  virtual std::unique_ptr<OperatorUse> operator_use(const Shape& input) const;

  // Returns all parameters in the order added: first those of the module itself, then those of its
  // children. The names along the path are joined by dots. The next two functions do the same for
  // buffers and modules.
  std::vector<NamedParameter> parameters() const;
  std::vector<NamedTensor> buffers() const;
  std::vector<NamedModule> modules();  // itself first, then all descendants
  void zero_grad();
  std::int64_t parameter_count() const;

  // Multiplies the learning rate of the parameters of this module and its descendants, unless a
  // group of the optimiser sets it. If a descendant is scaled, too, both scales apply.
  void scale_learning_rate(double factor);

  // Moves parameters with their gradients, buffers, transforms and children. Variables stay the
  // same objects, so names, optimiser groups and transforms stay valid. An optimiser allocates its
  // state where the parameters are: move a model before creating its optimiser.
  void to(Device device);

 protected:
  Module() = default;
  Variable add_parameter(const std::string& name, const Tensor& value);
  // Adds a buffer. Sets `member`, a tensor of the module, to `value`; moving the module replaces
  // `member`. With BufferPlace::host the buffer stays on the host, which reads it in each step.
  enum class BufferPlace { with_parameters, host };
  void add_buffer(const std::string& name, Tensor& member, const Tensor& value,
                  BufferPlace place = BufferPlace::with_parameters);
  void add_buffer(const std::string& name, const Variable& value);  // without gradient
  // Called by to(). A module overrides it to move other data than parameters, buffers and children.
  virtual void moved_to(Device) {}
  template <class M>
  std::shared_ptr<M> add_child(const std::string& name, std::shared_ptr<M> child) {
    add_child_module(name, child);
    return child;
  }
  // Returns the only entry of the outputs. Throws if there are several.
  template <class T>
  T only_output(const std::vector<T>& outputs) const {
    check_one_output(outputs.size());
    return outputs[0];
  }
  Variable transformed_input(const Variable& x) const;
  Variable transformed_weight(const Variable& w, Graph* graph = nullptr) const;
  // Passes x through these children, one after the other. `graph` is the one that is recorded.
  Variable passed(const Variable& x, const std::vector<std::shared_ptr<Module>>& through,
                  Graph* graph) const;

 private:
  void check_one_output(std::size_t count) const;
  void add_child_module(const std::string& name, std::shared_ptr<Module> child);
  void collect_parameters(const std::string& prefix, double lr_scale,
                          std::vector<NamedParameter>& out) const;
  void collect_buffers(const std::string& prefix, std::vector<NamedTensor>& out) const;
  void collect_modules(const std::string& prefix, std::vector<NamedModule>& out);

  bool training_ = true;
  std::int64_t step_ = 0;
  double lr_scale_ = 1.0;
  std::vector<NamedParameter> parameters_;
  struct Buffer {
    std::string name;
    Tensor* member;     // null: `variable` holds it
    Variable variable;  //
    BufferPlace place;
  };
  std::vector<Buffer> buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::vector<std::shared_ptr<Module>> input_transforms_, weight_transforms_;
};

// A module with several inputs or outputs:
//
//   class Gate final : public MultiModule {
//    public:
//     Gate() : MultiModule(/*inputs=*/2) {}
//     std::string kind() const override { return "gate"; }
//     Variables forward(const Variables& in) override { return {in[0] * sigmoid(in[1]), in[1]}; }
//     Shapes output_shapes(const Shapes& in) const override { return in; }
//   };
//   Variables both = gate({x, image});
class CONVSCOPE_API MultiModule : public Module {
 public:
  Variables forward(const Variables& inputs) override = 0;
  Shapes output_shapes(const Shapes& inputs) const override = 0;

  // Returns the only output for the only input. Throws if there are several.
  Variable forward(const Variable& x) final;
  Shape output_shape(const Shape& input) const final;
  std::size_t input_count() const final { return inputs_; }
  bool has_lists() const final { return true; }

 protected:
  explicit MultiModule(std::size_t inputs) : inputs_(inputs) {}

 private:
  std::size_t inputs_;
};

// Returns the graph that is recorded while a module runs on these inputs, or null.
CONVSCOPE_API Graph* recorded_graph(const Variables& inputs);

}  // namespace convscope
