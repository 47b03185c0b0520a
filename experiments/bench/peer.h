// SPDX-License-Identifier: Apache-2.0
// peer.h: the C interface between the benchmark and another library's convolutions.
//
// A peer is a plug-in, libconvscope_peer_<name>.so, that lies beside libconvscope.so and is opened
// when `--peer <name>` asks for it. It links against the other library; nothing else of the project
// does. It exports one function, convscope_peer(), that returns a table like the one below.
//
// All tensors that pass here are f32, row-major: x [N,C,H,W], w [K,C/G,R,S], y [N,K,P,Q], on the
// host; what a peer keeps inside, in which layout and on which device, is its own business.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONVSCOPE_PEER_ABI 1

enum ConvscopePeerDirection {
  CONVSCOPE_PEER_FORWARD = 0,         /* first = x,  second = w,  output = y  */
  CONVSCOPE_PEER_BACKWARD_DATA = 1,   /* first = dy, second = w,  output = dx */
  CONVSCOPE_PEER_BACKWARD_WEIGHT = 2, /* first = x,  second = dy, output = dw */
};

enum ConvscopePeerLayout {
  CONVSCOPE_PEER_OWN_LAYOUT = 0, /* run() finds its tensors in the layout that it likes best */
  CONVSCOPE_PEER_PLAIN = 1,      /* run() starts from and ends with row-major tensors */
};

typedef struct ConvscopePeerProblem {
  int64_t n, c, h, w, k, r, s, p, q;
  int64_t stride_h, stride_w;
  int64_t pad_top, pad_bottom, pad_left, pad_right;
  int64_t dilation_h, dilation_w; /* 1 = dense */
  int64_t groups;
  int32_t direction; /* ConvscopePeerDirection */
} ConvscopePeerProblem;

typedef struct ConvscopePeerVariant {
  const char* algorithm; /* "direct", "winograd", "auto", ... */
  int32_t layout;        /* ConvscopePeerLayout */
  double error_growth;   /* |error| <= error_growth * eps * max conv(|x|,|w|) */
} ConvscopePeerVariant;

typedef struct ConvscopePeerCase ConvscopePeerCase; /* one problem, prepared to be run often */

typedef struct ConvscopePeer {
  int32_t abi; /* CONVSCOPE_PEER_ABI */
  const char* name;
  const char* version;
  const char* device; /* "cpu" or "cuda" */
  int32_t variant_count;
  const ConvscopePeerVariant* variants;

  void (*set_threads)(int32_t threads);
  /* Null when the peer has no such convolution; `reason` then holds a sentence. */
  ConvscopePeerCase* (*create)(const ConvscopePeerProblem* problem, int32_t variant,
                               const float* first, const float* second, char* reason,
                               size_t reason_bytes);
  /* One convolution, finished when it returns. 0 on success. */
  int32_t (*run)(ConvscopePeerCase* one);
  /* The result of the last run, row-major. 0 on success. */
  int32_t (*read)(ConvscopePeerCase* one, float* output);
  /* What the library calls the kernel that it chose: "jit:avx512_core". */
  const char* (*implementation)(ConvscopePeerCase* one);
  size_t (*workspace_bytes)(ConvscopePeerCase* one);
  void (*destroy)(ConvscopePeerCase* one);
} ConvscopePeer;

/* The one exported symbol. */
const ConvscopePeer* convscope_peer(void);

#ifdef __cplusplus
}
#endif
