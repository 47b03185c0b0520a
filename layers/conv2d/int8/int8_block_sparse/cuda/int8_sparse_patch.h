// SPDX-License-Identifier: Apache-2.0
// int8_sparse_patch.h: the part of an image that a tile of output pixels reads (its patch), and
// where the patch is in shared memory. The code is arithmetic for host and device.
//
// A tap moves all pixels of a tile by the same distance. So the offset of a word of x is a sum of
// two terms. The first term depends on the pixel. The second depends on tap and channels, and is
// stored in a list.
//
//   stride 2, 3 taps, 4 outputs    input      0 1 2 3 4 5 6 7 8
//                                  tap 0      x   x   x   x
//                                  tap 1        x   x   x   x
//                                  tap 2          x   x   x   x
//                                  slots      0 2 4 6 8 | 1 3 5 7 (9)     outputs side by side
//
// A slot is a position in the patch. It holds 16 bytes: 16 channels of a pixel. Eight pixels fill
// all 32 banks of shared memory if their slots differ modulo 8. This holds for eight neighbours in
// a row of the tile, because they have consecutive slots. If eight pixels begin in one row or image
// and end in the next, unused slots are inserted between the two, so that it holds there, too.
#pragma once

#include <cstdint>
#include <numeric>

#include "framework/int_math.h"

namespace convscope::int8 {

// One dimension of a patch. A slot is a row or column of the image that some tap of some output of
// the tile reads. Slots with the same remainder modulo the stride are adjacent.
struct PatchLine {
  int in_size = 1, outputs = 1, taps = 1, stride = 1, pad = 0, apart = 1;  // of the layer
  int tile = 1;                                                            // outputs of the tile
  int period = 1;  // taps after which the remainders repeat
  int remainders = 1;
  int length = 1;  // slots with the same remainder

  constexpr PatchLine() = default;
  constexpr PatchLine(int in, int out, int kernel, int step, int padding, int dilation,
                      int outputs_)
      : in_size(in),
        outputs(out),
        taps(kernel),
        stride(step),
        pad(padding),
        apart(dilation),
        tile(outputs_),
        period(step / std::gcd(step, dilation)),
        remainders(period < kernel ? period : kernel),
        length(outputs_ + (kernel - 1) * dilation / step) {}

  constexpr int slots() const { return remainders * length; }
  // Returns the slot of a tap: output i of the tile reads slot i + slot_of_tap(t).
  constexpr int slot_of_tap(int tap) const { return tap % period * length + tap * apart / stride; }
  // Returns the row or column of the image that a slot holds, for a tile that begins at output
  // `first`. That row or column may be outside of the image.
  constexpr int input(int first, int slot) const {
    const int remainder = slot / length;
    return (first + slot - remainder * length) * stride - pad + remainder * apart % stride;
  }
};

// Parameters of a layer for the kernel: a convolution, and the distances of its pixels, in pieces
// of 16 channels. For a matrix product (1x1, or a kernel that covers the image), all pixels of an
// image or all images form one row.
struct SparseView {
  int images = 1, pieces = 1;  // pieces of 16 input channels
  int h = 1, w = 1, p = 1, q = 1, taps_h = 1, taps_w = 1;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, apart_h = 1, apart_w = 1;
  int x_image = 0, x_row = 0, x_column = 0, x_piece = 0;  // distances
  int y_image = 0, y_pixel = 0, y_block = 0;
  bool merged = false;  // the taps are separate pieces
};

constexpr int to_remainder(int at_least, int of) {
  return at_least + ((of - at_least) % 8 + 8) % 8;
}

// A tile of output pixels, in the order image, row, column, and its patch.
struct Patch {
  int images = 1, rows = 1, columns = 1;
  PatchLine high, wide;
  int pitch = 1;        // slots from one row of the patch to the next
  int image_slots = 1;  // slots from one image to the next
  int slots = 1;        // slots for one piece of 16 channels
  // If true, pixel i of the tile has slot i, so that its offset is known at compile time. There are
  // slots for all pixels that a tile may have, even if some sums are not used.
  bool straight = false;

  constexpr int pixels() const { return images * rows * columns; }
  constexpr int used() const { return images * high.slots() * wide.slots(); }  // slots to copy
  constexpr int slot_of_tap(int r, int s) const {
    return high.slot_of_tap(r) * pitch + wide.slot_of_tap(s);
  }
};

// Returns a patch for a tile of at most `most` pixels: several whole images, rows of one image, or
// a part of a row. The tiles of a layer have nearly equal sizes.
inline Patch patch_of(const SparseView& z, int most) {
  const auto share = [](int all, int largest) { return ceil_div(all, ceil_div(all, largest)); };
  Patch out;
  const std::int64_t area = std::int64_t{z.p} * z.q;
  if (2 * area <= most) {
    out.images = share(z.images, most / static_cast<int>(area));
    out.rows = z.p;
    out.columns = z.q;
  } else if (z.q <= most) {
    out.rows = share(z.p, most / z.q);
    out.columns = z.q;
  } else {
    out.columns = share(z.q, most);
  }
  out.high = PatchLine(z.h, z.p, z.taps_h, z.stride_h, z.pad_h, z.apart_h, out.rows);
  out.wide = PatchLine(z.w, z.q, z.taps_w, z.stride_w, z.pad_w, z.apart_w, out.columns);
  out.pitch = out.wide.slots();
  if (out.rows > 1 && out.columns % 8 != 0) out.pitch = to_remainder(out.pitch, out.columns);
  out.image_slots = out.high.slots() * out.pitch;
  if (out.images > 1 && out.rows * out.columns % 8 != 0) {
    out.image_slots = to_remainder(out.image_slots, out.rows * out.columns);
  }
  out.slots = out.images * out.image_slots;
  out.straight = (out.rows == 1 || out.pitch == out.columns) &&
                 (out.images == 1 || out.image_slots == out.rows * out.columns);
  if (out.straight) out.slots += most - out.pixels();
  return out;
}

}  // namespace convscope::int8
