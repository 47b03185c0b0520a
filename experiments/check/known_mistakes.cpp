// SPDX-License-Identifier: Apache-2.0
// known_mistakes.cpp: common mistakes in a convolution, each with its sentence.
#include <utility>

#include "experiments/check/wrong_loops.h"

namespace convscope {
namespace {

using L = Loops;
constexpr L::Index kFar = L::Index{1} << 20;  // larger than any index, for a range without limits

template <int kBlock>
void whole_blocks_of_outputs(L& l) {
  l.k.end -= l.z.k % kBlock;
}
template <int kBlock>
void whole_blocks_of_inputs(L& l) {
  l.c.end -= l.z.c_per_group() % kBlock;
}
template <int kBlock>
void whole_blocks_of_columns(L& l) {
  l.q.end -= l.z.q() % kBlock;
}

}  // namespace

const std::vector<KnownMistake>& known_mistakes() {
  static const std::vector<KnownMistake> mistakes = {
      // parameters of a problem that a loop may ignore
      {"a convolution whose dilation is 1", "the dilation seems to be ignored",
       [](L& l) { l.dilation_h = l.dilation_w = 1; }},
      {"a convolution whose dilation along the height is 1", "dilation_h seems to be ignored",
       [](L& l) { l.dilation_h = 1; }},
      {"a convolution whose dilation along the width is 1", "dilation_w seems to be ignored",
       [](L& l) { l.dilation_w = 1; }},
      {"a convolution whose two dilations are swapped",
       "dilation_h and dilation_w seem to be swapped",
       [](L& l) { std::swap(l.dilation_h, l.dilation_w); }},
      {"a convolution that uses dilation_h in both axes",
       "dilation_h seems to be used as dilation_w", [](L& l) { l.dilation_w = l.dilation_h; }},
      {"a convolution that uses dilation_w in both axes",
       "dilation_w seems to be used as dilation_h", [](L& l) { l.dilation_h = l.dilation_w; }},
      {"a convolution whose dilation is larger by one",
       "the dilation seems to be taken for the number of gaps between taps: 1 means none",
       [](L& l) { ++l.dilation_h, ++l.dilation_w; }},
      {"a convolution whose stride is 1", "the stride seems to be ignored",
       [](L& l) { l.stride_h = l.stride_w = 1; }},
      {"a convolution whose stride along the height is 1", "stride_h seems to be ignored",
       [](L& l) { l.stride_h = 1; }},
      {"a convolution whose stride along the width is 1", "stride_w seems to be ignored",
       [](L& l) { l.stride_w = 1; }},
      {"a convolution whose two strides are swapped", "stride_h and stride_w seem to be swapped",
       [](L& l) { std::swap(l.stride_h, l.stride_w); }},
      {"a convolution that uses stride_h in both axes", "stride_h seems to be used as stride_w",
       [](L& l) { l.stride_w = l.stride_h; }},
      {"a convolution that uses stride_w in both axes", "stride_w seems to be used as stride_h",
       [](L& l) { l.stride_h = l.stride_w; }},
      {"a convolution without padding", "the padding seems to be ignored",
       [](L& l) { l.pad_top = l.pad_left = 0; }},
      {"a convolution without padding at the top", "pad_top seems to be ignored",
       [](L& l) { l.pad_top = 0; }},
      {"a convolution without padding at the left", "pad_left seems to be ignored",
       [](L& l) { l.pad_left = 0; }},
      {"a convolution that uses pad_top at the left too", "pad_top seems to be used as pad_left",
       [](L& l) { l.pad_left = l.pad_top; }},
      {"a convolution that uses pad_left at the top too", "pad_left seems to be used as pad_top",
       [](L& l) { l.pad_top = l.pad_left; }},
      {"a convolution that uses pad_bottom at the top", "pad_bottom seems to be used as pad_top",
       [](L& l) { l.pad_top = l.z.pad_bottom; }},
      {"a convolution that uses pad_right at the left", "pad_right seems to be used as pad_left",
       [](L& l) { l.pad_left = l.z.pad_right; }},
      {"a convolution that uses pad_bottom and pad_right at the top and left",
       "the padding seems to be that of the other sides",
       [](L& l) { l.pad_top = l.z.pad_bottom, l.pad_left = l.z.pad_right; }},
      {"a convolution whose groups all read the channels of the first one",
       "the groups seem to be ignored: output channel k reads from channel k / (K/G) C/G on",
       [](L& l) { l.channels = L::Channels::first_group; }},
      {"a convolution of one group over all channels",
       "the groups seem to be ignored: each kernel sums over C/G channels, not over C",
       [](L& l) { l.channels = L::Channels::all, l.c.end = l.z.c; }},
      {"a convolution whose output channels take their groups in turn",
       "the group seems to be k mod G; it is k / (K/G)",
       [](L& l) { l.channels = L::Channels::interleaved; }},
      {"a convolution whose groups are counted by input channels",
       "the group seems to be k / (C/G); it is k / (K/G)",
       [](L& l) { l.channels = L::Channels::by_inputs; }},
      // the border
      {"a convolution that leaves out the first row of x",
       "the test for the border is off by one: h = 0 is inside the image",
       [](L& l) { l.h.begin = 1; }},
      {"a convolution that leaves out the first column of x",
       "the test for the border is off by one: column 0 is inside the image",
       [](L& l) { l.w.begin = 1; }},
      {"a convolution that leaves out the first row and column of x",
       "the test for the border is off by one: row 0 and column 0 are inside the image",
       [](L& l) { l.h.begin = l.w.begin = 1; }},
      {"a convolution that leaves out the last row of x",
       "the test for the border is off by one: h = H-1 is inside the image",
       [](L& l) { --l.h.end; }},
      {"a convolution that leaves out the last column of x",
       "the test for the border is off by one: column W-1 is inside the image",
       [](L& l) { --l.w.end; }},
      {"a convolution that leaves out the last row and column of x",
       "the test for the border is off by one: row H-1 and column W-1 are inside the image",
       [](L& l) { --l.h.end, --l.w.end; }},
      {"a convolution that reads one column past the end of each row of x",
       "the test for the border is off by one: column W is outside, and the value there is of the "
       "next row",
       [](L& l) { ++l.w.end, l.outside = L::Outside::memory; }},
      {"a convolution that reads one column before the start of each row of x",
       "the test for the border is off by one: column -1 is outside, and the value there is of the "
       "previous row",
       [](L& l) { --l.w.begin, l.outside = L::Outside::memory; }},
      {"a convolution that reads one row past the end of each plane of x",
       "the test for the border is off by one: row H is outside, and the values there are of the "
       "next channel",
       [](L& l) { ++l.h.end, l.outside = L::Outside::memory; }},
      {"a convolution that reads one row before the start of each plane of x",
       "the test for the border is off by one: row -1 is outside, and the values there are of the "
       "previous channel",
       [](L& l) { --l.h.begin, l.outside = L::Outside::memory; }},
      {"a convolution that reads a row and a column past the end of each plane of x",
       "the test for the border is off by one: row H and column W are outside the image",
       [](L& l) { ++l.h.end, ++l.w.end, l.outside = L::Outside::memory; }},
      {"a convolution that reads x without a test for the border",
       "padding is 0, but the memory next to the rows is read",
       [](L& l) {
         l.h = l.w = {-kFar, kFar}, l.outside = L::Outside::memory;
       }},
      {"a convolution that tests only the rows",
       "columns outside the image are 0, but the neighbouring row is read",
       [](L& l) {
         l.w = {-kFar, kFar}, l.outside = L::Outside::memory;
       }},
      {"a convolution that tests only the columns",
       "rows outside the image are 0, but the neighbouring channel is read",
       [](L& l) {
         l.h = {-kFar, kFar}, l.outside = L::Outside::memory;
       }},
      {"a convolution that repeats the border of x", "padding is 0, not the nearest pixel",
       [](L& l) { l.outside = L::Outside::nearest; }},
      {"a convolution whose padding is larger by one at the top and left",
       "the padding seems to be shifted by one", [](L& l) { ++l.pad_top, ++l.pad_left; }},
      {"a convolution whose padding is smaller by one at the top and left",
       "the padding seems to be shifted by one", [](L& l) { --l.pad_top, --l.pad_left; }},
      {"a convolution whose padding is larger by one at the top",
       "the rows seem to be shifted by one", [](L& l) { ++l.pad_top; }},
      {"a convolution whose padding is smaller by one at the top",
       "the rows seem to be shifted by one", [](L& l) { --l.pad_top; }},
      {"a convolution whose padding is larger by one at the left",
       "the columns seem to be shifted by one", [](L& l) { ++l.pad_left; }},
      {"a convolution whose padding is smaller by one at the left",
       "the columns seem to be shifted by one", [](L& l) { --l.pad_left; }},
      // the kernel
      {"a convolution whose kernel is flipped in both axes",
       "here a convolution does not flip w (as in every deep-learning library)",
       [](L& l) { l.flip_r = l.flip_s = true; }},
      {"a convolution whose kernel is upside down", "row r of w seems to be taken for R-1-r",
       [](L& l) { l.flip_r = true; }},
      {"a convolution whose kernel is mirrored", "column s of w seems to be taken for S-1-s",
       [](L& l) { l.flip_s = true; }},
      {"a convolution whose kernel is transposed", "r and s of w seem to be swapped",
       [](L& l) { l.swap_axes = true; }},
      {"a convolution that leaves out the last row of the kernel", "the loop over r ends too early",
       [](L& l) { --l.r.end; }},
      {"a convolution that leaves out the last column of the kernel",
       "the loop over s ends too early", [](L& l) { --l.s.end; }},
      {"a convolution that leaves out the first row of the kernel", "the loop over r begins at 1",
       [](L& l) { l.r.begin = 1; }},
      {"a convolution that leaves out the first column of the kernel",
       "the loop over s begins at 1", [](L& l) { l.s.begin = 1; }},
      {"a convolution with w [C,K,R,S]", "k and c of w seem to be swapped: w is [K,C/G,R,S]",
       [](L& l) { l.swap_channels = true; }},
      {"a convolution with w [K,R,S,C]", "w is [K,C/G,R,S], with the taps last",
       [](L& l) { l.w_order = L::Order::nhwc; }},
      // channels, images, outputs
      {"a convolution that leaves out the last input channel", "the loop over c ends too early",
       [](L& l) { --l.c.end; }},
      {"a convolution that leaves out the first input channel", "the loop over c begins at 1",
       [](L& l) { l.c.begin = 1; }},
      {"a convolution of only the first input channel", "the other channels are not added",
       [](L& l) { l.c.end = 1; }},
      {"a convolution of whole blocks of 4 input channels",
       "the channels after the last whole block are left out", whole_blocks_of_inputs<4>},
      {"a convolution of whole blocks of 8 input channels",
       "the channels after the last whole block are left out", whole_blocks_of_inputs<8>},
      {"a convolution of whole blocks of 16 input channels",
       "the channels after the last whole block are left out", whole_blocks_of_inputs<16>},
      {"a convolution of whole blocks of 4 output channels",
       "the channels after the last whole block are left out", whole_blocks_of_outputs<4>},
      {"a convolution of whole blocks of 8 output channels",
       "the channels after the last whole block are left out", whole_blocks_of_outputs<8>},
      {"a convolution of whole blocks of 16 output channels",
       "the channels after the last whole block are left out", whole_blocks_of_outputs<16>},
      {"a convolution that leaves out the last output channel", "the loop over k ends too early",
       [](L& l) { --l.k.end; }},
      {"a convolution that leaves out the last row of y", "the loop over p ends too early",
       [](L& l) { --l.p.end; }},
      {"a convolution that leaves out the last column of y", "the loop over q ends too early",
       [](L& l) { --l.q.end; }},
      {"a convolution of whole blocks of 4 columns of y",
       "the columns after the last whole block are left out", whole_blocks_of_columns<4>},
      {"a convolution of whole blocks of 8 columns of y",
       "the columns after the last whole block are left out", whole_blocks_of_columns<8>},
      {"a convolution of whole blocks of 16 columns of y",
       "the columns after the last whole block are left out", whole_blocks_of_columns<16>},
      {"a convolution of only the first image", "the other images are not computed",
       [](L& l) { l.n.end = 1; }},
      {"a convolution that leaves out the last image", "the loop over n ends too early",
       [](L& l) { --l.n.end; }},
      {"a convolution that reads the first image for all",
       "the offset of image n in x seems to be forgotten", [](L& l) { l.first_image = true; }},
      {"a convolution with y [N,P,Q,K]", "y is [N,K,P,Q], with the columns last",
       [](L& l) { l.y_order = L::Order::nhwc; }},
      {"a convolution with x [N,H,W,C]", "x is [N,C,H,W], with the columns last",
       [](L& l) { l.x_order = L::Order::nhwc; }},
      {"a convolution with x [N,H,W,C] and y [N,P,Q,K]", "images are [N,C,H,W] and [N,K,P,Q]",
       [](L& l) { l.x_order = l.y_order = L::Order::nhwc; }},
      // the initial value of a sum, and its factor
      {"a convolution without its bias", "the bias seems to be ignored",
       [](L& l) { l.start = L::Start::left_out; },
       "a gradient that is not added to the previous value of dw",
       "accumulate seems to be ignored"},
      {"a convolution that adds its bias twice", "the bias seems to be added in two places",
       [](L& l) { l.start = L::Start::twice; },
       "a gradient that is added to twice the previous value of dw",
       "the previous value of dw seems to be added in two places"},
      {"a convolution that adds b[0] to every channel", "the bias of channel k is b[k]",
       [](L& l) { l.start = L::Start::first_bias; }},
      {"a convolution with the other sign", "each product seems to be subtracted",
       [](L& l) { l.factor = -1; }},
      {"a convolution times 2", "each product seems to be added twice", [](L& l) { l.factor = 2; }},
      {"a convolution divided by the number of images",
       "gradients are sums over the batch, not means",
       [](L& l) { l.factor = 1.0 / static_cast<double>(l.z.n); }},
      {"the initial value (0, the bias or the previous dw)", "no product is added",
       [](L& l) { l.factor = 0; }},
  };
  return mistakes;
}

}  // namespace convscope
