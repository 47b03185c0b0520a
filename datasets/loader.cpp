// SPDX-License-Identifier: Apache-2.0
// loader.cpp: a ring of kSlots preallocated batches (slots) that a background thread fills in
// advance.
//
// Batch b is in slot b % kSlots. The caller holds the slot of the latest batch, so the thread may
// be at most kSlots - 1 batches ahead. Nothing is allocated after construction.
#include "datasets/loader.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "datasets/pixel_levels.h"
#include "datasets/sample_order.h"
#include "framework/int_math.h"

namespace convscope {
namespace {

constexpr std::int64_t kSlots = 4;

struct Slot {
  Tensor x;       // f32 [batch,C,H,W]
  Tensor labels;  // i32 [batch], or [batch,H,W]
};

// Returns the shape of `count` samples.
Shape several(std::int64_t count, const Shape& sample) {
  Shape out{count};
  for (const std::int64_t size : sample) out.push_back(size);
  return out;
}

// Calls put(i, j) for each pixel i of an augmented image, where j is the pixel that is shown there,
// or -1 outside of the image.
template <class Put>
void for_each_pixel(const Augmentation& change, std::int64_t height, std::int64_t width,
                    const Put& put) {
  for (std::int64_t h = 0; h < height; ++h) {
    const std::int64_t from_h = h + change.dy;
    const bool row_inside = from_h >= 0 && from_h < height;
    for (std::int64_t w = 0; w < width; ++w) {
      const std::int64_t from_w = (change.mirrored ? width - 1 - w : w) + change.dx;
      const bool inside = row_inside && from_w >= 0 && from_w < width;
      put(h * width + w, inside ? from_h * width + from_w : -1);
    }
  }
}

}  // namespace

struct Loader::Impl {
  Impl(Dataset dataset_in, const LoaderOptions& options_in);
  ~Impl();

  void start_epoch(std::int64_t epoch_in, std::int64_t first_batch);
  bool next(Batch& batch);

  void check() const;
  void check_images() const;
  std::int64_t whole_of(std::int64_t b) const {
    return std::min(options.batch_size, dataset.size() - b * options.batch_size);
  }
  // Returns the position in the epoch of this process's first sample in batch b.
  std::int64_t first_of(std::int64_t b) const {
    return first_of_part(whole_of(b), options.part, options.parts);
  }
  std::int64_t samples_of(std::int64_t b) const {
    return first_of_part(whole_of(b), options.part + 1, options.parts) - first_of(b);
  }
  void fill(const Slot& slot, std::int64_t b) const;
  bool augments() const { return options.crop_padding > 0 || options.mirror; }
  Augmentation change_of(std::int64_t sample) const;
  void write_sample(float* to, std::int64_t sample) const;
  void write_labels(std::int32_t* to, std::int64_t sample) const;
  void work();
  bool may_produce() const { return produced < batches && produced < consumed + kSlots - 1; }

  Dataset dataset;
  LoaderOptions options;
  std::int64_t batches = 0;
  std::vector<std::int32_t> order;  // sample at each position of the epoch
  std::vector<PixelLevels> levels;  // normalised value of each pixel value, per channel
  std::array<Slot, kSlots> slots;
  std::int64_t epoch = -1;

  std::mutex mutex;  // guards the members below; `order` and `epoch` change only while `!busy`
  std::condition_variable changed;
  std::int64_t produced = 0;  // next batch to fill
  std::int64_t consumed = 0;  // next batch to hand out
  bool busy = false;          // the thread is filling a slot
  bool stopping = false;
  std::thread thread;  // not joinable: the caller fills the slots itself
};

void Loader::Impl::check() const {
  if (dataset.points == nullptr) check_images();
  const std::int64_t count = dataset.size();
  const Shape whole{count};
  const Shape pixels = dataset.points != nullptr
                           ? whole
                           : Shape{count, dataset.images.dim(2), dataset.images.dim(3)};
  CONVSCOPE_CHECK(dataset.labels.defined() && dataset.labels.dtype() == DType::i32 &&
                      (dataset.labels.shape() == whole || dataset.labels.shape() == pixels),
                  "loader", "expected labels i32", whole,
                  pixels == whole ? "" : cat(" or, with a class for each pixel, i32", pixels),
                  ", got ", dataset.labels.str());
  CONVSCOPE_CHECK(options.batch_size >= 1, "loader", "expected a batch size of at least 1, got ",
                  options.batch_size);
  CONVSCOPE_CHECK(options.crop_padding >= 0, "loader",
                  "expected a crop padding of at least 0 pixels, got ", options.crop_padding);
  CONVSCOPE_CHECK(options.parts >= 1 && options.part >= 0 && options.part < options.parts, "loader",
                  "expected a part from 0 to parts - 1, got ", options.part, " of ", options.parts);
  CONVSCOPE_CHECK(dataset.size() < std::int64_t{1} << 31, "loader",
                  "expected fewer than 2^31 samples, got ", dataset.size());
}

void Loader::Impl::check_images() const {
  CONVSCOPE_CHECK(
      dataset.images.defined() && dataset.images.rank() == 4 && dataset.images.dtype() == DType::u8,
      "loader", "expected images u8 [N,C,H,W], got ", dataset.images.str());
  const auto channels = static_cast<std::size_t>(dataset.images.dim(1));
  CONVSCOPE_CHECK(dataset.mean.size() == channels && dataset.std.size() == channels, "loader",
                  "expected mean and std of ", channels, " channels, got ", dataset.mean.size(),
                  " and ", dataset.std.size());
}

Loader::Impl::Impl(Dataset dataset_in, const LoaderOptions& options_in)
    : dataset(std::move(dataset_in)), options(options_in) {
  check();
  const std::int64_t count = dataset.size();
  const std::int64_t whole = count / options.batch_size;
  batches = whole + (!options.drop_last && whole * options.batch_size < count ? 1 : 0);
  order.resize(static_cast<std::size_t>(count));
  if (dataset.points == nullptr) levels = pixel_levels(dataset);
  const std::int64_t rows = ceil_div(std::min(options.batch_size, count), options.parts);
  for (Slot& slot : slots) {
    slot.x = Tensor::empty(several(rows, dataset.sample_shape()));
    slot.labels = Tensor::empty(several(rows, dataset.label_shape()), DType::i32);
  }
  produced = consumed = batches;  // nothing to do before start_epoch
  if (options.prefetch) {
    try {
      thread = std::thread([this] { work(); });
    } catch (const std::system_error&) {
      // No thread is available. The caller fills the slots, which is slower but gives the same
      // batches.
    }
  }
}

Loader::Impl::~Impl() {
  if (!thread.joinable()) return;
  {
    const std::scoped_lock lock(mutex);
    stopping = true;
  }
  changed.notify_all();
  thread.join();
}

void Loader::Impl::start_epoch(std::int64_t epoch_in, std::int64_t first_batch) {
  CONVSCOPE_CHECK(epoch_in >= 0, "loader", "expected an epoch of at least 0, got ", epoch_in);
  CONVSCOPE_CHECK(first_batch >= 0 && first_batch <= batches, "loader",
                  "expected a first batch of 0 to ", batches, ", got ", first_batch);
  {
    std::unique_lock lock(mutex);
    produced = consumed = batches;  // the thread finishes its slot and then waits
    changed.wait(lock, [this] { return !busy; });
    epoch = epoch_in;
    if (options.shuffle) {
      shuffled_order(order, options.seed, epoch);
    } else {
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    }
    produced = consumed = first_batch;
  }
  changed.notify_all();
}

bool Loader::Impl::next(Batch& batch) {
  CONVSCOPE_CHECK(epoch >= 0, "loader", "expected start_epoch before the first batch");
  std::int64_t b = 0;
  {
    std::unique_lock lock(mutex);
    if (consumed == batches) return false;
    b = consumed;
    if (thread.joinable()) changed.wait(lock, [&] { return produced > b; });
    consumed = b + 1;  // returns the slot of batch b - 1
  }
  changed.notify_all();
  const Slot& slot = slots[static_cast<std::size_t>(b % kSlots)];
  if (!thread.joinable()) fill(slot, b);
  batch.x = slot.x.slice_rows(0, samples_of(b));
  batch.labels = slot.labels.slice_rows(0, samples_of(b));
  batch.index = b;
  batch.whole = whole_of(b);
  return true;
}

void Loader::Impl::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stopping || may_produce(); });
    if (stopping) return;
    const std::int64_t b = produced;
    busy = true;
    lock.unlock();
    fill(slots[static_cast<std::size_t>(b % kSlots)], b);
    lock.lock();
    busy = false;
    if (produced == b) ++produced;  // unless start_epoch has advanced meanwhile
    changed.notify_all();
  }
}

void Loader::Impl::fill(const Slot& slot, std::int64_t b) const {
  const std::int64_t sample_size = dataset.sample_shape().numel();
  const std::int64_t label_size = dataset.label_shape().numel();
  float* x = slot.x.data<float>();
  std::int32_t* labels = slot.labels.data<std::int32_t>();
  for (std::int64_t i = 0; i < samples_of(b); ++i) {
    const std::int64_t position = b * options.batch_size + first_of(b) + i;
    const std::int64_t sample = order[static_cast<std::size_t>(position)];
    write_labels(labels + i * label_size, sample);
    write_sample(x + i * sample_size, sample);
  }
}

Augmentation Loader::Impl::change_of(std::int64_t sample) const {
  Augmentation change = augmentation(options.seed, epoch, sample, options.crop_padding);
  change.mirrored = change.mirrored && options.mirror;
  return change;
}

void Loader::Impl::write_sample(float* to, std::int64_t sample) const {
  if (dataset.points != nullptr) return dataset.points->write(sample, change_of(sample), to);
  const Shape shape = dataset.sample_shape();
  const std::int64_t plane = shape[1] * shape[2];
  const std::uint8_t* from = dataset.images.data<std::uint8_t>() + sample * shape.numel();
  const Augmentation change = augments() ? change_of(sample) : Augmentation{};
  for (std::int64_t c = 0; c < shape[0]; ++c, from += plane, to += plane) {
    const float* level = levels[static_cast<std::size_t>(c)].data();
    if (!augments()) {
      for (std::int64_t i = 0; i < plane; ++i) to[i] = level[from[i]];
      continue;
    }
    // Pixels outside are black, as if the image had been padded before normalisation.
    for_each_pixel(change, shape[1], shape[2],
                   [&](std::int64_t i, std::int64_t j) { to[i] = level[j >= 0 ? from[j] : 0]; });
  }
}

// Pixels outside of the image are background.
void Loader::Impl::write_labels(std::int32_t* to, std::int64_t sample) const {
  const Shape shape = dataset.label_shape();
  const std::int32_t* from = dataset.labels.data<std::int32_t>() + sample * shape.numel();
  if (shape.rank() == 0 || !augments()) {
    std::copy_n(from, shape.numel(), to);
    return;
  }
  for_each_pixel(change_of(sample), shape[0], shape[1],
                 [&](std::int64_t i, std::int64_t j) { to[i] = j >= 0 ? from[j] : 0; });
}

std::int64_t loader_bytes(std::int64_t samples, const Shape& sample, const Shape& labels,
                          const LoaderOptions& options) {
  const std::int64_t rows = std::min(options.batch_size, samples);
  return kSlots * rows * 4 * (sample.numel() + labels.numel()) + samples * 4;
}

Loader::Loader(Dataset dataset, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(dataset), options)) {}
Loader::~Loader() = default;

std::int64_t Loader::batches_per_epoch() const { return impl_->batches; }
const Dataset& Loader::dataset() const { return impl_->dataset; }
const LoaderOptions& Loader::options() const { return impl_->options; }
void Loader::start_epoch(std::int64_t epoch, std::int64_t first_batch) {
  impl_->start_epoch(epoch, first_batch);
}
bool Loader::next(Batch& batch) { return impl_->next(batch); }

}  // namespace convscope
