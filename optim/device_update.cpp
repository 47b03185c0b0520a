// SPDX-License-Identifier: Apache-2.0
// device_update.cpp: an optimiser's steps on a device that runs ahead of the host: the update is
// recorded once, together with the forward and backward passes, and replayed many times.
#include "optim/device_update.h"

#include <algorithm>

#include "optim/update.h"

namespace convscope {
namespace {

// Number of pinned buffers for uploads. The host fills one buffer while the uploads of the others
// may still be pending.
constexpr int kBuffers = 4;

constexpr const char* kName = "device_update";

}  // namespace

struct DeviceUpdate::Parts {
  Optimizer& optimizer;
  Device device;
  int most_steps;
  UpdateTable table;    // the rows as recorded
  UpdateTable listing;  // the same, for one step of an upload
  std::size_t rows = 0;
  Tensor scalars;  // UpdateScalars [most_steps][rows], as bytes
  Tensor norm;     // f64 [1]
  UpdateScalars* pinned[kBuffers] = {};
  void* marks[kBuffers] = {};
  bool used[kBuffers] = {};
  int next = 0;
  int uploaded = 0;

  Parts(Optimizer& optimizer_in, Device device_in, int most_steps_in)
      : optimizer(optimizer_in),
        device(device_in),
        most_steps(most_steps_in),
        table(optimizer_in.groups()),
        listing(optimizer_in.groups()) {}

  const DeviceBackend& backend() const { return backend_of(device); }
  std::size_t step_bytes() const { return rows * sizeof(UpdateScalars); }

  bool list(double lr, bool counts, UpdateTable& to) {
    to.take_empty_gradients(true);
    return optimizer.list_step(lr, counts, to);
  }

  bool same_rows() const {
    if (listing.rows().size() != rows) return false;
    for (std::size_t i = 0; i < rows; ++i) {
      const UpdateRow& a = table.rows()[i];
      const UpdateRow& b = listing.rows()[i];
      if (a.average != b.average || a.slow != b.slow) return false;
      if (a.w != b.w || a.dw != b.dw || a.count != b.count ||
          !std::ranges::equal(a.state, b.state)) {
        return false;
      }
    }
    return true;
  }
};

DeviceUpdate::DeviceUpdate(Optimizer& optimizer, Device device, int most_steps)
    : parts_(std::make_unique<Parts>(optimizer, device, most_steps)) {
  Parts& p = *parts_;
  CONVSCOPE_CHECK(most_steps >= 1, kName, "expected at least one step, got ", most_steps);
  CONVSCOPE_CHECK(p.list(0.0, /*counts=*/false, p.table), kName,
                  "expected an optimiser whose steps can be recorded, got ", optimizer.kind());
  p.rows = p.table.rows().size();
  CONVSCOPE_CHECK(p.rows > 0 && p.table.device() == device, kName,
                  "expected parameters with gradients on ", device, ", got ", p.rows,
                  " of them on ", p.table.device());
  const std::size_t bytes = p.step_bytes() * static_cast<std::size_t>(most_steps);
  p.scalars = Tensor::zeros({static_cast<std::int64_t>(bytes)}, DType::u8, device);
  p.norm = Tensor::zeros({1}, DType::f64, device);
  for (int i = 0; i < kBuffers; ++i) {
    p.pinned[i] = static_cast<UpdateScalars*>(p.backend().allocate_pinned(bytes));
    p.marks[i] = p.backend().make_mark(device.index);
  }
}

DeviceUpdate::~DeviceUpdate() {
  const Parts& p = *parts_;
  const DeviceBackend& backend = p.backend();
  for (int i = 0; i < kBuffers; ++i) {
    if (p.used[i]) backend.wait_for_mark(p.device.index, p.marks[i]);
    if (p.marks[i] != nullptr) backend.free_mark(p.device.index, p.marks[i]);
    if (p.pinned[i] != nullptr) backend.free_pinned(p.pinned[i]);
  }
}

bool DeviceUpdate::is_current() {
  Parts& p = *parts_;
  return p.list(0.0, /*counts=*/false, p.listing) && p.same_rows();
}

void DeviceUpdate::upload(const double* rates, int steps) {
  Parts& p = *parts_;
  CONVSCOPE_CHECK(steps >= 1 && steps <= p.most_steps, kName, "expected 1 to ", p.most_steps,
                  " steps, got ", steps);
  const DeviceBackend& backend = p.backend();
  const int buffer = p.next;
  p.next = (p.next + 1) % kBuffers;
  if (p.used[buffer]) backend.wait_for_mark(p.device.index, p.marks[buffer]);
  UpdateScalars* to = p.pinned[buffer];
  for (int step = 0; step < steps; ++step) {
    p.list(rates[step], /*counts=*/true, p.listing);
    CONVSCOPE_CHECK(
        p.same_rows(), kName,
        "expected the recorded parameters and gradients, because a recording holds their "
        "addresses, got others");
    for (const UpdateRow& row : p.listing.rows()) *to++ = row.scalars;
  }
  backend.copy_from_host(p.device.index, p.scalars.raw_data(), p.pinned[buffer],
                         p.step_bytes() * static_cast<std::size_t>(steps));
  backend.set_mark(p.device.index, p.marks[buffer]);
  p.used[buffer] = true;
  p.uploaded = steps;
}

void DeviceUpdate::launch(int step, const UpdateGate& gate) const {
  const Parts& p = *parts_;
  CONVSCOPE_CHECK(step >= 0 && step < p.most_steps, kName, "expected a step in [0,", p.most_steps,
                  "), got ", step);
  const auto* const scalars = static_cast<const UpdateScalars*>(p.scalars.raw_data());
  p.optimizer.queue_directions();
  recorded_update_kernel.get(p.device)(p.table, scalars + static_cast<std::size_t>(step) * p.rows,
                                       gate);
}

std::unique_ptr<JoinedUpdate> DeviceUpdate::joined(int step, const UpdateGate& gate) const {
  const Parts& p = *parts_;
  CONVSCOPE_CHECK(step >= 0 && step < p.most_steps, kName, "expected a step in [0,", p.most_steps,
                  "), got ", step);
  const auto* scalars = static_cast<const UpdateScalars*>(p.scalars.raw_data()) +
                        static_cast<std::size_t>(step) * p.rows;
  if (p.table.has_slow_weights() || p.optimizer.has_directions()) return nullptr;
  auto out = std::make_unique<JoinedUpdate>(
      JoinedUpdate{.rows = {}, .rule = p.table.rule(), .gate = gate});
  for (const UpdateRow& row : p.table.rows()) {
    if (row.dtype != DType::f32) return nullptr;
    JoinedRow& joined = out->rows.emplace_back();
    joined.dw = row.dw;
    joined.w = static_cast<float*>(row.w);
    for (int k = 0; k < kMaxUpdateStates; ++k) joined.state[k] = static_cast<float*>(row.state[k]);
    joined.scalars = scalars++;
  }
  return out;
}

void DeviceUpdate::unscale(DeviceLossScale* scale) const {
  recorded_unscale_kernel.get(parts_->device)(parts_->table, scale);
}

void DeviceUpdate::clip(double max_norm) const {
  const Parts& p = *parts_;
  CONVSCOPE_CHECK(max_norm > 0, kName, "expected max_norm > 0, got ", max_norm);
  recorded_clip_kernel.get(p.device)(p.table, max_norm, p.norm.data<double>());
}

double DeviceUpdate::norm() const { return parts_->norm.item(); }

}  // namespace convscope
