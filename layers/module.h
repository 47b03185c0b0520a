// SPDX-License-Identifier: Apache-2.0
// module.h: what a network is made of: named parameters, named buffers, named children, and a
// forward pass.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/autograd/variable.h"

namespace convscope {

class HeavyUse;
class PlanGraph;

struct NamedParameter {
  std::string name;  // "c1.weight"
  Variable variable;
  // Its learning rate as a multiple of that of the network: Module::scale_learning_rate().
  double lr_scale = 1.0;
};

class Module;
struct NamedModule {
  std::string name;  // "c1"; "" for the module itself
  Module* module;
};

// Called with a module and the shape that reaches it.
using WalkVisitor = std::function<void(Module&, const Shape&)>;

class CONVSCOPE_API Module {
 public:
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual std::string kind() const = 0;  // the registered type name: "conv2d"
  virtual Variable forward(const Variable& x) = 0;
  // Shape of forward(x) for x of shape `input`; an error, in the words of the layer, when the input
  // does not fit. Used to build networks and to explain them without running them.
  virtual Shape output_shape(const Shape& input) const = 0;
  // Visits the layers that an input of this shape passes, in order, without running them. A layer
  // visits itself; a module made of layers (Sequential, Residual) passes the walk on to them. A
  // module that has parts and visits itself hides which shapes reach the parts.
  virtual void walk(const Shape& input, const WalkVisitor& visit) { visit(*this, input); }

  // What forward() does, written into a static graph (plan/plan_graph.h): adds the operations that
  // turn value `x` into the result, and returns its number. The default runs forward() as a dynamic
  // graph inside the planned step: a layer without a planned form costs its own fusion only.
  virtual int describe(PlanGraph& graph, int x);

  // Train mode is the default. It changes dropout and batch norm.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  // Number of the training step that the next forward belongs to, counted over the whole run. The
  // trainer sets it before each step; dropout draws its masks from (seed, layer, step), so a
  // resumed run drops the same elements as one that was never interrupted.
  void set_step(std::int64_t step);
  std::int64_t step() const { return step_; }

  // A transform stands between a layer and what it computes with: a quantiser, a pruning mask. It
  // is a Module like any other, so its parameters are trained and saved. Layers with a weight
  // (conv2d, linear) pass their input and their weight through them, a block that adds (residual.h)
  // its input; several act in the order added, and `first` before those that are there (a quantiser
  // rounds what a mask leaves).
  void add_input_transform(const std::string& name, std::shared_ptr<Module> transform);
  void add_weight_transform(const std::string& name, std::shared_ptr<Module> transform,
                            bool first = false);
  // The layer's own weight, before any transform; undefined for layers without one.
  virtual Variable weight() const { return {}; }
  // What it computes with: its weight behind all transforms; undefined for layers without one.
  Variable used_weight() const {
    return weight().defined() ? transformed_weight(weight()) : weight();
  }
  // Into how many independent parts the channels of weight() fall: a convolution's groups.
  virtual std::int64_t weight_groups() const { return 1; }

  // What an input of this shape asks of a layer with several algorithms (dispatch/heavy_use.h): its
  // problem, and what its policy chooses. Null for all other layers.
  virtual std::unique_ptr<HeavyUse> heavy_use(const Shape& input) const;

  // In the order in which they were added, children after the module's own; names joined by dots.
  std::vector<NamedParameter> parameters() const;
  std::vector<NamedTensor> buffers() const;
  std::vector<NamedModule> modules();  // itself first, then all descendants
  void zero_grad();
  std::int64_t parameter_count() const;

  // All parameters below learn at `factor` times the rate of the network, where no group of the
  // optimiser says otherwise; factors of modules inside each other are multiplied.
  void scale_learning_rate(double factor);

  // Moves parameters with their gradients, buffers, transforms and children. Variables stay the
  // same objects, so names, groups of an optimiser and transforms stay valid. The state of an
  // optimiser is made where the parameters are: move a model before its optimiser is made.
  void to(Device device);

 protected:
  Module() = default;
  Variable add_parameter(const std::string& name, const Tensor& value);
  // `member` is the module's own handle: it becomes `value`, and follows when the module moves. On
  // the host: stays there, because the host reads it in each step.
  enum class BufferPlace { with_parameters, host };
  void add_buffer(const std::string& name, Tensor& member, const Tensor& value,
                  BufferPlace place = BufferPlace::with_parameters);
  void add_buffer(const std::string& name, const Variable& value);  // no gradient is asked for
  // Called by to(): for what a module holds beside parameters, buffers and children.
  virtual void moved_to(Device) {}
  template <class M>
  std::shared_ptr<M> add_child(const std::string& name, std::shared_ptr<M> child) {
    add_child_module(name, child);
    return child;
  }
  Variable transformed_input(const Variable& x) const;
  Variable transformed_weight(const Variable& w) const;
  // The same in a static graph; the weight is a value of it from then on.
  int transformed_input(PlanGraph& graph, int x) const;
  int transformed_weight(PlanGraph& graph, const Variable& w) const;
  // x through these children, one after the other, in a static graph.
  int described(PlanGraph& graph, int x, const std::vector<std::shared_ptr<Module>>& through) const;

 private:
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

}  // namespace convscope
