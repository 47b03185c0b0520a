// SPDX-License-Identifier: Apache-2.0
// c_plugin.c: a plug-in in C: a convolution with a kernel of 1x1.
#include <stdio.h>

#include "layers/plugin/plugin.h"

static int32_t supports(const ConvscopeConv2dProblem* z, int32_t direction, char* reason,
                        size_t reason_bytes) {
  (void)direction;
  const int is_1x1 = z->r == 1 && z->s == 1 && z->p == z->h && z->q == z->w && z->pad_top == 0 &&
                     z->pad_left == 0 && z->groups == 1;
  if (!is_1x1) snprintf(reason, reason_bytes, "expects a kernel of 1x1 without stride or padding");
  return is_1x1;
}

static void forward(const ConvscopeConv2dCall* call) {
  const ConvscopeConv2dProblem* z = call->problem;
  const int64_t pixels = z->h * z->w;
  for (int64_t i = 0; i < z->n * z->k * pixels; ++i) {
    const int64_t pixel = i % pixels, k = i / pixels % z->k, n = i / pixels / z->k;
    float sum = call->b == NULL ? 0 : call->b[k];
    for (int64_t c = 0; c < z->c; ++c) {
      sum += call->w[k * z->c + c] * call->x[(n * z->c + c) * pixels + pixel];
    }
    call->y[i] = sum;
  }
}

static const ConvscopeConv2dAlgorithm kAlgorithms[] = {
    {.name = "plain_c",
     .idea = "a kernel of 1x1 in C",
     .flags = CONVSCOPE_ONE_CHAIN | CONVSCOPE_EXACT_ON_INTEGERS,
     .error_growth = 8,
     .forward = forward,
     .supports = supports}};
CONVSCOPE_PLUGIN(kAlgorithms)
