// SPDX-License-Identifier: Apache-2.0
// plugin.h: the C interface of plug-ins.
//
// A plug-in is a shared library with custom algorithms, built outside of the repository, in C or
// C++. It needs this header and nothing else of convscope:
//
//   static void forward(const ConvscopeConv2dCall* call) { ... }
//   static const ConvscopeConv2dAlgorithm kAlgorithms[] = {
//       {.name = "mine", .idea = "...", .error_growth = 8, .forward = forward}};
//   CONVSCOPE_PLUGIN(kAlgorithms)
//
// `convscope new algorithm NAME` writes a complete source with its CMake file. Plug-ins run on the
// CPU. A function of a C++ plug-in may throw a std::exception.
//
// Changes of this header. A new member is appended to its struct, and 0 must be a good default. A
// plug-in that was built before has a smaller size, and its missing members are 0. Any other change
// (also of ConvscopeScales and ConvscopeRung, which are inside of other structs) raises
// CONVSCOPE_PLUGIN_VERSION: plug-ins of another version are refused.
// tests/layers/plugin/plugin_test.cpp checks the layout.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Members without a value are 0, so a plug-in states only what differs from the default.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#ifdef __cplusplus
extern "C" {
#endif

// The first members of ConvscopePlugin have these values and the same offsets in every version.
#define CONVSCOPE_PLUGIN_MAGIC "convscope plug-in, facts behind"
#define CONVSCOPE_PLUGIN_VERSION 7

enum ConvscopeDevice { CONVSCOPE_CPU = 0, CONVSCOPE_CUDA = 1 };
enum ConvscopeDirection {
  CONVSCOPE_FORWARD = 0,
  CONVSCOPE_BACKWARD_DATA = 1,
  CONVSCOPE_BACKWARD_WEIGHT = 2
};
enum ConvscopeType {
  CONVSCOPE_F32 = 0,
  CONVSCOPE_F64 = 1,
  CONVSCOPE_F16 = 2,
  CONVSCOPE_BF16 = 3,
  CONVSCOPE_I32 = 4,
  CONVSCOPE_I8 = 5,
  CONVSCOPE_U8 = 6
};
enum ConvscopeLayout {
  CONVSCOPE_NCHW = 0,
  CONVSCOPE_NCHW16C = 1,  // [N,C/16,H,W,16], C rounded up to 16
  CONVSCOPE_NHWC = 2      // C rounded up to 8
};

// What an algorithm promises and accepts. Without a CONVSCOPE_TAKES_... flag, it is asked only
// about f32 problems with dense weights in NCHW.
enum ConvscopeFlag {
  CONVSCOPE_AUTO_OK = 1,            // `auto` and `measure` may choose it
  CONVSCOPE_ONE_CHAIN = 2,          // each sum is one chain: term after term
  CONVSCOPE_EXACT_ON_INTEGERS = 4,  // bit for bit, while all sums stay below 2^24
  CONVSCOPE_NOT_DETERMINISTIC = 8,  // other bits on another run or with other threads
  CONVSCOPE_FUSES_EPILOGUE = 16,    // forward applies residual, relu and most itself
  CONVSCOPE_TAKES_TYPES = 32,       // other types than f32
  CONVSCOPE_TAKES_SPARSE_WEIGHTS = 64,
  CONVSCOPE_TAKES_NCHW16C = 128,
  CONVSCOPE_TAKES_NCHW_X = 256,  // x in NCHW, y and dy in NCHW16c; not asked about dx
  CONVSCOPE_TAKES_NHWC = 512
};

// y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of w[k,c,r,s] *
//              x[n, g C/G + c, p stride_h - pad_top + r dilation_h, q stride_w - pad_left +
//              s dilation_w], g = k / (K/G), where x outside of the image is 0.
typedef struct ConvscopeConv2dProblem {
  int64_t n, c, h, w;  // x [N,C,H,W]
  int64_t k, r, s;     // w [K,C/G,R,S]
  int64_t p, q;        // y [N,K,P,Q]
  int64_t stride_h, stride_w;
  int64_t pad_top, pad_bottom, pad_left, pad_right;
  int64_t dilation_h, dilation_w;
  int64_t groups;
  int32_t x_type, w_type, accumulator_type, y_type;  // ConvscopeType
  int32_t x_layout, y_layout;                        // ConvscopeLayout, also of dx and dy
  int32_t is_sparse;                                 // w is block-sparse
  int64_t block_rows, block_columns, blocks;         // of block-sparse w
} ConvscopeConv2dProblem;

// The numbers that integers represent: real = scale * (stored - zero_point). NULL for floats.
typedef struct ConvscopeScales {
  const double* scales;        // [1], or [K] when per_channel
  const int32_t* zero_points;  // as many; NULL: 0
  int32_t per_channel;
  int32_t low, high;  // y is clipped to this range
} ConvscopeScales;

// One call of an algorithm. Arrays that the direction does not use are NULL. An array with another
// type than f32 in the problem is cast to float.
typedef struct ConvscopeConv2dCall {
  const ConvscopeConv2dProblem* problem;
  int32_t direction;   // ConvscopeDirection
  int32_t accumulate;  // backward_weight: add to dw; 0: assign dw
  const float* x;
  const float* w;
  const float* b;  // [K]; NULL: no bias; f64 where w is integers
  const float* dy;
  float* y;   // assigned
  float* dx;  // assigned
  float* dw;
  void* workspace;  // workspace_bytes() bytes with any content, 64-byte aligned
  void* prepared;   // prepared_bytes() bytes, 64-byte aligned; prepare_weights() assigns them
  // With CONVSCOPE_FUSES_EPILOGUE: y = min(max(sum + b + residual, 0), most); both steps are
  // optional.
  const void* residual;  // of y's shape; NULL: none
  int32_t residual_type;
  int32_t relu;
  float most;
  ConvscopeScales x_scales, w_scales, y_scales, residual_scales;
  // Block-sparse w: the blocks of block row i are row_begin[i] .. row_begin[i + 1].
  const int32_t* row_begin;  // [rows / block_rows + 1]
  const int32_t* columns;    // [blocks]
} ConvscopeConv2dCall;

// What a call costs; `auto` compares it. It begins with the values of a textbook loop.
typedef struct ConvscopeCost {
  double flops;
  double bytes;         // moved to and from memory
  double peak_share;    // the part of the peak that the inner loop reaches, at most 1
  double prepare_part;  // the part of the time that prepare_weights() takes
} ConvscopeCost;

typedef struct ConvscopeConv2dAlgorithm {
  const char* name;   // at most 40 lower-case letters, digits and _
  const char* idea;   // one line
  const char* paper;  // author, year, title, DOI; NULL: none
  int32_t device;     // ConvscopeDevice
  uint32_t flags;     // ConvscopeFlag
  // |error| <= error_growth * eps * max(conv(|x|,|w|)). With CONVSCOPE_ONE_CHAIN it grows with the
  // square root of the number of terms beyond 160.
  double error_growth;
  // NULL: this direction is not offered.
  void (*forward)(const ConvscopeConv2dCall* call);
  void (*backward_data)(const ConvscopeConv2dCall* call);
  void (*backward_weight)(const ConvscopeConv2dCall* call);
  // All functions below are optional.
  // Returns 1, or 0 and writes why not: "expects stride 1, got 2".
  int32_t (*supports)(const ConvscopeConv2dProblem* problem, int32_t direction, char* reason,
                      size_t reason_bytes);
  void (*cost)(const ConvscopeConv2dProblem* problem, int32_t direction, ConvscopeCost* cost);
  size_t (*workspace_bytes)(const ConvscopeConv2dProblem* problem, int32_t direction);
  // Weights that are packed or transformed once for many calls: prepare_weights() reads call->w
  // and assigns call->prepared. The calls then read call->prepared, and call->w may be NULL.
  size_t (*prepared_bytes)(const ConvscopeConv2dProblem* problem, int32_t direction);
  void (*prepare_weights)(const ConvscopeConv2dCall* call);
} ConvscopeConv2dAlgorithm;

// A step of a ladder: an algorithm, and what it adds to the step below.
typedef struct ConvscopeRung {
  const char* algorithm;
  const char* isa;  // "scalar", "vector4", "avx2", "avx512"; NULL: the best of this CPU
  const char* sentence;
  int32_t threads;            // 0: all threads
  int32_t prepare_each_call;  // prepares the weights in every call
} ConvscopeRung;

#define CONVSCOPE_MAX_RUNGS 16
typedef struct ConvscopeConv2dLadder {
  const char* name;
  const char* problem;                       // "n=1,c=64,h=28,w=28,k=64,r=3,s=3,pad=1"
  ConvscopeRung rungs[CONVSCOPE_MAX_RUNGS];  // the simplest first; ends where algorithm is NULL
} ConvscopeConv2dLadder;

// The size of the structs that the program passes to functions of convolution algorithms.
#define CONVSCOPE_CONV2D_ARGUMENTS_SIZE \
  (sizeof(ConvscopeConv2dProblem) + sizeof(ConvscopeConv2dCall) + sizeof(ConvscopeCost))

typedef struct ConvscopePlugin {
  char magic[32];                  // CONVSCOPE_PLUGIN_MAGIC
  uint32_t version;                // CONVSCOPE_PLUGIN_VERSION
  uint32_t size;                   // of this struct
  uint32_t conv2d_arguments_size;  // CONVSCOPE_CONV2D_ARGUMENTS_SIZE
  const char* source;              // the source file
  const ConvscopeConv2dAlgorithm* conv2d_algorithms;
  uint32_t conv2d_algorithm_count;
  uint32_t conv2d_algorithm_size;  // of one struct
  const ConvscopeConv2dLadder* conv2d_ladders;
  uint32_t conv2d_ladder_count;
  uint32_t conv2d_ladder_size;
  // The algorithms of another operator are added here.
} ConvscopePlugin;

// Describes a plug-in: the symbol that its file exports.
extern const ConvscopePlugin convscope_plugin __attribute__((visibility("default")));

#ifdef __cplusplus
}
#endif

#define CONVSCOPE_PLUGIN_LIST(array) (array), sizeof(array) / sizeof((array)[0]), sizeof((array)[0])
#define CONVSCOPE_PLUGIN_WITH_LISTS(...)                                     \
  const ConvscopePlugin convscope_plugin = {CONVSCOPE_PLUGIN_MAGIC,          \
                                            CONVSCOPE_PLUGIN_VERSION,        \
                                            sizeof(ConvscopePlugin),         \
                                            CONVSCOPE_CONV2D_ARGUMENTS_SIZE, \
                                            __FILE__,                        \
                                            __VA_ARGS__};

// The last line of a plug-in's source names its arrays.
#define CONVSCOPE_PLUGIN(algorithms) \
  CONVSCOPE_PLUGIN_WITH_LISTS(CONVSCOPE_PLUGIN_LIST(algorithms), NULL, 0, 0)
#define CONVSCOPE_PLUGIN_WITH_LADDERS(algorithms, ladders) \
  CONVSCOPE_PLUGIN_WITH_LISTS(CONVSCOPE_PLUGIN_LIST(algorithms), CONVSCOPE_PLUGIN_LIST(ladders))
