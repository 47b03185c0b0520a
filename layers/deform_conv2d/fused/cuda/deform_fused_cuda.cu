// SPDX-License-Identifier: Apache-2.0
// deform_fused_cuda.cu: deformable convolution without a buffer of columns: threads sample straight
// into shared memory, where the tensor cores multiply.
//
// Formula    y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                w[k,c,r,s] mask[n,j,p,q] sample(x[n, g C/G + c], v, u)   (problem.h)
// Textbook   columns = all samples of an image       # [C R S, P Q], R S times as large as x
//            y = w columns                           # as in the frameworks, deform_im2col_gemm
// Method     forward  x is packed with the channels innermost, so that the corners of a sampling
//                     position are contiguous in memory. A thread block sums a tile of 64..256
//                     channels x 64 or 128 pixels. In each step of 64 elements of the K dimension
//                     one thread copies a tile of w. All threads make samples (eight channels at a
//                     time: four loads of 16 or 32 bytes), write them as fp16/bf16, and load the
//                     pixels of a later step. Meanwhile the tensor cores multiply the previous step
//            dw       the same samples are the columns, and the pixels are the K dimension. The K
//                     dimension is cut into parts, whose results are added in order
//            dx       lists say which samples are around a pixel of x (deform_passes.cuh). So dx is
//                     a product like y, whose rows are sums over lists, and one thread owns each
//                     element. `fused_atomic` uses atomic additions instead
//            places   doffset, dmask: a thread block computes a tile of w^T dy for one tap. While
//                     an element is in a register, it is multiplied by the four corners of x. The
//                     four sums of these products over the channels give both gradients of the
//                     offset and the gradient of the mask
// Shapes     x [N,C,H,W], w [K,C/G,R,S], offset [N,2 O R S,P,Q], mask [N,O R S,P,Q], y [N,K,P,Q];
//            f32, f16, bf16; sums in f32. Packed images [N][H W][pieces of 8 channels]
// Supports   f32 (as f32 or tf32), f16, bf16; every stride, padding, dilation; weight and offset
//            groups, unless padding the channels that share both groups to a multiple of 8 takes
//            more than four times the memory; with and without a mask; sm_80 and newer
// Cost       FLOPs = 2 N K P Q C/G R S; f32 without TF32 takes three times as many. The backward
//            pass has twice as many products as the textbook, because dx and the offsets need one
//            product each. Each sample reads 4 elements of x from the caches. Workspace = packed x
//            and dy, lists (20 bytes for each tap and pixel), and partial results, but no columns
// Numerics   sampling positions and weights of corners are f32. A sample is summed in f32; for f16
//            and tf32 in fp16, with five roundings of 2^-11. Products are those of implicit_gemm.
//            For f32, each operand is split into two fp16 numbers of 11 bits, scaled so that no
//            element can exceed 2^14, and the kernel computes three products. tf32, f16 and bf16
//            take one product. Elements below 2^-27 of the largest possible element lose bits. The
//            bound adds up 32 eps of implicit_gemm, 3.5 eps for a sample, 3.5 eps for a sum over a
//            list of seven, and 8 eps for a sum over the channels in f32. Bits are the same on each
//            run, except dx by `fused_atomic`
// Backward   dx, doffset, dmask assigned, each only if requested; dw assigned or added to
// Choices    a step has 64 elements, as in implicit_gemm. f16 and bf16 also have stages of two
//            steps, because with one barrier for each step the kernel waits half of the time. Eight
//            threads make one row and need the same sampling positions. Each of these threads
//            computes the position of a different step and stores it in shared memory. Loads of x
//            limit the 16-bit types, the tensor cores limit f32. Tiles and parts are chosen by the
//            lowest estimated time (layers/dispatch/cost)
// Source     J. Dai et al. 2017: arXiv 1703.06211; X. Zhu et al. 2019: arXiv 1811.11168. Both write
//            the columns. f32 by fp16: H. Ootomo, R. Yokota 2022, arXiv 2203.03341
// Read next  deform_sampler.cuh, which makes the rows; deform_tiles.cuh, the kernels
#include <algorithm>
#include <numeric>

#include "layers/deform_conv2d/algorithm.h"
#include "layers/deform_conv2d/fused/cuda/deform_passes.cuh"

namespace convscope {
namespace deform_cuda {

// ---- compiled kernels --------------------------------------------------------------------------
// f32 by three products of fp16; f16, also f32 as TF32; bf16.

std::span<const Instance> f32_instances() {
  static const Instance kInstances[] = {
      Kernels<Tile<ByF32, 4, 1, 64, 2, 1>>().y().dx().dw().instance,
      Kernels<Tile<ByF32, 2, 1, 64, 3, 1>>().y().dx().dw().places().instance,
      Kernels<Tile<ByF32, 1, 1, 64, 2, 2>>().y().dx().dw().instance,
  };
  return kInstances;
}

namespace {

template <class By>
std::span<const Instance> half_instances() {
  static const Instance kInstances[] = {
      Kernels<Tile<By, 4, 1, 64, 2, 1, 2>>().y().dw().instance,
      Kernels<Tile<By, 4, 1, 64, 4, 1>>().dx().instance,
      Kernels<Tile<By, 4, 1, 128, 3, 1>>().y().instance,
      Kernels<Tile<By, 2, 1, 64, 3, 2>>().y().dx().dw().places().instance,
      Kernels<Tile<By, 1, 1, 64, 2, 3>>().y().dx().dw().instance,
  };
  return kInstances;
}

}  // namespace

std::span<const Instance> f16_instances() { return half_instances<ByF16>(); }
std::span<const Instance> bf16_instances() { return half_instances<ByBF16>(); }

namespace {

// ---- passes ------------------------------------------------------------------------------------

LaunchShape overlapping(LaunchShape shape) {
  shape.overlaps_previous = true;
  return shape;
}

void clear(void* memory, std::size_t bytes) {
  CONVSCOPE_CUDA(cudaMemsetAsync(memory, 0, bytes, cuda_stream()));
}

// Clears the pixel of zeros after the packed pixels. If `words` is given, also clears the largest
// magnitudes (as bits) that follow this pixel.
void clear_zeros(const Rows& rows, const unsigned* words = nullptr) {
  auto* const begin = reinterpret_cast<std::byte*>(rows.at + rows.zeros_at);
  const auto* const end = words != nullptr
                              ? reinterpret_cast<const std::byte*>(words + kWords)
                              : begin + static_cast<std::size_t>(rows.pixel_pieces) * sizeof(uint4);
  clear(begin, static_cast<std::size_t>(end - begin));
}

// Finds the largest magnitudes of up to two tensors of one type; a null pointer skips a tensor. The
// results must be 0 before the call.
void find_largest(DType type, const void* a, std::int64_t a_count, unsigned* to_a,
                  const void* b = nullptr, std::int64_t b_count = 0, unsigned* to_b = nullptr) {
  Largest z;
  unsigned tensors = 0;
  const auto add = [&](const void* from, std::int64_t count, unsigned* to) {
    if (from == nullptr || to == nullptr) return;
    z.from[tensors] = from;
    z.count[tensors] = count;
    z.to[tensors++] = to;
  };
  add(a, a_count, to_a);
  add(b, b_count, to_b);
  if (tensors == 0) return;
  const std::int64_t most = std::max(a_count, b_count);
  const std::int64_t blocks = std::min<std::int64_t>(ceil_div(most, 4 * std::int64_t{kThreads}),
                                                     cuda_device_facts().multiprocessors * 4);
  with_float_type(type, [&](auto zero) {
    launch(largest_kernel<decltype(zero)>,
           {.grid = dim3(static_cast<unsigned>(blocks), tensors), .block = dim3(kThreads)}, z);
  });
}

// Returns the job that packs [N, channels, area] into rows for samplers.
PackRows pack_plan(const float* planes, float* rows, int channels, int area, int run,
                   int run_pieces) {
  return {.planes = planes,
          .rows = rows,
          .channels = channels,
          .area = area,
          .run = run,
          .run_pieces = run_pieces,
          .pieces = channels / run * run_pieces,
          .by_run_pieces = FastDivisor(run_pieces)};
}
LaunchShape pack_shape(const PackRows& z, int images) {
  return {.grid = dim3(
              static_cast<unsigned>(images) * static_cast<unsigned>(ceil_div(z.area, kPackPixels)),
              static_cast<unsigned>(ceil_div(z.pieces, kStepPieces))),
          .block = dim3(kThreads),
          .overlaps_previous = true};
}

// Packs the rows as fp16/bf16: copies 16-bit elements, and scales f32 by its largest magnitude.
template <int kChannelsLog2>
void launch_pack_half(DType type, int planes, const LaunchShape& shape,
                        const half_tiles::PackPixels& pack) {
  using half_tiles::pack_pixels_kernel;
  if (type != DType::f32) return launch(pack_pixels_kernel<Float16, 1, kChannelsLog2>, shape, pack);
  planes == 2 ? launch(pack_pixels_kernel<float, 2, kChannelsLog2>, shape, pack)
              : launch(pack_pixels_kernel<float, 1, kChannelsLog2>, shape, pack);
}
void pack_half(DType type, int planes, const void* from, uint4* to, std::int64_t plane,
                 int images, int area, int run, int runs, int pieces, const unsigned* largest) {
  const half_tiles::PackPixels pack{.from = from,
                                    .to = to,
                                    .plane = plane,
                                    .channels = run,
                                    .groups = runs,
                                    .pieces = pieces,
                                    .area = area,
                                    .channels_log2 = half_tiles::pack_channels_log2(run),
                                    .maxima = {largest, largest == nullptr ? 0 : 1},
                                    .other_maxima = {},
                                    .unscale = nullptr};
  const LaunchShape shape{
      .grid = dim3(
          static_cast<unsigned>(images) * static_cast<unsigned>(ceil_div(pack.area, pack.pixels())),
          static_cast<unsigned>(pack.groups * pack.channel_blocks())),
      .block = dim3(kThreads),
      .overlaps_previous = true};
  switch (pack.channels_log2) {
    case 3:
      return launch_pack_half<3>(type, planes, shape, pack);
    case 4:
      return launch_pack_half<4>(type, planes, shape, pack);
    case 5:
      return launch_pack_half<5>(type, planes, shape, pack);
    default:
      return launch_pack_half<6>(type, planes, shape, pack);
  }
}

void pack_x(const DeformCudaTiling& plan, const void* x, const Rows& rows, const unsigned* words) {
  const DeformShape& s = plan.s;
  if (plan.planes == 2) {
    const PackRows pack = pack_plan(static_cast<const float*>(x), reinterpret_cast<float*>(rows.at),
                                    s.groups * s.c, s.in_area(), s.run, s.run_pieces);
    return launch(pack_rows_kernel, pack_shape(pack, s.images), pack);
  }
  pack_half(plan.z.dtype, 1, x, rows.at, 0, s.images, s.in_area(), s.run, s.runs(), s.run_pieces,
              is_tf32(plan.z) ? words + kOfX : nullptr);
}

void pack_errors(const DeformCudaTiling& plan, const void* dy, uint4* to, std::int64_t plane,
                 const unsigned* words) {
  const DeformShape& s = plan.s;
  pack_half(plan.z.dtype, plan.planes, dy, to, plane, s.images, s.out_area(), s.k, s.groups,
              s.out_pieces, plan.z.dtype == DType::f32 ? words + kOfDy : nullptr);
}

// ---- weights -----------------------------------------------------------------------------------

std::size_t prepared_bytes(const Problem& z, Direction direction) {
  return PreparedLayout(z, direction, nullptr).bytes;
}

template <class In, int kPlanes>
void launch_pack_weights(bool backward, const LaunchShape& shape, const PackWeights& pack) {
  backward ? launch(pack_weights_kernel<In, kPlanes, true>, shape, pack)
           : launch(pack_weights_kernel<In, kPlanes, false>, shape, pack);
}

void prepare_weights(const PrepareArgs<Problem>& args) {
  const Problem& z = args.problem;
  const PreparedLayout at(z, args.direction, args.prepared);
  if (at.largest != nullptr) {
    clear(at.largest, sizeof(unsigned));
    find_largest(z.dtype, args.w, z.w_shape().numel(), at.largest);
  }
  const PackWeights pack{.from = args.w,
                         .to = at.weights,
                         .plane = at.plane,
                         .sizes = DeformShape(z),
                         .rows = at.rows,
                         .blocks = at.blocks,
                         .pieces = at.pieces,
                         .depth_pieces = at.depth,
                         .largest = at.largest};
  const LaunchShape shape =
      overlapping(grid_for(std::int64_t{at.blocks} * at.rows * at.pieces * z.taps()));
  const bool backward = args.direction == Direction::backward_data;
  if (z.dtype != DType::f32) return launch_pack_weights<Float16, 1>(backward, shape, pack);
  at.planes == 2 ? launch_pack_weights<float, 2>(backward, shape, pack)
                 : launch_pack_weights<float, 1>(backward, shape, pack);
}

// ---- y and dx ----------------------------------------------------------------------------------

template <class View>
void run_gather(const DeformCudaTiling& plan, void (*kernel)(const Gather<View>), const View& view,
                const Scaling& scaling, const PreparedLayout& prepared, const void* bias, void* out,
                float* parts) {
  const Instance& by = *plan.instance;
  const Problem& z = plan.z;
  const int area = plan.pixels / plan.s.images;
  const bool paired =
      area % 2 == 0 && reinterpret_cast<std::uintptr_t>(out) % (2 * size_of(z.dtype)) == 0;
  const Finish end{bias, nullptr, false};
  const Gather<View> gather{.view = view,
                            .sizes = plan.s,
                            .scaling = scaling,
                            .weights = prepared.weights,
                            .weights_plane = prepared.plane,
                            .out = out,
                            .parts = parts,
                            .out_count = plan.out_count,
                            .end = end,
                            .rows = plan.rows,
                            .blocks = plan.blocks,
                            .depth_pieces = prepared.depth,
                            .splits = plan.splits,
                            .images = plan.s.images,
                            .out_area = area,
                            .in_f32 = z.dtype == DType::f32,
                            .paired = paired,
                            .by_row_tiles = FastDivisor(plan.row_tiles()),
                            .by_out_area = FastDivisor(area)};
  launch(kernel,
         {.grid = dim3(static_cast<unsigned>(plan.row_tiles()) *
                           static_cast<unsigned>(ceil_div(plan.pixels, by.columns)),
                       static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.splits)),
          .block = dim3(by.threads),
          .shared_bytes = by.sampled_bytes,
          .overlaps_previous = true},
         gather);
  if (plan.splits == 1) return;
  with_float_type(z.dtype, [&](auto zero) {
    using Out = decltype(zero);
    launch(half_tiles::sum_parts_kernel<Out>, overlapping(grid_for(plan.out_count)), parts,
           plan.splits, plan.out_count, area, plan.blocks * plan.rows, end, static_cast<Out*>(out));
  });
}

void forward(const DeformConv2dForwardArgs& args) {
  const Problem& z = args.problem;
  const DeformCudaTiling plan = plan_of(z, Product::y);
  const ForwardLayout at(plan, args.workspace);
  const bool f32 = z.dtype == DType::f32;
  clear_zeros(at.x_rows, at.words);
  if (f32) {
    find_largest(z.dtype, args.x, z.x_shape().numel(), at.words + kOfX, args.mask,
                 z.mask_shape().numel(), at.words + kOfMask);
  }
  pack_x(plan, args.x, at.x_rows, at.words);
  const PreparedLayout prepared(z, Direction::forward, args.prepared);
  const Scaling scaling{.values = f32 ? at.words + kOfX : nullptr,
                        .factors = args.mask != nullptr && f32 ? at.words + kOfMask : nullptr,
                        .count = nullptr,
                        .weights = prepared.largest,
                        .packed_scaled = is_tf32(z)};
  const PlaceView view{{args.offset, args.mask, f32}, at.x_rows.at};
  run_gather(plan, plan.instance->y, view, scaling, prepared, args.b, args.y, at.parts);
}

template <class Half>
void make_lists(const Lists& z) {
  const unsigned keys = static_cast<unsigned>(z.sizes.keys());
  LaunchShape samples = grid_for(z.sizes.out_pixels());
  samples.grid.y = keys;
  const auto blocks = static_cast<int>(ceil_div(z.lists, kScanBlock));
  const LaunchShape scan{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)};
  clear(z.begin, static_cast<std::size_t>(z.lists) * sizeof(int));
  launch(count_samples_kernel<Half>, samples, z);
  launch(sum_counts_kernel, scan, z);
  launch(scan_sums_kernel, {.grid = dim3(1), .block = dim3(kThreads)}, z, blocks);
  launch(begin_lists_kernel, scan, z);
  launch(fill_lists_kernel<Half>, samples, z);
  launch(order_lists_kernel<Half>, samples, z);
}

void make_lists(const DeformCudaTiling& plan, const DeformConv2dBackwardDataArgs& args,
                const DataLayout& at) {
  const Problem& z = args.problem;
  const DeformShape& s = plan.s;
  const bool f32 = z.dtype == DType::f32;
  const Lists lists{.places = {args.offset, args.mask, f32},
                    .sizes = s,
                    .begin = at.begin,
                    .place = at.place,
                    .unordered = at.unordered,
                    .entries = at.entries,
                    .sums = at.sums,
                    .most = at.words + kLongestList,
                    .lists = at.count};
  z.dtype == DType::bf16 ? make_lists<BFloat16>(lists) : make_lists<Float16>(lists);
}

void place_gradients(const DeformCudaTiling& plan, const DeformConv2dBackwardDataArgs& args,
                     const DataLayout& at, const PreparedLayout& prepared, float* dx_rows) {
  const Problem& z = args.problem;
  const DeformShape& s = plan.s;
  const bool f32 = z.dtype == DType::f32;
  pack_x(plan, args.x, at.x_rows, at.words);
  const auto by = std::find_if(plan.instances.begin(), plan.instances.end(),
                               [](const Instance& i) { return i.places != nullptr; });
  const PlaceGradient gradient{.places = {args.offset, args.mask, f32},
                               .sizes = s,
                               .rows = at.x_rows.at,
                               .x_max = is_tf32(z) ? at.words + kOfX : nullptr,
                               .dy_max = f32 ? at.words + kOfDy : nullptr,
                               .w_max = prepared.largest,
                               .errors = at.errors,
                               .errors_plane = at.plane,
                               .weights = prepared.weights,
                               .weights_plane = prepared.plane,
                               .depth_pieces = prepared.depth,
                               .doffset = args.doffset,
                               .dmask = args.dmask,
                               .dx = dx_rows};
  launch(by->places,
         {.grid = dim3(static_cast<unsigned>(ceil_div(s.out_pixels(), by->rows)),
                       static_cast<unsigned>(s.keys())),
          .block = dim3(by->threads),
          .shared_bytes = by->shared_bytes,
          .overlaps_previous = true},
         gradient);
}

// Finds the largest magnitudes that both algorithms need: of dy and the mask, and of x if it is
// packed as fp16.
void find_data_words(const DeformConv2dBackwardDataArgs& args, unsigned* words) {
  const Problem& z = args.problem;
  clear(words, kWords * sizeof(unsigned));
  const bool f32 = z.dtype == DType::f32;
  find_largest(z.dtype, args.dy, z.y_shape().numel(), f32 ? words + kOfDy : nullptr, args.mask,
               z.mask_shape().numel(), words + kOfMask);
  if (is_tf32(z)) find_largest(z.dtype, args.x, z.x_shape().numel(), words + kOfX);
}

void backward_data(const DeformConv2dBackwardDataArgs& args) {
  const Problem& z = args.problem;
  const DeformCudaTiling plan = plan_of(z, Product::dx);
  const DataLayout at(plan, false, args.workspace);
  const PreparedLayout prepared(z, Direction::backward_data, args.prepared);
  const bool f32 = z.dtype == DType::f32;
  const bool places = args.doffset != nullptr || args.dmask != nullptr;
  find_data_words(args, at.words);
  if (args.dx != nullptr) make_lists(plan, args, at);
  if (places || plan.planes == 1) pack_errors(plan, args.dy, at.errors, at.plane, at.words);
  if (args.dx != nullptr) {
    const DeformShape& s = plan.s;
    clear_zeros(at.dy_rows);
    if (plan.planes == 2) {
      const PackRows pack =
          pack_plan(static_cast<const float*>(args.dy), reinterpret_cast<float*>(at.dy_rows.at),
                    s.groups * s.k, s.out_area(), s.k, s.out_pieces);
      launch(pack_rows_kernel, pack_shape(pack, s.images), pack);
    }
    const Scaling scaling{.values = f32 ? at.words + kOfDy : nullptr,
                          .factors = args.mask != nullptr ? at.words + kOfMask : nullptr,
                          .count = at.words + kLongestList,
                          .weights = prepared.largest,
                          .packed_scaled = is_tf32(z)};
    const ListView view{at.begin, at.entries, at.dy_rows.at};
    run_gather(plan, plan.instance->dx, view, scaling, prepared, nullptr, args.dx, at.parts);
  }
  if (places) place_gradients(plan, args, at, prepared, nullptr);
}

void atomic_backward_data(const DeformConv2dBackwardDataArgs& args) {
  const Problem& z = args.problem;
  const DeformCudaTiling plan = plan_of(z, Product::dx);
  const DeformShape& s = plan.s;
  const DataLayout at(plan, true, args.workspace);
  const PreparedLayout prepared(z, Direction::backward_data, args.prepared);
  const bool dx = args.dx != nullptr;
  find_data_words(args, at.words);
  if (dx) {
    clear(at.dx_rows, static_cast<std::size_t>(std::int64_t{s.in_pixels()} * s.x_pieces()) *
                          kPieceNumbers * sizeof(float));
  }
  pack_errors(plan, args.dy, at.errors, at.plane, at.words);
  place_gradients(plan, args, at, prepared, dx ? at.dx_rows : nullptr);
  if (!dx) return;
  const PackRows pack =
      pack_plan(nullptr, at.dx_rows, s.groups * s.c, s.in_area(), s.run, s.run_pieces);
  with_float_type(z.dtype, [&](auto zero) {
    using Out = decltype(zero);
    launch(unpack_rows_kernel<Out>, pack_shape(pack, s.images), pack, static_cast<Out*>(args.dx));
  });
}

// ---- dw ----------------------------------------------------------------------------------------

void backward_weight(const DeformConv2dBackwardWeightArgs& args) {
  const Problem& z = args.problem;
  const DeformCudaTiling plan = plan_of(z, Product::dw);
  const WeightLayout at(plan, args.workspace);
  const bool f32 = z.dtype == DType::f32;
  clear_zeros(at.x_rows, at.words);
  if (f32) {
    find_largest(z.dtype, args.x, z.x_shape().numel(), at.words + kOfX, args.dy,
                 z.y_shape().numel(), at.words + kOfDy);
    find_largest(z.dtype, args.mask, z.mask_shape().numel(), at.words + kOfMask);
  }
  pack_x(plan, args.x, at.x_rows, at.words);
  pack_errors(plan, args.dy, at.errors, at.plane, at.words);
  const Instance& by = *plan.instance;
  const WeightGather gather{
      .view = {{args.offset, args.mask, f32}, at.x_rows.at},
      .sizes = plan.s,
      .scaling = {.values = f32 ? at.words + kOfX : nullptr,
                  .factors = args.mask != nullptr && f32 ? at.words + kOfMask : nullptr,
                  .count = nullptr,
                  .weights = f32 ? at.words + kOfDy : nullptr,
                  .packed_scaled = is_tf32(z)},
      .errors = at.errors,
      .errors_plane = at.plane,
      .parts = at.parts,
      .columns = plan.columns(),
      .splits = plan.splits,
      .by_row_tiles = FastDivisor(plan.row_tiles())};
  launch(by.dw,
         {.grid = dim3(static_cast<unsigned>(plan.row_tiles()) *
                           static_cast<unsigned>(plan.columns() / kStepPieces),
                       static_cast<unsigned>(plan.s.groups), static_cast<unsigned>(plan.splits)),
          .block = dim3(by.threads),
          .shared_bytes = by.sampled_bytes,
          .overlaps_previous = true},
         gather);
  with_float_type(z.dtype, [&](auto zero) {
    using Out = decltype(zero);
    launch(sum_columns_kernel<Out>, overlapping(grid_for(plan.out_count)), at.parts, plan.splits,
           plan.s, plan.columns() * kPieceNumbers, args.accumulate, static_cast<Out*>(args.dw));
  });
}

// ---- algorithms --------------------------------------------------------------------------------

Support supports(const Problem& z, Direction direction) {
  if (z.dtype != DType::f32 && z.dtype != DType::f16 && z.dtype != DType::bf16) {
    return Support::no(cat("expects elements of f32, f16 or bf16, got ", name_of(z.dtype)));
  }
  if (cuda_device_facts().major < 8) {
    return Support::no(
        cat("expects a GPU of compute capability 8.0 or higher, for its tensor cores, ", "got ",
            cuda_device_facts().major, ".", cuda_device_facts().minor));
  }
  constexpr std::int64_t kMax = 0x7fff0000, kMaxSide = 1 << 24;  // f32 holds whole numbers so far
  const std::int64_t run = std::gcd(z.c_per_group(), z.c_per_offset_group());
  const std::int64_t unit = run <= 4 * kPieceNumbers ? 4 : 8;
  const std::int64_t x_pieces = z.c / run * round_up(ceil_div(run, kPieceNumbers), unit);
  const std::int64_t y_pieces = ceil_div(z.k_per_group(), std::int64_t{kPieceNumbers}) * z.groups;
  const auto wasteful = [](std::int64_t pieces, std::int64_t channels) {
    return pieces * kPieceNumbers > 4 * channels + 64;
  };
  if (wasteful(x_pieces, z.c) || wasteful(y_pieces, z.k)) {
    return Support::no(
        cat("expects at least 8 neighbouring channels that share weights and offsets, because it ",
            "packs them by 32, got ", run, " in and ", z.k_per_group(), " out"));
  }
  const std::int64_t in = z.h * z.w, out = z.p() * z.q();
  const std::int64_t side =
      std::max({z.h + z.pad_top + z.pad_bottom, z.w + z.pad_left + z.pad_right, z.p() * z.stride_h,
                z.q() * z.stride_w});
  if (z.n * std::max(in * x_pieces, out * y_pieces) > kMax || side > kMaxSide ||
      (std::max(in, out) + 512) * std::max(z.c, z.k) > kMax ||
      z.offset_groups * z.taps() > 65535 || z.c / run > 65535 ||
      z.taps() * std::max(x_pieces, y_pieces) > kMax) {
    return Support::no(
        "expects fewer than 2^31 pieces of 8 channels in a tensor, fewer than 2^31 elements in an "
        "image and fewer than 2^16 places of a pixel, because places have 32 bits");
  }
  if (direction == Direction::backward_data && z.offset_groups * z.taps() * z.n * out > kMax) {
    return Support::no(
        cat("expects fewer than 2^31 samples of x, because they are stored in lists, got ",
            z.offset_groups * z.taps() * z.n * out));
  }
  return {};
}

// backward_data has two products: dx by the plan, and the gradients of places.
Cost cost(const Problem& z, Direction direction) {
  const Product product = direction == Direction::forward         ? Product::y
                          : direction == Direction::backward_data ? Product::dx
                                                                  : Product::dw;
  const DeformCudaTiling plan = plan_of(z, product);
  const DeformShape& s = plan.s;
  const bool f32 = z.dtype == DType::f32;
  const bool data = direction == Direction::backward_data;
  const auto element = static_cast<double>(size_of(z.dtype));
  const double keys = s.keys(), pixels = s.out_pixels();
  Cost out = plan.cost;
  if (data) {
    out.flops *= 2;
    out.issued += 2 * plan.products() * pixels * s.taps * s.x_pieces() * kPieceNumbers *
                  s.out_pieces * kPieceNumbers;
    // Lists of the four pixels of each sample: 12 bytes for each.
    out.pass_bytes += 4 * 12 * keys * pixels;
  }
  double packed = number(z.x_shape().numel());
  if (direction != Direction::forward) packed += number(z.y_shape().numel());
  out.pass_bytes += packed * (f32 ? 2 * element + 2 * plan.planes : 2 * element);
  out.launches += 1 + (f32 ? 2 : 0) + (data ? 9 : 0);
  if (direction != Direction::backward_weight) {
    out.prepared_bytes = number(z.w_shape().numel()) * element +
                         static_cast<double>(prepared_bytes(z, direction));
    out.prepare_launches = f32 ? 2 : 1;
  }
  return out;
}

template <bool kAtomic>
std::size_t workspace_bytes(const Problem& z, Direction direction) {
  switch (direction) {
    case Direction::forward:
      return ForwardLayout(plan_of(z, Product::y), nullptr).bytes;
    case Direction::backward_data:
      return DataLayout(plan_of(z, Product::dx), kAtomic, nullptr).bytes;
    case Direction::backward_weight:
      return WeightLayout(plan_of(z, Product::dw), nullptr).bytes;
  }
  return 0;
}

constexpr const char* kPaper =
    "Dai et al. 2017, arXiv 1703.06211; Zhu et al. 2019, arXiv 1811.11168";

const DeformConv2dAlgorithm kAlgorithm{
    .name = "fused",
    .device = DeviceType::cuda,
    .idea = "samples are made in shared memory during the products; dx by lists; no columns",
    .paper = kPaper,
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes<false>,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 48,  // see Numerics
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

const DeformConv2dAlgorithm kAtomicAlgorithm{
    .name = "fused_atomic",
    .device = DeviceType::cuda,
    .idea =
        "as fused, but dx is added up by atomic additions: fewer products, other bits each time",
    .paper = kPaper,
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes<true>,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 48,
    .deterministic = false,
    .auto_ok = false,
    .forward = forward,
    .backward_data = atomic_backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace deform_cuda
}  // namespace convscope
CONVSCOPE_DEFORM_CONV2D_ALGORITHM(convscope::deform_cuda::kAlgorithm)
namespace {
const bool registered_atomic =
    ::convscope::register_algorithm(convscope::deform_cuda::kAtomicAlgorithm, __FILE__);
}
