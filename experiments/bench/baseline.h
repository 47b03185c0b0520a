// SPDX-License-Identifier: Apache-2.0
// baseline.h: the C interface between the benchmark and another library's convolutions.
//
// A baseline is a plug-in, libconvscope_baseline_<name>.so, stored next to libconvscope.so and
// opened when `--baseline <name>` is given. Only the plug-in links against the other library. The
// plug-in exports one function, convscope_baseline(), which returns a table of functions
// (ConvscopeBaseline, below).
//
// All tensors of this interface are row-major and on the host: x [N,C,H,W], w [K,C/G,R,S], y
// [N,K,P,Q]. The plug-in chooses its internal layouts and device. In f32 problems, all tensors are
// f32. In a quantised forward pass, w is s8, and x and y are u8, s8 or f32. Then
//
//   real = x_scale w_scales[k] sum + bias[k], at least 0 with relu
//   y    = clip(round(real / y_scale))
//
// where sum is the convolution of the quantised values. An f32 x is the image of a first layer. The
// baseline quantises it to s8 in every run: clip(round(x / x_scale)).
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONVSCOPE_BASELINE_ABI 2

enum ConvscopeBaselineDirection {
  CONVSCOPE_BASELINE_FORWARD = 0,         /* first = x,  second = w,  output = y  */
  CONVSCOPE_BASELINE_BACKWARD_DATA = 1,   /* first = dy, second = w,  output = dx */
  CONVSCOPE_BASELINE_BACKWARD_WEIGHT = 2, /* first = x,  second = dy, output = dw */
};

enum ConvscopeBaselineLayout {
  CONVSCOPE_BASELINE_OWN_LAYOUT = 0, /* run() gets its tensors in its preferred layout */
  CONVSCOPE_BASELINE_PLAIN = 1,      /* run() starts from and ends with row-major tensors */
};

enum ConvscopeBaselineType {
  CONVSCOPE_BASELINE_F32 = 0,
  CONVSCOPE_BASELINE_S8 = 1,
  CONVSCOPE_BASELINE_U8 = 2
};

typedef struct ConvscopeBaselineProblem {
  int64_t n, c, h, w, k, r, s, p, q;
  int64_t stride_h, stride_w;
  int64_t pad_top, pad_bottom, pad_left, pad_right;
  int64_t dilation_h, dilation_w; /* 1 = dense */
  int64_t groups;
  int32_t direction;              /* ConvscopeBaselineDirection */
  int32_t x_type, w_type, y_type; /* ConvscopeBaselineType; all f32, or w of s8 */
  int32_t relu;
} ConvscopeBaselineProblem;

/* The input values of a case. For f32 tensors only first and second are set; the rest is null. */
typedef struct ConvscopeBaselineInputs {
  const void* first;
  const void* second;
  const float* bias; /* [K] */
  const float* x_scale;
  const float* w_scales; /* [K] */
  const float* y_scale;  /* null where y is f32 */
} ConvscopeBaselineInputs;

typedef struct ConvscopeBaselineVariant {
  const char* algorithm; /* "direct", "winograd", "auto", ... */
  int32_t layout;        /* ConvscopeBaselineLayout */
  double error_growth;   /* |error| <= error_growth * eps * max conv(|x|,|w|) (+ half a step) */
} ConvscopeBaselineVariant;

typedef struct ConvscopeBaselineCase
    ConvscopeBaselineCase; /* one problem, prepared to be run often */

typedef struct ConvscopeBaseline {
  int32_t abi; /* CONVSCOPE_BASELINE_ABI */
  const char* name;
  const char* version;
  const char* device; /* "cpu" or "cuda" */
  int32_t variant_count;
  const ConvscopeBaselineVariant* variants;

  void (*set_threads)(int32_t threads);
  /* Returns null when the library has no such convolution, and writes a sentence to `reason`. */
  ConvscopeBaselineCase* (*create)(const ConvscopeBaselineProblem* problem, int32_t variant,
                                   const ConvscopeBaselineInputs* inputs, char* reason,
                                   size_t reason_bytes);
  /* Runs one convolution to its end. Returns 0 on success. */
  int32_t (*run)(ConvscopeBaselineCase* one);
  /* Reads the last result, row-major, in the output's type. Returns 0 on success. */
  int32_t (*read)(ConvscopeBaselineCase* one, void* output);
  /* Returns the library's name of the chosen kernel: "jit:avx512_core". */
  const char* (*implementation)(ConvscopeBaselineCase* one);
  size_t (*workspace_bytes)(ConvscopeBaselineCase* one);
  void (*destroy)(ConvscopeBaselineCase* one);
} ConvscopeBaseline;

/* The one exported symbol. */
const ConvscopeBaseline* convscope_baseline(void);

#ifdef __cplusplus
}
#endif
