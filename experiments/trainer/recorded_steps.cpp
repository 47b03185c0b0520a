// SPDX-License-Identifier: Apache-2.0
// recorded_steps.cpp: steps that a device does by itself, several for each launch: the planned
// kernel calls of the whole step are recorded once (DeviceBackend::begin_recording; a CUDA graph)
// and then replayed.
#include "experiments/trainer/recorded_steps.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace convscope {

constinit KernelSlot<void(const NextBatch&)> next_batch_kernel{"next_batch"};

namespace {

constexpr const char* kName = "recorded_steps";

template <class T>
Tensor device_array(std::int64_t count, Device device) {
  return Tensor::zeros({count * static_cast<std::int64_t>(sizeof(T))}, DType::u8, device);
}
template <class T>
T* as(const Tensor& bytes) {
  return static_cast<T*>(bytes.raw_data());
}

}  // namespace

std::string recording_obstacle(const RecordingFacts& facts) {
  if (facts.scaled_loss) return "the loss is scaled";
  if (facts.augments) return "the images are augmented on the host";
  return "";
}

std::unique_ptr<RecordedSteps> RecordedSteps::make(Module& model, Optimizer* optimizer,
                                                   double clip_norm, const Loader& loader,
                                                   Device device, std::string* why_not,
                                                   std::function<void()> after_update) {
  const auto refused = [&](const std::string& why) {
    if (why_not != nullptr) *why_not = why;
    return nullptr;
  };
  if (backend_of(device).begin_recording == nullptr) {
    return refused(cat(device.str(), " records no kernels"));
  }
  std::unique_ptr<RecordedSteps> out(
      new RecordedSteps(model, optimizer, clip_norm, loader, device));
  const std::int64_t size = loader.dataset().size();
  const std::int64_t batch = std::min(loader.options().batch_size, size);
  if (loader.batches_per_epoch() == 0) return refused("there is no batch");
  std::string why;
  if (!out->plan_form(out->full_, batch, &why)) return refused(why);
  const std::int64_t rest = size % batch;
  if (rest > 0 && !loader.options().drop_last && !out->plan_form(out->last_, rest, &why)) {
    return refused(why);
  }
  out->data_ = DeviceData::make(loader, device, &why);
  if (!out->data_) return refused(why);
  out->after_update_ = std::move(after_update);
  if (optimizer != nullptr) {
    out->update_ = std::make_unique<DeviceUpdate>(*optimizer, device, kMostSteps);
  }
  return out;
}

RecordedSteps::RecordedSteps(Module& model, Optimizer* optimizer, double clip_norm,
                             const Loader& loader, Device device)
    : model_(model),
      optimizer_(optimizer),
      clip_norm_(clip_norm),
      loader_(loader),
      device_(device),
      backend_(backend_of(device)),
      start_(device_array<LaunchStart>(1, device)),
      outcomes_(device_array<StepOutcome>(kMostSteps, device)),
      halted_(Tensor::zeros({1}, DType::i32, device)) {
  for (Slot& slot : slots_) {
    slot.start = static_cast<LaunchStart*>(backend_.allocate_pinned(sizeof(LaunchStart)));
    slot.outcomes =
        static_cast<StepOutcome*>(backend_.allocate_pinned(sizeof(StepOutcome) * kMostSteps));
    slot.begin = backend_.make_mark(device.index);
    slot.end = backend_.make_mark(device.index);
  }
}

RecordedSteps::~RecordedSteps() {
  while (in_flight_ > 0) collect();
  for (const Form* form : {&full_, &last_}) {
    for (const auto& [steps, recording] : form->recordings) {
      backend_.free_recording(device_.index, recording);
    }
  }
  for (const Slot& slot : slots_) {
    backend_.free_mark(device_.index, slot.begin);
    backend_.free_mark(device_.index, slot.end);
    backend_.free_pinned(slot.start);
    backend_.free_pinned(slot.outcomes);
  }
}

bool RecordedSteps::plan_form(Form& form, std::int64_t batch, std::string* why_not) {
  Shape input = {batch};
  for (const std::int64_t size : loader_.dataset().sample_shape()) input.push_back(size);
  const PlanMode mode = optimizer_ != nullptr ? PlanMode::training : PlanMode::evaluation;
  // The forms never run at the same time, so they share their memory; but not those of an
  // evaluation, whose folded weights stay in it from launch to launch.
  const bool shares = optimizer_ != nullptr && full_.plan != nullptr;
  form.plan =
      StepPlan::make(model_, input, mode, why_not, shares ? full_.plan->arena() : Ref<Storage>());
  if (!form.plan) return false;
  if (!(form.plan->device() == device_)) {
    *why_not = cat("the network is not on ", device_.str());
    return false;
  }
  *why_not = form.plan->why_not_recordable();
  if (!why_not->empty()) return false;
  form.batch = batch;
  form.x = Tensor::zeros(input, DType::f32, device_);
  form.plan->set_images(form.x);
  return true;
}

bool RecordedSteps::is_current() const {
  return full_.plan->is_current() && (!last_.plan || last_.plan->is_current()) &&
         (!update_ || update_->is_current());
}

void RecordedSteps::start_epoch(std::int64_t epoch, std::int64_t first_batch, std::int64_t step) {
  CONVSCOPE_CHECK(in_flight_ == 0, kName, "expected no launch in flight before an epoch, got ",
                  in_flight_);
  data_->start_epoch(epoch);
  batch_ = first_batch;
  batches_ = loader_.batches_per_epoch();
  step_ = step;
  for (const Form* form : {&full_, &last_}) {
    if (form->plan) form->plan->prepare();
  }
}

// Between two steps: what the one before has left, and the images of the next.
void RecordedSteps::next_batch(const Form& form, int step, bool gathers) const {
  const Shape image = loader_.dataset().sample_shape();
  NextBatch a{.start = as<LaunchStart>(start_),
              .offset = step * form.batch,
              .batch = gathers ? form.batch : 0,
              .channels = image[0],
              .plane = image[1] * image[2],
              .images = data_->images().data<std::uint8_t>(),
              .image_labels = data_->labels().data<std::int32_t>(),
              .order = data_->order().data<std::int32_t>(),
              .levels = data_->levels().data<float>(),
              .x = form.x.data<float>(),
              .labels = form.plan->labels().data<std::int32_t>()};
  if (step > 0) {
    a.loss = form.plan->loss_tensor().data<float>();
    a.correct = form.plan->correct_tensor().data<std::int32_t>();
    a.outcome = as<StepOutcome>(outcomes_) + (step - 1);
    a.halted = optimizer_ != nullptr ? halted_.data<std::int32_t>() : nullptr;
  }
  next_batch_kernel.get(device_)(a);
}

void RecordedSteps::queue_calls(Form& form, int steps) const {
  for (int i = 0; i < steps; ++i) {
    next_batch(form, i, /*gathers=*/true);
    form.plan->set_clock({&as<LaunchStart>(start_)->step, i});
    form.plan->queue_forward();
    if (!update_) continue;
    form.plan->backward();
    if (clip_norm_ > 0) update_->clip(clip_norm_);
    update_->launch(i, {.loss = form.plan->loss_tensor().data<float>(),
                        .halted = halted_.data<std::int32_t>()});
    if (after_update_) after_update_();
  }
  next_batch(form, steps, /*gathers=*/false);
}

void RecordedSteps::launch(Form& form, int steps, bool watched) {
  // The first step of a form runs as it is: a recording must find kernels and libraries loaded.
  if (!form.ran) {
    form.ran = true;
    return queue_calls(form, steps);
  }
  const auto [at, is_new] = form.recordings.try_emplace(watched ? 0 : steps, nullptr);
  if (is_new) {
    if (watched) form.plan->tell(forward_clock_, backward_clock_);
    backend_.begin_recording(device_.index);
    try {
      queue_calls(form, steps);
      form.plan->tell(nullptr, nullptr);
    } catch (...) {  // the queue must not stay in the state of recording
      form.recordings.erase(at);
      form.plan->tell(nullptr, nullptr);
      try {
        backend_.free_recording(device_.index, backend_.end_recording(device_.index));
      } catch (const Error&) {
      }
      throw;
    }
    at->second = backend_.end_recording(device_.index);
  }
  backend_.replay(device_.index, at->second);
}

int RecordedSteps::queue(const std::function<double(std::int64_t)>& rate, int most) {
  if (batch_ == batches_ || in_flight_ == kSlots - 1 || most < 1) return 0;
  const bool is_last = last_.plan && batch_ + 1 == batches_;
  Form& form = is_last ? last_ : full_;
  const bool watched = std::exchange(watch_next_, false) && !is_last && form.ran;
  const std::int64_t full_left = batches_ - batch_ - (last_.plan ? 1 : 0);
  int steps = 1;
  if (!is_last && form.ran && !watched) {
    // Powers of two, so that any number of steps takes few different recordings.
    const auto wanted = static_cast<unsigned>(
        std::min<std::int64_t>({full_left, static_cast<std::int64_t>(most), kMostSteps}));
    steps = static_cast<int>(std::bit_floor(wanted));
  }
  Slot& slot = slots_[static_cast<std::size_t>(next_slot_)];
  next_slot_ = (next_slot_ + 1) % kSlots;
  *slot.start = {.step = step_, .position = batch_ * full_.batch};
  backend_.copy_from_host(device_.index, start_.raw_data(), slot.start, sizeof(LaunchStart));
  if (update_) {
    std::array<double, kMostSteps> rates;
    for (int i = 0; i < steps; ++i) rates[static_cast<std::size_t>(i)] = rate(step_ + i);
    update_->upload(rates.data(), steps);
  }
  slot.launch = {.first_step = step_,
                 .steps = steps,
                 .images_per_step = form.batch,
                 .seconds = 0,
                 .outcomes = slot.outcomes,
                 .watched = watched};
  backend_.set_mark(device_.index, slot.begin);
  launch(form, steps, watched);
  backend_.queue_copy_to_host(device_.index, slot.outcomes, outcomes_.raw_data(),
                              sizeof(StepOutcome) * static_cast<std::size_t>(steps));
  backend_.set_mark(device_.index, slot.end);
  ++in_flight_;
  batch_ += steps;
  step_ += steps;
  return steps;
}

RecordedSteps::Launch RecordedSteps::collect() {
  CONVSCOPE_CHECK(in_flight_ > 0, kName, "expected a launch in flight, got none");
  Slot& slot = slots_[static_cast<std::size_t>((next_slot_ + kSlots - in_flight_) % kSlots)];
  --in_flight_;
  slot.launch.seconds = 1e-3 * backend_.ms_between(device_.index, slot.begin, slot.end);
  return slot.launch;
}

std::string RecordedSteps::text() const {
  const PlanMemory& memory = full_.plan->memory();
  return cat("steps: recorded, up to ", kMostSteps, " for each launch, ",
             full_.plan->call_count() + (update_ ? 2 : 1), " calls each, one block of ",
             memory.arena_bytes, " bytes (at least ", memory.lower_bound_bytes,
             " are needed), data set of ", data_->bytes(), " bytes on ", device_.str());
}

}  // namespace convscope
