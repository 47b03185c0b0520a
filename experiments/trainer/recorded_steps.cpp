// SPDX-License-Identifier: Apache-2.0
// recorded_steps.cpp: trains and evaluates without the host. The compiled kernel calls of a step
// are recorded once in a CUDA graph; each launch replays several steps.
#include "experiments/trainer/recorded_steps.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "experiments/trainer/ranks/share.h"

namespace convscope {

constinit KernelSlot<void(const NextBatch&)> next_batch_kernel{"next_batch"};
constinit KernelSlot<void(const ShareFacts&)> share_facts_kernel{"share_facts"};

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

// Returns why steps cannot be recorded in this or another process, or "". Either all processes
// record their steps or none, so one reason is enough.
std::string agreed(const std::string& why) {
  ProcessGroup* const group = process_group();
  if (group == nullptr) return why;
  const std::vector<std::string> reasons = group->gather(why);
  for (int rank = 0; rank < group->size(); ++rank) {
    const std::string& reason = reasons[static_cast<std::size_t>(rank)];
    if (reason.empty()) continue;
    return rank == group->rank() ? reason : cat("in ", group->name_of(rank), ", ", reason);
  }
  return "";
}

}  // namespace

std::string recording_obstacle(const RecordingFacts& facts) {
  if (facts.augments) return "the images are augmented on the host";
  if (facts.has_pixel_labels) return "the host gathers the labels of pixels";
  if (facts.counts_labels) {
    return "the host counts the labels of the whole batch, by which class weights are divided";
  }
  return "";
}

std::unique_ptr<RecordedSteps> RecordedSteps::make(Module& model, Optimizer* optimizer,
                                                   double clip_norm, const Loader& loader,
                                                   Device device, std::string* why_not,
                                                   std::function<void()> after_update,
                                                   GradientExchange* exchange,
                                                   LossScale* loss_scale, const Loss& loss) {
  std::unique_ptr<RecordedSteps> out;
  std::string why;
  if (backend_of(device).begin_recording == nullptr) {
    why = cat(device.str(), " records no kernels");
  } else if (exchange != nullptr && !exchange->reducer().is_recordable()) {
    why = cat("the host takes part in the sums of gradients: ", exchange->reducer().text());
  } else if (exchange != nullptr && loss.weighted_classes() > 0) {
    why = recording_obstacle({.counts_labels = true});
  } else {
    out.reset(new RecordedSteps(model, optimizer, clip_norm, loader, device, loss));
    out->exchange_ = exchange;
    why = out->prepare();
  }
  if (exchange != nullptr) why = agreed(why);
  if (!why.empty()) {
    if (why_not != nullptr) *why_not = why;
    return nullptr;
  }
  out->after_update_ = std::move(after_update);
  if (loss_scale != nullptr) out->scale_loss(*loss_scale);
  if (optimizer != nullptr) {
    out->update_ = std::make_unique<DeviceUpdate>(*optimizer, device, kMaxSteps);
  }
  return out;
}

void RecordedSteps::scale_loss(LossScale& loss_scale) {
  loss_scale_ = &loss_scale;
  device_scale_ = device_array<DeviceLossScale>(1, device_);
  for_each_plan([&](StepPlan& plan) {
    plan.set_loss_scale(&as<DeviceLossScale>(device_scale_)->state.scale);
  });
}

template <class Body>
void RecordedSteps::for_each_plan(const Body& body) const {
  for (const Form* form : {&full_, &last_}) {
    for (const Chunk& chunk : form->chunks) {
      if (chunk.plan) body(*chunk.plan);
    }
  }
}

std::string RecordedSteps::prepare() {
  const std::int64_t size = loader_.dataset().size();
  const std::int64_t batch = std::min(loader_.options().batch_size, size);
  if (loader_.batches_per_epoch() == 0) return "there is no batch";
  std::string why;
  if (!plan_form(full_, batch, &why)) return why;
  if (!full_.front().plan) return "this process has no images in a batch";
  const std::int64_t rest = size % batch;
  if (rest > 0 && !loader_.options().drop_last && !plan_form(last_, rest, &why)) return why;
  data_ = DeviceData::make(loader_, device_, &why);
  return why;
}

RecordedSteps::RecordedSteps(Module& model, Optimizer* optimizer, double clip_norm,
                             const Loader& loader, Device device, const Loss& loss)
    : model_(model),
      optimizer_(optimizer),
      clip_norm_(clip_norm),
      loader_(loader),
      device_(device),
      loss_(loss),
      backend_(backend_of(device)),
      facts_(Tensor::zeros({2}, DType::f32, device)),
      start_(device_array<LaunchStart>(1, device)),
      outcomes_(device_array<StepOutcome>(kMaxSteps, device)),
      halted_(Tensor::zeros({1}, DType::i32, device)) {
  for (Slot& slot : slots_) {
    slot.start = static_cast<LaunchStart*>(backend_.allocate_pinned(sizeof(LaunchStart)));
    slot.outcomes =
        static_cast<StepOutcome*>(backend_.allocate_pinned(sizeof(StepOutcome) * kMaxSteps));
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

bool RecordedSteps::plan_form(Form& form, std::int64_t whole, std::string* why_not) {
  const LoaderOptions& options = loader_.options();
  const int count = exchange_ != nullptr ? exchange_->chunks() : 1;
  form.whole = whole;
  const auto at = [&](std::int64_t part) {
    return first_of_part(whole, part, static_cast<std::int64_t>(options.parts) * count);
  };
  for (int i = 0; i < count; ++i) {
    const std::int64_t part = static_cast<std::int64_t>(options.part) * count + i;
    Chunk chunk{.first = at(part), .batch = at(part + 1) - at(part), .plan = nullptr, .x = {}};
    if (chunk.batch > 0 && !plan_chunk(form, chunk, why_not)) return false;
    form.chunks.push_back(std::move(chunk));
  }
  return true;
}

bool RecordedSteps::plan_chunk(Form& form, Chunk& chunk, std::string* why_not) const {
  for (const Chunk& other : form.chunks) {
    if (other.batch != chunk.batch) continue;
    chunk.plan = other.plan;
    chunk.x = other.x;
    return true;
  }
  Shape input = {chunk.batch};
  for (const std::int64_t size : loader_.dataset().sample_shape()) input.push_back(size);
  const PlanMode mode = optimizer_ != nullptr ? PlanMode::training : PlanMode::evaluation;
  // In training, the graphs of all sizes share one memory block, because they never run at the same
  // time. In evaluations each graph has its own block, because folded weights stay in the block
  // between launches.
  Ref<Storage> arena;
  if (optimizer_ != nullptr) {
    for_each_plan([&](const StepPlan& plan) { arena = plan.arena(); });
  }
  chunk.plan = StepPlan::make(model_, input, mode, why_not, arena, /*to_show=*/false, loss_);
  if (!chunk.plan) return false;
  if (!(chunk.plan->device() == device_)) {
    *why_not = cat("the network is not on ", device_.str());
    return false;
  }
  *why_not = chunk.plan->why_not_recordable();
  if (!why_not->empty()) return false;
  chunk.x = Tensor::zeros(input, DType::f32, device_);
  chunk.plan->set_images(chunk.x);
  return true;
}

bool RecordedSteps::is_current() const {
  bool current = !update_ || update_->is_current();
  for_each_plan([&](const StepPlan& plan) { current = current && plan.is_current(); });
  return current;
}

void RecordedSteps::start_epoch(std::int64_t epoch, std::int64_t first_batch, std::int64_t step) {
  CONVSCOPE_CHECK(in_flight_ == 0, kName, "expected no launch in flight before an epoch, got ",
                  in_flight_);
  data_->start_epoch(epoch);
  batch_ = first_batch;
  batches_ = loader_.batches_per_epoch();
  step_ = step;
  if (loss_scale_ != nullptr) {
    DeviceLossScale now{.state = loss_scale_->state()};
    device_scale_.copy_from(Tensor::borrow(&now, device_scale_.shape(), DType::u8));
  }
  for_each_plan([](StepPlan& plan) { plan.prepare(); });
}

// Queues the work between two steps: storing the previous results, and gathering the next images.
// Later chunks of a step only gather. `chunk` is null after the last step.
void RecordedSteps::next_batch(const Form& form, int step, const Chunk* chunk) const {
  const Shape image = loader_.dataset().sample_shape();
  NextBatch a{.start = as<LaunchStart>(start_),
              .offset = step * form.whole + (chunk != nullptr ? chunk->first : 0),
              .batch = chunk != nullptr ? chunk->batch : 0,
              .channels = image[0],
              .plane = image[1] * image[2],
              .images = data_->images().data<std::uint8_t>(),
              .image_labels = data_->labels().data<std::int32_t>(),
              .order = data_->order().data<std::int32_t>(),
              .levels = data_->levels().data<float>()};
  if (chunk != nullptr && chunk->plan) {
    a.x = chunk->x.data<float>();
    a.labels = chunk->plan->labels().data<std::int32_t>();
  }
  if (step > 0 && (chunk == nullptr || chunk == &form.front())) {
    a.loss = loss_of(form);
    if (exchange_ != nullptr) {
      a.shared_correct = facts_.data<float>() + 1;
    } else {
      a.correct = form.front().plan->correct_tensor().data<std::int32_t>();
    }
    a.outcome = as<StepOutcome>(outcomes_) + (step - 1);
    a.halted = optimizer_ != nullptr ? halted_.data<std::int32_t>() : nullptr;
    if (loss_scale_ != nullptr) a.loss_scale = as<DeviceLossScale>(device_scale_);
  }
  next_batch_kernel.get(device_)(a);
}

// Returns the arguments with which the first kernel of the step gathers its batch. `images` is null
// if that kernel cannot gather.
BatchGather RecordedSteps::batch_gather(const Form& form, int step) const {
  const auto& plan = form.front().plan;
  if (!plan || !plan->takes_gather() || exchange_ != nullptr) return {};
  BatchGather g{.images = data_->images().data<std::uint8_t>(),
                .image_labels = data_->labels().data<std::int32_t>(),
                .order = data_->order().data<std::int32_t>(),
                .position = &as<LaunchStart>(start_)->position,
                .offset = step * form.whole + form.front().first,
                .levels = data_->levels().data<float>(),
                .x = form.front().x.data<float>(),
                .labels = plan->labels().data<std::int32_t>()};
  if (step == 0) return g;
  StepOutcome* const outcome = as<StepOutcome>(outcomes_) + (step - 1);
  g.loss = loss_of(form);
  g.correct = plan->correct_tensor().data<std::int32_t>();
  g.noted_loss = &outcome->loss;
  g.noted_correct = &outcome->correct;
  g.halted = optimizer_ != nullptr ? halted_.data<std::int32_t>() : nullptr;
  if (loss_scale_ != nullptr) {
    g.loss_scale = as<DeviceLossScale>(device_scale_);
    g.noted_scale = &outcome->scale;
  }
  return g;
}

// Returns the number of parts of a batch over all processes.
std::int64_t RecordedSteps::parts_of(const Form& form) const {
  return static_cast<std::int64_t>(loader_.options().parts) * std::ssize(form.chunks);
}

// Returns the address of the loss. With several processes, this is the loss of the whole batch,
// which is valid after it has been summed over all processes.
const float* RecordedSteps::loss_of(const Form& form) const {
  return exchange_ != nullptr ? facts_.data<float>()
                              : form.front().plan->loss_tensor().data<float>();
}

// Queues the backward pass of a chunk; after the last chunk, also all sums over the processes.
// Every process queues the same sums, even if it has no images of this batch.
void RecordedSteps::queue_shared_backward(const Form& form, const Chunk& chunk) const {
  const bool is_last = &chunk == &form.chunks.back();
  const float weight = static_cast<float>(chunk.batch) / static_cast<float>(form.whole);
  ShareFacts facts{
      .weight = weight, .is_first = &chunk == &form.front(), .facts = facts_.data<float>()};
  if (chunk.plan) {
    facts.loss = chunk.plan->loss_tensor().data<float>();
    facts.correct = chunk.plan->correct_tensor().data<std::int32_t>();
  }
  share_facts_kernel.get(device_)(facts);
  if (is_last) exchange_->reducer().sum(facts_, 1);
  if (chunk.plan) {
    exchange_->begin_backward(weight);
    chunk.plan->backward([this](const Variable& parameter) { exchange_->ready(parameter); });
    exchange_->end_backward();
  } else {
    exchange_->no_images();
  }
  if (is_last) exchange_->finish();
}

// Queues a backward pass whose kernels also update the weights. Returns false if this is not
// possible, because something changes the gradients between the backward pass and the update. With
// a loss scale, the backward pass only divides the gradients by the scale; the update follows after
// all gradients were checked.
bool RecordedSteps::joins_update(const Form& form, int step, const UpdateGate& gate,
                                 DeviceLossScale* scale) const {
  if (exchange_ != nullptr || (scale == nullptr && clip_norm_ > 0)) return false;
  StepPlan* const plan = form.front().plan.get();
  const std::unique_ptr<JoinedUpdate> update = update_->joined(step, gate);
  if (!update || !plan->joins_update(*update)) return false;
  update->unscale = scale;
  // The update may also store half-precision copies of the weights for the next step, unless
  // something changes the weights after the update.
  const bool copies = scale == nullptr && !after_update_ && plan->wants_copies(*update);
  plan->set_update(update.get());
  plan->backward();
  plan->set_update(nullptr);
  plan->set_copies_are_there(copies);
  return true;
}

// Queues forward and backward passes of a chunk that is one of several, or that is shared.
void RecordedSteps::queue_chunk(const Form& form, int step, const Chunk& chunk) const {
  const BatchGather gather = batch_gather(form, step);
  if (gather.images == nullptr) next_batch(form, step, &chunk);
  if (chunk.plan) {
    const std::int64_t index = &chunk - &form.front();
    chunk.plan->set_clock(
        {&as<LaunchStart>(start_)->step, step_of_part(step, index, parts_of(form))});
    chunk.plan->set_gather(gather.images != nullptr ? &gather : nullptr);
    chunk.plan->queue_forward();
    chunk.plan->set_gather(nullptr);
  }
  if (exchange_ != nullptr) queue_shared_backward(form, chunk);
}

// With `watched`, the first chunk has the clocks.
void RecordedSteps::queue_calls(Form& form, int steps, bool watched) const {
  StepPlan* const plan = form.front().plan.get();
  // Half-precision copies of weights from an earlier launch may be outdated, so the first step
  // makes new ones.
  for (const Chunk& chunk : form.chunks) {
    if (chunk.plan) chunk.plan->set_copies_are_there(false);
  }
  for (int i = 0; i < steps; ++i) {
    if (exchange_ != nullptr) exchange_->begin_step();
    for (const Chunk& chunk : form.chunks) {
      if (watched && &chunk != &form.front()) plan->tell(nullptr, nullptr);
      queue_chunk(form, i, chunk);
    }
    if (!update_) continue;
    UpdateGate gate{.loss = loss_of(form), .halted = halted_.data<std::int32_t>()};
    auto* const scale = loss_scale_ != nullptr ? as<DeviceLossScale>(device_scale_) : nullptr;
    const bool joined = joins_update(form, i, gate, scale);
    if (joined && scale == nullptr) {
      if (after_update_) after_update_();
      continue;
    }
    if (exchange_ == nullptr && !joined) plan->backward();
    if (scale != nullptr) {
      if (!joined) update_->unscale(scale);
      gate.overflow = &scale->overflow;
    }
    if (clip_norm_ > 0) update_->clip(clip_norm_);
    update_->launch(i, gate);
    if (after_update_) after_update_();
  }
  next_batch(form, steps, nullptr);
}

void RecordedSteps::launch(Form& form, int steps, bool watched) {
  // The first step of a batch size runs unrecorded, because a recording needs loaded kernels and
  // libraries.
  if (!form.ran) {
    form.ran = true;
    return queue_calls(form, steps, false);
  }
  StepPlan* const plan = form.front().plan.get();
  const auto [at, is_new] = form.recordings.try_emplace(watched ? 0 : steps, nullptr);
  if (is_new) {
    if (watched) plan->tell(forward_clock_, backward_clock_);
    backend_.begin_recording(device_.index);
    try {
      queue_calls(form, steps, watched);
      if (plan != nullptr) plan->tell(nullptr, nullptr);
    } catch (...) {  // the queue must leave the recording state
      form.recordings.erase(at);
      if (plan != nullptr) plan->tell(nullptr, nullptr);
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
  const bool is_last = last_.whole > 0 && batch_ + 1 == batches_;
  Form& form = is_last ? last_ : full_;
  const bool watched = std::exchange(watch_next_, false) && !is_last && form.ran;
  const std::int64_t full_left = batches_ - batch_ - (last_.whole > 0 ? 1 : 0);
  int steps = 1;
  if (!is_last && form.ran && !watched) {
    // The number of steps in a recording is a power of two, so that any number of steps can be
    // composed of few different recordings.
    const auto wanted = static_cast<unsigned>(
        std::min<std::int64_t>({full_left, static_cast<std::int64_t>(most), kMaxSteps}));
    steps = static_cast<int>(std::bit_floor(wanted));
  }
  Slot& slot = slots_[static_cast<std::size_t>(next_slot_)];
  next_slot_ = (next_slot_ + 1) % kSlots;
  const std::int64_t first_part = static_cast<std::int64_t>(loader_.options().part) *
                                  static_cast<std::int64_t>(form.chunks.size());
  *slot.start = {.step = step_of_part(step_, first_part, parts_of(form)),
                 .position = batch_ * full_.whole};
  backend_.copy_from_host(device_.index, start_.raw_data(), slot.start, sizeof(LaunchStart));
  if (update_) {
    std::array<double, kMaxSteps> rates;
    for (int i = 0; i < steps; ++i) rates[static_cast<std::size_t>(i)] = rate(step_ + i);
    update_->upload(rates.data(), steps);
  }
  slot.launch = {.first_step = step_,
                 .steps = steps,
                 .images_per_step = form.whole,
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
  if (loss_scale_ != nullptr) loss_scale_->restore(slot.outcomes[slot.launch.steps - 1].scale);
  return slot.launch;
}

std::string RecordedSteps::text() const {
  const PlanMemory& memory = plan().memory();
  return cat("steps: recorded, up to ", kMaxSteps, " for each launch, ",
             plan().call_count() + (update_ ? 2 : 1), " calls each, one block of ",
             memory.arena_bytes, " bytes (at least ", memory.lower_bound_bytes,
             " are needed), data set of ", data_->bytes(), " bytes on ", device_.str(),
             exchange_ == nullptr
                 ? ""
                 : cat(", sums over processes of ", exchange_->bytes(), " bytes in ",
                       exchange_->bucket_count(), " parts by ", exchange_->reducer().text()));
}

}  // namespace convscope
