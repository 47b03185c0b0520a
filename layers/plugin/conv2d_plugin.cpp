// SPDX-License-Identifier: Apache-2.0
// conv2d_plugin.cpp: calls the C functions of a plug-in's convolution algorithms.
#include "layers/plugin/conv2d_plugin.h"

#include <array>
#include <utility>

#include "layers/plugin/plugin_file.h"

namespace convscope {
namespace {

using CAlgorithm = ConvscopeConv2dAlgorithm;

template <class Enum>
constexpr std::int32_t number_of(Enum value) {
  return static_cast<std::int32_t>(value);
}
static_assert(number_of(Direction::forward) == CONVSCOPE_FORWARD &&
              number_of(Direction::backward_data) == CONVSCOPE_BACKWARD_DATA &&
              number_of(Direction::backward_weight) == CONVSCOPE_BACKWARD_WEIGHT);
static_assert(number_of(DType::f32) == CONVSCOPE_F32 && number_of(DType::f64) == CONVSCOPE_F64 &&
              number_of(DType::f16) == CONVSCOPE_F16 && number_of(DType::bf16) == CONVSCOPE_BF16 &&
              number_of(DType::i32) == CONVSCOPE_I32 && number_of(DType::i8) == CONVSCOPE_I8 &&
              number_of(DType::u8) == CONVSCOPE_U8);
static_assert(number_of(ActivationLayout::nchw) == CONVSCOPE_NCHW &&
              number_of(ActivationLayout::nchw16c) == CONVSCOPE_NCHW16C &&
              number_of(ActivationLayout::nhwc) == CONVSCOPE_NHWC);

ConvscopeConv2dProblem problem_for_plugin(const Conv2dProblem& z) {
  const OperandTypes types = z.operand_types();
  const WeightFormat& w = z.weight_format;
  return {z.n,
          z.c,
          z.h,
          z.w,
          z.k,
          z.r,
          z.s,
          z.p(),
          z.q(),
          z.stride_h,
          z.stride_w,
          z.pad_top,
          z.pad_bottom,
          z.pad_left,
          z.pad_right,
          z.dilation_h,
          z.dilation_w,
          z.groups,
          number_of(types.x),
          number_of(types.w),
          number_of(types.accumulator),
          number_of(types.y),
          number_of(z.layout.x),
          number_of(z.layout.y),
          !w.is_dense(),
          w.block_rows,
          w.block_columns,
          w.blocks};
}

ConvscopeScales scales_for_plugin(const Quantisation& of) {
  return {of.scales, of.zero_points, of.per_channel, of.low, of.high};
}

// Sets a pointer of a call if the arguments of the direction have one of this name.
#define CONVSCOPE_PASS(name) \
  if constexpr (requires { args.name; }) call.name = static_cast<decltype(call.name)>(args.name)

template <class Args>
void run_plugin(void (*run)(const ConvscopeConv2dCall*), Direction direction, const Args& args) {
  const ConvscopeConv2dProblem problem = problem_for_plugin(args.problem);
  ConvscopeConv2dCall call{.problem = &problem, .direction = number_of(direction)};
  CONVSCOPE_PASS(x);
  CONVSCOPE_PASS(w);
  CONVSCOPE_PASS(b);
  CONVSCOPE_PASS(dy);
  CONVSCOPE_PASS(y);
  CONVSCOPE_PASS(dx);
  CONVSCOPE_PASS(dw);
  CONVSCOPE_PASS(accumulate);
  call.workspace = args.workspace;
  if constexpr (requires { args.prepared; }) call.prepared = const_cast<void*>(args.prepared);
  if constexpr (requires { args.epilogue; }) {
    call.residual = args.epilogue.residual;
    call.residual_type = number_of(args.epilogue.residual_type);
    call.relu = args.epilogue.relu;
    call.most = args.epilogue.most;
  }
  call.x_scales = scales_for_plugin(args.views.x);
  call.w_scales = scales_for_plugin(args.views.w);
  call.y_scales = scales_for_plugin(args.views.y);
  call.residual_scales = scales_for_plugin(args.views.residual);
  call.row_begin = args.views.w_blocks.row_begin;
  call.columns = args.views.w_blocks.columns;
  run(&call);
}
#undef CONVSCOPE_PASS

Support ask_supports(const CAlgorithm& algorithm, const Conv2dProblem& z, Direction direction) {
  if ((algorithm.flags & CONVSCOPE_TAKES_TYPES) == 0 && z.dtype != DType::f32) {
    return Support::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
  }
  if (algorithm.supports == nullptr) return {};
  char reason[512] = "";
  const ConvscopeConv2dProblem problem = problem_for_plugin(z);
  const bool yes = algorithm.supports(&problem, number_of(direction), reason, sizeof reason - 1);
  return yes ? Support{} : Support::no(reason);
}

Cost ask_cost(const CAlgorithm& algorithm, const Conv2dProblem& z, Direction direction) {
  // A textbook loop computes a product in 8 cycles, and a core can compute 16 in each cycle.
  ConvscopeCost cost{z.nominal_flops(), z.nominal_bytes(), 1.0 / (16 * 8), 0};
  const ConvscopeConv2dProblem problem = problem_for_plugin(z);
  if (algorithm.cost != nullptr) algorithm.cost(&problem, number_of(direction), &cost);
  // FLOPs of full rate that take the time of the arithmetic.
  const double issued = cost.flops / cost.peak_share;
  return {.flops = cost.flops,
          .bytes = cost.bytes,
          .issued = issued * (1 - cost.prepare_part),
          .prepared = issued * cost.prepare_part / flops_per_cycle(z.dtype)};
}

template <auto Bytes>
std::size_t ask_bytes(const CAlgorithm& algorithm, const Conv2dProblem& z, Direction direction) {
  const ConvscopeConv2dProblem problem = problem_for_plugin(z);
  return algorithm.*Bytes == nullptr ? 0 : (algorithm.*Bytes)(&problem, number_of(direction));
}

// The functions of an Algorithm are plain functions without state. So each algorithm of a plug-in
// gets a slot, and each slot has functions that know its number.
constexpr std::size_t kSlots = 128;
std::array<CAlgorithm, kSlots> slots;
std::size_t used_slots = 0;

template <std::size_t I, auto Ask>
auto ask_slot(const Conv2dProblem& z, Direction direction) {
  return Ask(slots[I], z, direction);
}
template <std::size_t I, auto Run, Direction kDirection, class Args>
void run_slot(const Args& args) {
  run_plugin(slots[I].*Run, kDirection, args);
}

template <std::size_t I>
void set_functions(Conv2dAlgorithm& out) {
  const CAlgorithm& from = slots[I];
  out.supports = ask_slot<I, ask_supports>;
  out.cost = ask_slot<I, ask_cost>;
  out.workspace_bytes = ask_slot<I, ask_bytes<&CAlgorithm::workspace_bytes>>;
  if (from.prepared_bytes != nullptr) {
    out.prepared_bytes = ask_slot<I, ask_bytes<&CAlgorithm::prepared_bytes>>;
  }
  if (from.prepare_weights != nullptr) {
    out.prepare_weights = [](const Conv2dPrepareArgs& args) {
      run_plugin(slots[I].prepare_weights, args.direction, args);
    };
  }
  if (from.forward != nullptr) {
    out.forward = run_slot<I, &CAlgorithm::forward, Direction::forward, Conv2dForwardArgs>;
  }
  if (from.backward_data != nullptr) {
    out.backward_data =
        run_slot<I, &CAlgorithm::backward_data, Direction::backward_data, Conv2dBackwardDataArgs>;
  }
  if (from.backward_weight != nullptr) {
    out.backward_weight = run_slot<I, &CAlgorithm::backward_weight, Direction::backward_weight,
                                   Conv2dBackwardWeightArgs>;
  }
}

template <std::size_t... I>
void set_functions(std::size_t slot, Conv2dAlgorithm& out, std::index_sequence<I...>) {
  constexpr void (*kSet[])(Conv2dAlgorithm&) = {set_functions<I>...};
  kSet[slot](out);
}

Conv2dLadder ladder_of(const ConvscopeConv2dLadder& from) {
  Conv2dLadder out{.name = from.name, .device = DeviceType::cpu, .problem = from.problem};
  for (const ConvscopeRung& rung : from.rungs) {
    if (rung.algorithm == nullptr) break;
    out.rungs.push_back({.algorithm = rung.algorithm,
                         .isa = rung.isa == nullptr ? "" : rung.isa,
                         .threads = rung.threads,
                         .prepare_each_call = rung.prepare_each_call != 0,
                         .sentence = rung.sentence});
  }
  return out;
}

}  // namespace

Conv2dAlgorithm conv2d_plugin_algorithm(const ConvscopeConv2dAlgorithm& algorithm) {
  CONVSCOPE_CHECK(used_slots < kSlots, "plugin", "expected at most ", kSlots,
                  " algorithms of plug-ins in a process, got one more");
  const std::size_t slot = used_slots++;
  slots[slot] = algorithm;
  const auto has = [&](ConvscopeFlag flag) { return (algorithm.flags & flag) != 0; };
  Conv2dAlgorithm out{
      .name = algorithm.name,
      .device = algorithm.device == CONVSCOPE_CPU ? DeviceType::cpu : DeviceType::cuda,
      .idea = algorithm.idea,
      .paper = algorithm.paper == nullptr ? "" : algorithm.paper,
      .error_growth = algorithm.error_growth,
      .one_chain = has(CONVSCOPE_ONE_CHAIN),
      .exact_on_integers = has(CONVSCOPE_EXACT_ON_INTEGERS),
      .deterministic = !has(CONVSCOPE_NOT_DETERMINISTIC),
      .auto_ok = has(CONVSCOPE_AUTO_OK),
      .fuses_epilogue = has(CONVSCOPE_FUSES_EPILOGUE),
      .takes_mixed_types = has(CONVSCOPE_TAKES_TYPES),
      .takes_sparse_weights = has(CONVSCOPE_TAKES_SPARSE_WEIGHTS),
      .takes_nchw16c_layout = has(CONVSCOPE_TAKES_NCHW16C),
      .takes_nchw_x = has(CONVSCOPE_TAKES_NCHW_X),
      .takes_nhwc = has(CONVSCOPE_TAKES_NHWC)};
  set_functions(slot, out, std::make_index_sequence<kSlots>());
  return out;
}

Conv2dPlugin conv2d_plugin(std::string_view file, const ConvscopePlugin& plugin) {
  Conv2dPlugin out{.source = plugin.source == nullptr ? "" : plugin.source};
  for (const ConvscopeConv2dAlgorithm& one :
       plugin_structs(file, "ConvscopeConv2dAlgorithm", plugin.conv2d_algorithms,
                      plugin.conv2d_algorithm_count, plugin.conv2d_algorithm_size,
                      offsetof(ConvscopeConv2dAlgorithm, supports))) {
    out.algorithms.push_back(conv2d_plugin_algorithm(one));
  }
  for (const ConvscopeConv2dLadder& one : plugin_structs(
           file, "ConvscopeConv2dLadder", plugin.conv2d_ladders, plugin.conv2d_ladder_count,
           plugin.conv2d_ladder_size, sizeof(ConvscopeConv2dLadder))) {
    out.ladders.push_back(ladder_of(one));
  }
  return out;
}

}  // namespace convscope
