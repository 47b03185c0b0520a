// SPDX-License-Identifier: Apache-2.0
// loader.h: batches from a Dataset: deterministic shuffle, normalisation, augmentation, prefetch.
// Augmentation crops and mirrors images with their labels of pixels, and moves and mirrors points
// in the same way.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "datasets/dataset.h"

namespace convscope {

struct LoaderOptions {
  std::int64_t batch_size = 64;
  bool shuffle = true;
  bool drop_last = false;
  std::uint64_t seed = 0;
  bool prefetch = true;  // a background thread prepares the next batches
  // Augmentation, training only: random crop with zero padding (in pixels), random mirror.
  std::int64_t crop_padding = 0;
  bool mirror = false;
  // Several processes share each batch: each takes one of `parts` parts, and this process takes
  // part number `part`. In a batch of n samples, it takes samples n * part / parts to n * (part +
  // 1) / parts - 1.
  std::int64_t part = 0, parts = 1;
};

struct Batch {
  Tensor x;                // f32 [N,C,H,W], normalised; points: [N,M,D+C]
  Tensor labels;           // i32 [N], or [N,H,W] with a class for each pixel
  std::int64_t index = 0;  // position in the epoch
  std::int64_t whole = 0;  // samples of all parts
};

// Returns the index of the first sample of part `part`, if n samples are divided into `parts`
// parts.
constexpr std::int64_t first_of_part(std::int64_t n, std::int64_t part, std::int64_t parts) {
  return n * part / parts;
}

// The batches of epoch e are a pure function of (dataset, options, e): the order of the samples and
// every random number depend only on (seed, epoch, sample). So a run can continue in the middle of
// an epoch.
class CONVSCOPE_API Loader {
 public:
  Loader(Dataset dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::int64_t batches_per_epoch() const;
  const Dataset& dataset() const;
  const LoaderOptions& options() const;
  // Starts epoch `epoch` (0, 1, ...) at batch `first_batch`; discards prefetched batches.
  void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0);
  // Gets the next batch of the epoch; returns false at its end. The tensors of the batch are valid
  // until the next call (they are reused, so a steady loop allocates nothing).
  bool next(Batch& batch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the bytes that a loader for `samples` samples allocates for prepared batches and the
// order of the samples, without the data set. `labels` is Dataset::label_shape().
CONVSCOPE_API std::int64_t loader_bytes(std::int64_t samples, const Shape& sample,
                                        const Shape& labels, const LoaderOptions& options);

// Returns a part of the samples, in the given order.
CONVSCOPE_API Dataset subset(const Dataset& from, const std::vector<std::int64_t>& indices);
// Returns the first `limit` samples of a seeded shuffle that keeps the classes balanced; with a
// class for each pixel, of a seeded shuffle. If `limit` is 0, returns all samples.
CONVSCOPE_API Dataset limited(const Dataset& from, std::int64_t limit, std::uint64_t seed);
// Returns {rest, validation} with `count` samples for validation (seeded, balanced).
CONVSCOPE_API std::pair<Dataset, Dataset> split(const Dataset& from, std::int64_t count,
                                                std::uint64_t seed);

}  // namespace convscope
