// SPDX-License-Identifier: Apache-2.0
// deform_backward.cpp: the gradients of fused deformable convolution, without a matrix of columns:
// dx, doffset and dmask in one pass; dw as panels of samples times dy.
//
// Formula    g[c,(r,s)] = sum over k of w[k,c,r,s] dy[k]        the gradient of a sample
//            dx[corner i] += mask weight_i g
//            a_i = sum over c of g x[corner i]                   0 where the corner is outside
//            dmask = sum over i of weight_i a_i
//            dv = mask ((1-right) (a_2 - a_0) + right (a_3 - a_1))
//            du = mask ((1-down) (a_1 - a_0) + down (a_3 - a_2))
// Method     for each image, part of the channels and strip of pixels (deform_plan.h defines these
//            words, and block and chunk):
//              compute the places of the strip, and store dy of the strip in blocks.
//              for each block of channels: compute g = dy w^T for all taps, chunk by chunk, in L1.
//              Then combine each element of g with its four corners.
//              for each tap: add up the a_i of all blocks of the part, in the order of the blocks.
//            If there are enough images and the buffers of one image are small, each thread takes
//            whole images. Otherwise all threads share the blocks and chunks of one or more
//            images. Only one thread adds to the dx of a block, so the additions have a fixed
//            order.
// Numerics   same bits on each run and with any number of threads: blocks and parts depend only on
//            the problem
// Read next  deform_fused_simd.cpp, the gradients through samples; deform_fused_cpu.cpp
#include "layers/deform_conv2d/fused/cpu/deform_plan.h"
#include "layers/dispatch/layout/block_copies_simd.h"

namespace convscope::deform {

// ---- dx, doffset, dmask -------------------------------------------------------------------------

namespace {

using Problem = DeformConv2dProblem;

// Memory for one image that is computed.
struct ImageMemory {
  ImageMemory(const DeformTiling& plan, Pieces& pieces) {
    const Index chunks = ceil_div(plan.strip, plan.chunk);
    if (!plan.in_nchw16c) {
      x = pieces.floats(plan.part * plan.plane * kChannelBlock);
      dx = pieces.floats(plan.part * plan.plane * kChannelBlock);
      dy = pieces.floats(plan.strip * plan.padded);
    }
    places = pieces.floats(plan.most_offset_groups(plan.part) * chunks * plan.taps *
                           plan.places_floats());
    products = pieces.floats(plan.part * plan.taps * plan.strip * 4);
  }
  float *x = nullptr, *dx = nullptr;  // [blocks of the part, H W, 16]
  float* dy = nullptr;                // [output blocks, strip, 16]
  float* places;                      // [offset groups, chunks, taps, rows]
  float* products;                    // [blocks of the part, taps, strip, 4]
};

struct DataMemory {
  DataMemory(const DeformTiling& plan, void* memory) {
    Pieces one;
    ImageMemory(plan, one);
    const auto floats = static_cast<Index>(one.bytes() / sizeof(float));
    Pieces pieces(memory);
    for (Index i = plan.images_at_once(floats); i > 0; --i) {
      images.emplace_back(plan, pieces);
      pieces.gap();
    }
    for (int t = 0; t < plan.threads; ++t) {
      g.push_back(pieces.floats(plan.taps_at_once() * plan.chunk * kChannelBlock));
      pieces.gap();
    }
    bytes = pieces.bytes();
  }
  std::vector<ImageMemory> images;  // that are computed at once
  std::vector<float*> g;            // [taps at once, chunk, 16] of each thread
  std::size_t bytes = 0;
};

class BackwardData {
 public:
  BackwardData(const DeformTiling& plan, const DeformConv2dBackwardDataArgs& args)
      : plan_(plan),
        z_(plan.z),
        places_(plan, args.offset, args.mask),
        memory_(plan, args.workspace),
        x_(static_cast<const float*>(args.x)),
        dy_(static_cast<const float*>(args.dy)),
        w_(static_cast<const float*>(args.prepared)),
        dx_(static_cast<float*>(args.dx)),
        doffset_(static_cast<float*>(args.doffset)),
        dmask_(static_cast<float*>(args.dmask)) {}

  void run() const {
    for_images(plan_, static_cast<Index>(memory_.images.size()), [&](const Images& images) {
      images.loop(1, [&](Index n, std::size_t, Index, int) { zero_places(n); });
      for (Index g = 0; g < z_.groups; ++g) {
        for (Index begin = 0; begin < plan_.group_blocks(); begin += plan_.part) {
          run_part(images, {g, begin, plan_.part_end(begin)});
        }
      }
    });
  }

 private:
  struct Channels {
    Index g, begin, end;  // blocks
    Index blocks() const { return end - begin; }
  };
  // A part of an image.
  struct Part : Channels {
    Part(const Channels& channels, Index image, const ImageMemory& own)
        : Channels(channels), n(image), memory(own) {}
    Index n;
    const ImageMemory& memory;
  };
  struct Strip {
    Index first, count;
  };
  bool wants_places() const { return doffset_ != nullptr || dmask_ != nullptr; }
  Index block_floats() const { return plan_.plane * kChannelBlock; }
  // Offsets in x and dx in blocks.
  Index block_in_x(const Part& part, Index i) const {
    const Index channel = part.g * z_.c_per_group() + plan_.block(part.begin + i).first;
    return (part.n * ceil_div(z_.c, kChannelBlock) + channel / kChannelBlock) * block_floats();
  }
  const float* x_block(const Part& part, Index i) const {
    return plan_.in_nchw16c ? x_ + block_in_x(part, i) : part.memory.x + i * block_floats();
  }
  float* dx_block(const Part& part, Index i) const {
    if (dx_ == nullptr) return nullptr;
    return plan_.in_nchw16c ? dx_ + block_in_x(part, i) : part.memory.dx + i * block_floats();
  }
  Index channel(const Part& part, Index i) const {
    return part.n * z_.c + part.g * z_.c_per_group() + plan_.block(part.begin + i).first;
  }
  Index chunk_places() const { return plan_.taps * plan_.places_floats(); }
  float* places(const Part& part, Index group, Index chunk) const {
    const Index first = plan_.offset_group(part.g, part.begin);
    const Index chunks = ceil_div(plan_.strip, plan_.chunk);
    return part.memory.places + ((group - first) * chunks + chunk) * chunk_places();
  }
  float* products(const Part& part, Index i, Index tap) const {
    return part.memory.products + (i * plan_.taps + tap) * plan_.strip * 4;
  }

  void zero_places(Index n) const {
    const Index taps = z_.offset_groups * plan_.taps * plan_.pixels;
    if (doffset_ != nullptr) std::fill_n(doffset_ + 2 * n * taps, 2 * taps, 0.0f);
    if (dmask_ != nullptr) std::fill_n(dmask_ + n * taps, taps, 0.0f);
  }

  // Calls body(part of an image, i, thread).
  template <class Body>
  void loop(const Images& images, const Channels& channels, Index parts, const Body& body) const {
    images.loop(parts, [&](Index n, std::size_t set, Index i, int thread) {
      body(Part(channels, n, memory_.images[set]), i, thread);
    });
  }

  void run_part(const Images& images, const Channels& channels) const {
    loop(images, channels, channels.blocks(), [&](const Part& part, Index i, int) {
      if (dx_ != nullptr) std::fill_n(dx_block(part, i), block_floats(), 0.0f);
      if (plan_.in_nchw16c || !wants_places()) return;
      block_copy_kernels.get().to_block(x_ + channel(part, i) * plan_.plane, plan_.plane,
                                        plan_.block(part.begin + i).channels, plan_.plane, false,
                                        part.memory.x + i * block_floats());
    });
    for (Index first = 0; first < plan_.pixels; first += plan_.strip) {
      run_strip(images, channels, {first, std::min(plan_.strip, plan_.pixels - first)});
    }
    if (plan_.in_nchw16c || dx_ == nullptr) return;
    loop(images, channels, channels.blocks(), [&](const Part& part, Index i, int) {
      block_copy_kernels.get().to_planes(part.memory.dx + i * block_floats(), plan_.plane,
                                         plan_.block(part.begin + i).channels, plan_.plane, false,
                                         dx_ + channel(part, i) * plan_.plane);
    });
  }

  void run_strip(const Images& images, const Channels& channels, const Strip& strip) const {
    const Index chunks = ceil_div(strip.count, plan_.chunk);
    const Index groups = plan_.offset_groups(channels.g, channels.begin, channels.end);
    const Index first_group = plan_.offset_group(channels.g, channels.begin);
    const Index copies = plan_.in_nchw16c ? 0 : ceil_div(plan_.kernels, kChannelBlock);
    loop(images, channels, groups * chunks + copies, [&](const Part& part, Index task, int) {
      if (task >= groups * chunks) return copy_dy(part, strip, task - groups * chunks);
      const Index chunk = task % chunks, group = first_group + task / chunks;
      places_.compute(part.n, group, strip.first + chunk * plan_.chunk, count_of(strip, chunk),
                      places(part, group, chunk));
    });
    loop(images, channels, channels.blocks(), [&](const Part& part, Index i, int thread) {
      for (Index chunk = 0; chunk < chunks; ++chunk) {
        run_block(part, strip, i, chunk, memory_.g[static_cast<std::size_t>(thread)]);
      }
    });
    if (!wants_places()) return;
    loop(images, channels, groups * plan_.taps, [&](const Part& part, Index task, int) {
      write_places(part, strip, first_group + task / plan_.taps, task % plan_.taps);
    });
  }

  Index count_of(const Strip& strip, Index chunk) const {
    return std::min(plan_.chunk, strip.count - chunk * plan_.chunk);
  }

  void copy_dy(const Part& part, const Strip& strip, Index block) const {
    const Index k = block * kChannelBlock;
    block_copy_kernels.get().to_block(
        dy_ + (part.n * z_.k + part.g * plan_.kernels + k) * plan_.pixels + strip.first,
        plan_.pixels, static_cast<int>(std::min(kChannelBlock, plan_.kernels - k)), strip.count,
        false, part.memory.dy + block * plan_.strip * kChannelBlock);
  }

  // Computes one block of channels and one chunk of pixels.
  void run_block(const Part& part, const Strip& strip, Index i, Index chunk, float* g) const {
    const Index block = part.begin + i, count = count_of(strip, chunk);
    const Index first = chunk * plan_.chunk;  // in the strip
    Sums sums{.pixels = count,
              .depth = plan_.kernels,
              .in = nullptr,
              .in_block = plan_.strip * kChannelBlock,
              .in_step = kChannelBlock,
              .w = w_ + (part.g * plan_.group_blocks() + block) * plan_.data_weights(),
              .lanes = kChannelBlock,
              .out = g,
              .out_block = plan_.chunk * kChannelBlock};
    if (plan_.in_nchw16c) {
      const Index out =
          part.n * ceil_div(z_.k, kChannelBlock) + part.g * plan_.kernels / kChannelBlock;
      sums.in = dy_ + (out * plan_.pixels + strip.first + first) * kChannelBlock;
      sums.in_block = plan_.pixels * kChannelBlock;
    } else {
      sums.in = part.memory.dy + first * kChannelBlock;
    }
    float* const all = places(part, plan_.offset_group(part.g, block), chunk);
    const auto back = [&](Index tap, const float* tap_gradient) {
      deform_kernels.get().back(
          {.pixels = static_cast<int>(count),
           .places = places_at(plan_, all, tap),
           .g = tap_gradient,
           .x = x_block(part, i),
           .dx = dx_block(part, i),
           .products = wants_places() ? products(part, i, tap) + first * 4 : nullptr,
           .products_step = 4});
    };
    // Computes g for as many taps at a time as fit into a tile, so that g is still in L1 when it is
    // added to dx.
    for (Index tap = 0; tap < plan_.taps; tap += plan_.taps_at_once()) {
      const Index taps = std::min(plan_.taps_at_once(), plan_.taps - tap);
      sums.lanes = taps * kChannelBlock;
      sum_tiles(plan_, sums);
      for (Index t = 0; t < taps; ++t) back(tap + t, g + t * plan_.chunk * kChannelBlock);
      sums.w += sums.lanes * plan_.padded;
    }
  }

  // Adds up the products of all blocks of the part, for one tap of an offset group, and adds the
  // results to doffset and dmask.
  void write_places(const Part& part, const Strip& strip, Index group, Index tap) const {
    const Index at = (part.n * z_.offset_groups + group) * plan_.taps + tap;
    float* const dv =
        doffset_ == nullptr ? nullptr : doffset_ + 2 * at * plan_.pixels + strip.first;
    float* const dm = dmask_ == nullptr ? nullptr : dmask_ + at * plan_.pixels + strip.first;
    for (Index chunk = 0; chunk * plan_.chunk < strip.count; ++chunk) {
      const Index first = chunk * plan_.chunk;
      const DeformPlaces here = places_at(plan_, places(part, group, chunk), tap);
      for (Index j = 0; j < count_of(strip, chunk); ++j) {
        const float factor = here.at(PlaceRow::factor, j);
        if (here.integer_at(PlaceRow::corners, j) == 0) {  // outside: 0, or NaN by its mask
          if (dv == nullptr) continue;
          dv[first + j] += 0 * factor;
          dv[plan_.pixels + first + j] += 0 * factor;
          continue;
        }
        float a[4] = {0, 0, 0, 0};
        for (Index i = 0; i < part.blocks(); ++i) {
          if (plan_.offset_group(part.g, part.begin + i) != group) continue;
          const float* const more = products(part, i, tap) + (first + j) * 4;
          for (int corner = 0; corner < 4; ++corner) a[corner] += more[corner];
        }
        const float down = here.at(PlaceRow::down, j), right = here.at(PlaceRow::right, j);
        if (dv != nullptr) {
          dv[first + j] += factor * ((1 - right) * (a[2] - a[0]) + right * (a[3] - a[1]));
          dv[plan_.pixels + first + j] +=
              factor * ((1 - down) * (a[1] - a[0]) + down * (a[3] - a[2]));
        }
        if (dm != nullptr) {
          dm[first + j] += (1 - down) * ((1 - right) * a[0] + right * a[1]) +
                           down * ((1 - right) * a[2] + right * a[3]);
        }
      }
    }
  }

  const DeformTiling& plan_;
  const Problem& z_;
  const Places places_;
  const DataMemory memory_;
  const float *const x_, *const dy_, *const w_;
  float *const dx_, *const doffset_, *const dmask_;
};

}  // namespace

std::size_t data_bytes(const Problem& z) {
  return DataMemory(DeformTiling(z, Direction::backward_data), nullptr).bytes;
}

std::size_t data_prepared_bytes(const Problem& z) {
  const DeformTiling plan(z, Direction::backward_data);
  return sizeof(float) *
         static_cast<std::size_t>(z.groups * plan.group_blocks() * plan.data_weights());
}

// Packs w as one array [K/G, width] for each weight group, block of channels, and tile of vector
// lanes. Each lane is one (r,s) and one channel.
void prepare_data_weights(const PrepareArgs<Problem>& args) {
  const Problem& z = args.problem;
  const DeformTiling plan(z, Direction::backward_data);
  const auto* const w = static_cast<const float*>(args.w);
  auto* const prepared = static_cast<float*>(args.prepared);
  parallel_chunks(z.groups * plan.group_blocks(), [&](Index job, int) {
    const Index g = job / plan.group_blocks();
    const Block& block = plan.block(job % plan.group_blocks());
    float* const to = prepared + job * plan.data_weights();
    std::fill_n(to, plan.data_weights(), 0.0f);
    const Index lanes = plan.taps * kChannelBlock;
    for (Index lane = 0; lane < lanes;) {
      const Index width = plan.width_at(lane, lanes);
      for (Index l = lane; l < lane + width; ++l) {
        const Index tap = l / kChannelBlock, c = l % kChannelBlock;
        if (c >= block.channels) continue;
        const float* from =
            w + ((g * plan.kernels * z.c_per_group()) + block.first + c) * plan.taps + tap;
        for (Index k = 0; k < plan.kernels; ++k, from += z.c_per_group() * plan.taps) {
          to[lane * plan.padded + k * width + l - lane] = *from;
        }
      }
      lane += width;
    }
  });
}

void fused_backward_data(const DeformConv2dBackwardDataArgs& args) {
  const DeformTiling plan(args.problem, Direction::backward_data);
  const BackwardData pass(plan, args);
  parallel_region([&] { pass.run(); });  // its loops are many and short
}

// ---- dw -----------------------------------------------------------------------------------------
// Formula    dw[k,c,r,s] = sum over n, p, q of dy[n,k,p,q] mask sample(x[n,c], v, u)
// Method     A task computes dw for one or two blocks of input channels and all output channels. If
//            there are too few blocks for all threads, it computes only some of the output
//            channels. The task walks over all images in chunks of pixels.
//            For each chunk it writes a panel of samples, copies dy into blocks, and multiplies
//            both by register tiles of 8 or more channels x two vectors of kernels. The
//            accumulators of the task [R S channels, K] stay in L2 and are written to dw at the
//            end.
// Numerics   up to 160 chunks are added to one set of accumulators. The result is added to a set of
//            totals, and the accumulators start again. So errors do not grow with the number of
//            pixels. The additions to an element of dw have a fixed order, so bits are the same on
//            each run and with any number of threads.
//            The tiles are in layers/conv2d/shared/nchw16c_weight_tiles_simd.cpp

namespace {

using Problem = DeformConv2dProblem;

struct WeightMemory {
  WeightMemory(const DeformTiling& plan, void* memory) {
    Pieces pieces(memory);
    Index row = 0, most_sums = 0;
    for (Index b = 0; b < plan.group_blocks(); b += plan.weight_part) {
      const Index end = std::min(b + plan.weight_part, plan.group_blocks());
      row = std::max(row, plan.panel_row(b, end));
      most_sums = std::max(most_sums, plan.row(b, end));
    }
    const Index kernels = ceil_div(plan.padded / kChannelBlock, plan.kernel_parts) * kChannelBlock;
    const Index chunks = plan.z.n * ceil_div(plan.pixels, plan.chunk);
    for (int t = 0; t < plan.threads; ++t) {
      Thread own{};
      if (!plan.in_nchw16c) {
        own.x = pieces.floats(plan.weight_part * plan.plane * kChannelBlock);
        own.dy = pieces.floats(kernels * plan.chunk);
      }
      own.places = pieces.floats(plan.most_offset_groups(plan.weight_part) * plan.taps *
                                 plan.places_floats());
      own.panel = pieces.floats(plan.chunk * row);
      own.sums = pieces.floats(most_sums * kernels);
      if (chunks > kSumChain) own.totals = pieces.floats(most_sums * kernels);
      threads.push_back(own);
      pieces.gap();
    }
    bytes = pieces.bytes();
  }
  struct Thread {
    float *x, *dy, *places, *panel, *sums, *totals;
  };
  std::vector<Thread> threads;
  std::size_t bytes = 0;
};

class BackwardWeight {
 public:
  BackwardWeight(const DeformTiling& plan, const DeformConv2dBackwardWeightArgs& args)
      : plan_(plan),
        z_(plan.z),
        places_(plan, args.offset, args.mask),
        memory_(plan, args.workspace),
        x_(static_cast<const float*>(args.x)),
        dy_(static_cast<const float*>(args.dy)),
        dw_(static_cast<float*>(args.dw)),
        accumulate_(args.accumulate) {}

  void run() const {
    const Index parts = ceil_div(plan_.group_blocks(), plan_.weight_part);
    parallel_chunks(z_.groups * parts * plan_.kernel_parts, [&](Index task, int thread) {
      const Index g = task / plan_.kernel_parts / parts;
      const Index begin = task / plan_.kernel_parts % parts * plan_.weight_part;
      const Index blocks = plan_.padded / kChannelBlock, part = task % plan_.kernel_parts;
      const Task one{.g = g,
                     .begin = begin,
                     .end = std::min(begin + plan_.weight_part, plan_.group_blocks()),
                     .kernel = part * blocks / plan_.kernel_parts * kChannelBlock,
                     .kernel_end = (part + 1) * blocks / plan_.kernel_parts * kChannelBlock};
      if (one.kernel < one.kernel_end) {
        run_task(one, memory_.threads[static_cast<std::size_t>(thread)]);
      }
    });
  }

 private:
  using Thread = WeightMemory::Thread;
  struct Task {
    Index g, begin, end;       // blocks
    Index kernel, kernel_end;  // of the group, whole blocks
    Index width() const { return kernel_end - kernel; }
  };

  void run_task(const Task& task, const Thread& own) const {
    const Index floats = plan_.row(task.begin, task.end) * task.width();
    bool start = true, first_total = true;
    Index added = 0;
    const auto take_total = [&] {
      for (Index i = 0; i < floats; ++i) {
        own.totals[i] = first_total ? own.sums[i] : own.totals[i] + own.sums[i];
      }
      first_total = false;
      start = true;
      added = 0;
    };
    for (Index n = 0; n < z_.n; ++n) {
      const float* x = own.x;
      if (plan_.in_nchw16c) {
        const Index channel = task.g * z_.c_per_group() + plan_.block(task.begin).first;
        x = x_ + (n * ceil_div(z_.c, kChannelBlock) + channel / kChannelBlock) * plan_.plane *
                     kChannelBlock;
      } else {
        copy_x(task, n, own);
      }
      for (Index first = 0; first < plan_.pixels; first += plan_.chunk) {
        add_chunk(task, n, first, x, own, start);
        start = false;
        if (++added == kSumChain && own.totals != nullptr) take_total();
      }
    }
    if (own.totals != nullptr && added > 0) take_total();
    write(task, own.totals != nullptr ? own.totals : own.sums);
  }

  void copy_x(const Task& task, Index n, const Thread& own) const {
    for (Index b = task.begin; b < task.end; ++b) {
      const Block& block = plan_.block(b);
      const Index channel = n * z_.c + task.g * z_.c_per_group() + block.first;
      block_copy_kernels.get().to_block(x_ + channel * plan_.plane, plan_.plane, block.channels,
                                        plan_.plane, false,
                                        own.x + (b - task.begin) * plan_.plane * kChannelBlock);
    }
  }

  void add_chunk(const Task& task, Index n, Index first, const float* x, const Thread& own,
                 bool start) const {
    const Index count = std::min(plan_.chunk, plan_.pixels - first);
    const Index group = plan_.offset_group(task.g, task.begin);
    for (Index o = 0; o < plan_.offset_groups(task.g, task.begin, task.end); ++o) {
      places_.compute(n, group + o, first, count,
                      own.places + o * plan_.taps * plan_.places_floats());
    }
    fill_panel(plan_, task.g, task.begin, task.end, count, x, plan_.plane * kChannelBlock,
               own.places, own.panel);
    const Index kernel = task.g * plan_.kernels + task.kernel;
    const float* dy = own.dy;
    Index dy_block = plan_.chunk * kChannelBlock;
    if (plan_.in_nchw16c) {
      const Index block = n * ceil_div(z_.k, kChannelBlock) + kernel / kChannelBlock;
      dy = dy_ + (block * plan_.pixels + first) * kChannelBlock;
      dy_block = plan_.pixels * kChannelBlock;
    } else {
      for (Index k = task.kernel; k < std::min(task.kernel_end, plan_.kernels);
           k += kChannelBlock) {
        block_copy_kernels.get().to_block(
            dy_ + (n * z_.k + task.g * plan_.kernels + k) * plan_.pixels + first, plan_.pixels,
            static_cast<int>(std::min(kChannelBlock, plan_.kernels - k)), count, false,
            own.dy + (k - task.kernel) * plan_.chunk);
      }
    }
    const Index rows = plan_.row(task.begin, task.end);
    const Index step = plan_.panel_row(task.begin, task.end);
    for (Index lane = 0; lane < task.width();) {
      const Index width = plan_.width_at(lane, task.width());
      for (Index row = 0; row < rows; row += kChannelBlock) {
        Nchw16cWeightTile tile;
        tile.channels = static_cast<int>(std::min(kChannelBlock, rows - row));
        tile.rows = 1;
        tile.columns = count;
        tile.in = own.panel + row;
        tile.in_step = step;
        tile.beside = dy + lane / kChannelBlock * dy_block + lane % kChannelBlock;
        tile.beside_step = kChannelBlock;
        tile.beside_block = dy_block;
        tile.next = tile.beside;
        tile.next_step = 0;
        tile.sums = own.sums + row * task.width() + lane;
        tile.sums_row = task.width();
        tile.start = start;
        nchw16c_kernels.get().weight_tile(tile, static_cast<int>(width));
      }
      lane += width;
    }
  }

  void write(const Task& task, const float* sums) const {
    const Index channels = plan_.channels(task.begin, task.end);
    const Index first = plan_.block(task.begin).first;
    for (Index k = task.kernel; k < std::min(task.kernel_end, plan_.kernels); ++k) {
      const Index kernel = task.g * plan_.kernels + k;
      float* const to = dw_ + (kernel * z_.c_per_group() + first) * plan_.taps;
      for (Index t = 0; t < plan_.taps; ++t) {
        for (Index c = 0; c < channels; ++c) {
          const float sum = sums[(t * channels + c) * task.width() + k - task.kernel];
          float& at = to[c * plan_.taps + t];
          at = accumulate_ ? at + sum : sum;
        }
      }
    }
  }

  const DeformTiling& plan_;
  const Problem& z_;
  const Places places_;
  const WeightMemory memory_;
  const float *const x_, *const dy_;
  float* const dw_;
  const bool accumulate_;
};

}  // namespace

std::size_t weight_bytes(const Problem& z) {
  return WeightMemory(DeformTiling(z, Direction::backward_weight), nullptr).bytes;
}

void fused_backward_weight(const DeformConv2dBackwardWeightArgs& args) {
  const DeformTiling plan(args.problem, Direction::backward_weight);
  BackwardWeight(plan, args).run();
}

}  // namespace convscope::deform
