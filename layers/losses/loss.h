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
//   CONVSCOPE_REGISTER_LOSS("mse", MeanSquaredError, "mean squared error ...")
#pragma once

#include <memory>
#include <string>

#include "framework/graph/emitter.h"
#include "framework/registry.h"

namespace convscope {

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
  // Returns the shape of the terms: by default one for each element of x.
  virtual Shape terms_shape(const Shape& x) const { return x; }
  // Returns the shape of the memory that run(Forward) needs besides its results.
  virtual Shape scratch_shape(const Shape& /*x*/) const { return {1}; }
  virtual void run(const Forward& a) const = 0;
  virtual void run(const Backward& a) const = 0;

  TensorDesc bind(Graph& graph) final;
  void forward(Emitter& emitter) final;
  void backward(Emitter& emitter) final;

 private:
  Slot saved_ = kNoSlot;
};

struct LossType {
  std::string doc;  // one line: its formula
  std::unique_ptr<LossOperation> (*make)();

  // Returns the loss of a batch, one element. Throws for the first label outside of [0,K); labels
  // on a GPU are not checked.
  CONVSCOPE_API Variable operator()(const Variable& x, const Tensor& labels) const;
  // Does the same without checks of the labels; both may be symbolic.
  CONVSCOPE_API Variable operator()(const Variable& x, const Variable& labels) const;
  // Returns the number of rows, or pixels, whose largest entry is the entry of the label.
  CONVSCOPE_API std::int64_t correct(const Tensor& x, const Tensor& labels) const;
};
CONVSCOPE_API Registry<LossType>& loss_types();

// The loss of a training whose config names none.
inline constexpr const char* kDefaultLoss = "cross_entropy";
CONVSCOPE_API const LossType& default_loss();

}  // namespace convscope

// Use this macro once, at the end of the .cpp file of a loss.
#define CONVSCOPE_REGISTER_LOSS(name, Class, doc)                                              \
  namespace {                                                                                  \
  const bool registered_loss = ::convscope::loss_types().add(                                  \
      name,                                                                                    \
      {doc,                                                                                    \
       [] { return std::unique_ptr<::convscope::LossOperation>(std::make_unique<Class>()); }}, \
      __FILE__);                                                                               \
  }
