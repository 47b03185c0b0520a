// SPDX-License-Identifier: Apache-2.0
// loss.h: the loss that a training minimises, and the table of losses that a config can name
// (train.loss).
//
// One file is a loss. It writes the terms whose mean is the loss, and the gradient:
//
//   class MeanSquaredError final : public LossOperation {
//    public:
//     MeanSquaredError() : LossOperation("mse") {}
//     void run(const Forward& a) const override { ... }   // assigns a.saved and a.terms
//     void run(const Backward& a) const override { ... }  // assigns a.dx
//   };
//   CONVSCOPE_REGISTER_LOSS("mse", {.doc = "mean squared error ...",
//                                   .fields = {},
//                                   .make = make_loss<MeanSquaredError>})
//
// With fields, the constructor takes the options: MeanSquaredError(const Options& options).
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/graph/emitter.h"
#include "framework/options.h"
#include "framework/registry.h"

namespace convscope {

// How many labels each class has in a batch that is computed in parts (Loss::for_parts()); empty:
// each call computes a whole batch.
using LabelCounts = std::vector<std::int64_t>;

// Inputs: the result x [N,K] of the network, f32 or f64, and the labels i32 [N]; or, with a class
// for each pixel, x [N,K,H,W] and i32 [N,H,W]. Pixels become rows (class_rows.h), so that a loss
// sees R rows: N, or N H W. Outputs: the loss, one element, and the number of rows whose largest
// entry is the entry of the label, i32 [1].
class CONVSCOPE_API LossOperation : public Operation {
 public:
  using Operation::Operation;

  struct Forward {
    Tensor x;        // [R,K]
    Tensor labels;   // R elements
    Tensor saved;    // [R,K], assigned; kept for the backward pass
    Tensor terms;    // of terms_shape(), assigned
    Tensor scratch;  // of scratch_shape(), for this call
    Device device() const { return x.device(); }
  };
  struct Backward {
    Tensor saved, labels;
    double factor;  // the gradient of the loss divided by the number of terms
    Tensor dx;      // [R,K], assigned
    Device device() const { return dx.device(); }
  };
  // Prepares for rows [R,K]: checks options that depend on K, and makes constant tensors.
  virtual void prepare(const Shape& /*rows*/, DType, Device) {}
  // Returns the shape of the terms: by default one for each element of x.
  virtual Shape terms_shape(const Shape& x) const { return x; }
  // Returns the shape of the memory that run(Forward) needs besides its results.
  virtual Shape scratch_shape(const Shape& /*x*/) const { return {1}; }
  virtual void run(const Forward& a) const = 0;
  virtual void run(const Backward& a) const = 0;

  TensorDesc bind(Graph& graph) final;
  void forward(Emitter& emitter) final;
  void backward(Emitter& emitter) final;

  std::shared_ptr<const LabelCounts> label_counts;  // of the whole batch; null: as if empty

 private:
  Slot saved_ = kNoSlot;
};

struct LossType {
  std::string doc;                  // one line: its formula
  std::vector<OptionField> fields;  // an option of type `numbers` has one number for each class
  std::function<std::unique_ptr<LossOperation>(const Options&)> make;  // takes a value per field
};
CONVSCOPE_API Registry<LossType>& loss_types();

// The loss of a training whose config names none.
inline constexpr const char* kDefaultLoss = "cross_entropy";

// A loss with its options, and its weight in a sum of losses.
struct LossTerm {
  std::string type = kDefaultLoss;
  Options options = {};  // options that are not given have their defaults
  double weight = 1;
  std::string place = {};  // in a config, before errors: "my.yaml:12:5: error: "
};

// What a training minimises: a loss, or a weighted sum of losses.
class CONVSCOPE_API Loss {
 public:
  Loss() : Loss(std::vector<LossTerm>(1)) {}  // cross-entropy
  explicit Loss(const std::string& type, const Options& options = {})
      : Loss({LossTerm{.type = type, .options = options}}) {}
  // Fails when a type or an option does not exist, or when a value does not fit.
  explicit Loss(std::vector<LossTerm> terms);

  // Returns the loss of a batch, one element. Throws for the first label outside of [0,K); labels
  // on a GPU are not checked.
  Variable operator()(const Variable& x, const Tensor& labels) const;
  // Does the same without checks of the labels; both may be symbolic.
  Variable operator()(const Variable& x, const Variable& labels) const;
  // Returns the number of rows, or pixels, whose largest entry is the entry of the label.
  std::int64_t correct(const Tensor& x, const Tensor& labels) const;

  // Returns the number of classes for which the loss has weights; 0: for none.
  std::int64_t weighted_classes() const;
  // Returns this loss for batches that are computed in parts, one after the other or by several
  // processes. The mean of the parts' losses, weighted by their rows, is then the loss of the whole
  // batch also with class weights: set_label_counts() says how many labels each class has in it.
  // Copies of the result share these counts.
  Loss for_parts() const;
  void set_label_counts(LabelCounts counts) const;

 private:
  std::unique_ptr<LossOperation> operation() const;

  std::vector<LossTerm> terms_;
  std::shared_ptr<LabelCounts> label_counts_;
};

template <class Operation>
std::unique_ptr<LossOperation> make_loss(const Options& options) {
  if constexpr (std::constructible_from<Operation, const Options&>) {
    return std::make_unique<Operation>(options);
  } else {
    return std::make_unique<Operation>();
  }
}

}  // namespace convscope

// Use this macro once, at the end of the .cpp file of a loss.
#define CONVSCOPE_REGISTER_LOSS(name, ...)                                              \
  namespace {                                                                           \
  const bool registered_loss =                                                          \
      ::convscope::loss_types().add(name, ::convscope::LossType __VA_ARGS__, __FILE__); \
  }
