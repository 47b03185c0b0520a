// SPDX-License-Identifier: Apache-2.0
// lenet5.cpp: the network of LeCun et al. (1998) in its modern variant.
//
// Shapes      x [N,C,H,W] -> logits [N,classes];  for MNIST, kernel 5:
//             c1 [N,6,24,24]  p1 [N,6,12,12]  c2 [N,16,8,8]  p2 [N,16,4,4]  f3 [N,120]  f4 [N,84]
// Layers      c1 r1 p1 c2 r2 p2 flatten f3 r3 f4 r4 f5; parameters are c1.weight, c1.bias, ...
// Parameters  kernel_size  of both convolutions: 3, 5 (default) or 7 pixels
//             padding      zeros around the image at c1, pixels, default 0
//             activation   relu (default) or tanh
//             pool         max (default) or avg, 2x2 at stride 2
//             widths       outputs of c1, c2, f3, f4; default [6, 16, 120, 84]
// Differs     from 1998: every channel of c2 sees all of p1, relu and max instead of scaled tanh
//             and trained subsampling, softmax instead of radial basis functions
// Paper       Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-Based Learning Applied to
//             Document Recognition, Proc. IEEE 86(11), 1998, doi 10.1109/5.726791
#include "layers/layer_types.h"

namespace convscope {
namespace {

std::vector<OptionField> fields() {
  return {{.name = "kernel_size",
           .type = OptionType::integer,
           .default_value = std::int64_t{5},
           .doc = "kernel size of both convolutions: 3, 5 or 7 pixels",
           .min = 3,
           .max = 7},
          {.name = "padding",
           .type = OptionType::integer,
           .default_value = std::int64_t{0},
           .doc = "padding of the first convolution, in pixels",
           .min = 0,
           .max = 1024},
          {.name = "activation",
           .type = OptionType::text,
           .default_value = std::string("relu"),
           .doc = "the activation between layers",
           .choices = {"relu", "tanh"}},
          {.name = "pool",
           .type = OptionType::text,
           .default_value = std::string("max"),
           .doc = "kind of the 2x2 pooling",
           .choices = {"max", "avg"}},
          {.name = "widths",
           .type = OptionType::integers,
           .default_value = std::vector<std::int64_t>{6, 16, 120, 84},
           .doc = "outputs of c1, c2, f3 and f4",
           .min = 1,
           .max = 1 << 20}};
}

void check_image(const Shape& input, std::int64_t kernel, std::int64_t padding) {
  CONVSCOPE_CHECK(input.rank() == 4 && input[1] >= 1, "lenet5", "expected images [N,C,H,W], got ",
                  input);
  // p2 needs one pixel: ((size + 2 padding - kernel + 1) / 2 - kernel + 1) / 2 >= 1.
  const std::int64_t least = 2 * (kernel + 1) + kernel - 1 - 2 * padding;
  for (int axis = 2; axis < 4; ++axis) {
    CONVSCOPE_CHECK(input[axis] >= least, "lenet5", "expected images of at least ", least, "x",
                    least, " pixels because kernel_size is ", kernel, " and padding is ", padding,
                    ", got ", input[2], "x", input[3]);
  }
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, int classes,
                              LayerContext& context) {
  const std::int64_t kernel = options.integer("kernel_size");
  const std::int64_t padding = options.integer("padding");
  if (kernel % 2 == 0) {
    fail(ErrorKind::kConfig, "lenet5", cat("expected a kernel_size of 3, 5 or 7, got ", kernel));
  }
  CONVSCOPE_CHECK(classes >= 1, "lenet5", "expected at least one class, got ", classes);
  const std::vector<std::int64_t>& widths = options.integers("widths");
  if (widths.size() != 4) {
    fail(ErrorKind::kConfig, "lenet5",
         cat("expected four widths, of c1, c2, f3 and f4, got ", to_text(options.get("widths"))));
  }
  check_image(input, kernel, padding);

  const auto conv = [&](const char* name, std::int64_t channels, std::int64_t pad) {
    LayerSpec spec{.type = "conv2d", .name = name, .options = {}};
    spec.options.set("out_channels", channels);
    spec.options.set("kernel_size", kernel);
    if (pad > 0) spec.options.set("padding", pad);
    return spec;
  };
  const auto activation = [&](const char* name) {
    return LayerSpec{.type = options.text("activation"), .name = name, .options = {}};
  };
  const auto pool = [&](const char* name) {
    LayerSpec spec{.type = options.text("pool") + "_pool2d", .name = name, .options = {}};
    spec.options.set("kernel_size", std::int64_t{2});
    return spec;
  };
  const auto dense = [&](const char* name, std::int64_t outputs) {
    LayerSpec spec{.type = "linear", .name = name, .options = {}};
    spec.options.set("out_features", outputs);
    return spec;
  };
  return build_layers({conv("c1", widths[0], padding),
                       activation("r1"),
                       pool("p1"),
                       conv("c2", widths[1], 0),
                       activation("r2"),
                       pool("p2"),
                       {.type = "flatten", .name = "flatten", .options = {}},
                       dense("f3", widths[2]),
                       activation("r3"),
                       dense("f4", widths[3]),
                       activation("r4"),
                       dense("f5", classes)},
                      input, context, "lenet5");
}

}  // namespace

CONVSCOPE_REGISTER_MODEL("lenet5",
                         {.doc = "LeNet-5: two convolutions with pooling, three linear layers",
                          .fields = fields(),
                          .build = build})

}  // namespace convscope
