// SPDX-License-Identifier: Apache-2.0
// update.cpp: one fused pass that updates all parameters of a network.
#include "optim/update.h"

namespace convscope {

constinit KernelSlot<void(const UpdateTable&)> update_kernel{"update"};
constinit KernelSlot<double(const UpdateTable&)> gradient_norm_kernel{"clip_gradient_norm"};
constinit KernelSlot<void(const UpdateTable&, double)> scale_gradients_kernel{"clip_gradient_norm"};
constinit KernelSlot<void(const UpdateTable&, const UpdateScalars*, const UpdateGate&)>
    recorded_update_kernel{"update"};
constinit KernelSlot<void(const UpdateTable&, DeviceLossScale*)> recorded_unscale_kernel{
    "loss scale"};
constinit KernelSlot<void(const UpdateTable&, double, double*)> recorded_clip_kernel{
    "clip_gradient_norm"};
constinit IsaTable<UpdateKernels> update_kernels;

UpdateTable::UpdateTable(const std::vector<ParameterGroup>& groups) {
  std::size_t count = 0;
  for (const ParameterGroup& group : groups) count += group.parameters.size();
  rows_.reserve(count);
}

void UpdateTable::clear(const UpdateRule& rule) {
  rule_ = rule;
  rows_.clear();
  elements_ = 0;
  has_slow_weights_ = false;
}

UpdateRow* UpdateTable::add(const Variable& parameter) {
  // zero_grad() marks a gradient as empty without writing to its memory. A parameter that the last
  // backward pass did not reach is then skipped, as before the first backward pass.
  const Variable::State& state = *parameter.state();
  if (!state.grad.defined() || (state.grad_is_zero && !takes_empty_)) return nullptr;
  const Tensor& w = state.value;
  const Tensor& dw = state.grad;
  CONVSCOPE_CHECK(dw.dtype() == w.dtype() && dw.device() == w.device(), "optimizer",
                  "expected a gradient ", w.str(), " like its parameter, got ", dw.str());
  UpdateRow& row = add_row(w);
  row.dw = dw.raw_data();
  return &row;
}

void UpdateTable::add_average(const Tensor& tensor, const Tensor& average) {
  CONVSCOPE_CHECK(average.shape() == tensor.shape() && average.dtype() == tensor.dtype(),
                  "optimizer", "expected an average ", tensor.str(), ", got ", average.str());
  add_row(tensor).average = average.raw_data();
}

UpdateRow& UpdateTable::add_row(const Tensor& w) {
  if (rows_.empty()) device_ = w.device();
  CONVSCOPE_CHECK(w.device() == device_, "optimizer", "expected all parameters on ", device_,
                  " because one pass updates them, got one on ", w.device());
  UpdateRow& row = rows_.emplace_back();
  row.dtype = w.dtype();
  row.begin = elements_;
  row.count = w.numel();
  row.w = w.raw_data();
  elements_ += row.count;
  return row;
}

}  // namespace convscope
