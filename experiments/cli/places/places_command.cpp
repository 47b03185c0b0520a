// SPDX-License-Identifier: Apache-2.0
// places_command.cpp: `convscope places`: a figure of where a deformable convolution of a trained
// network samples test images.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/config/build.h"
#include "experiments/report/chart/figure.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/user_words.h"
#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/trainer.h"
#include "framework/io/atomic_file.h"
#include "framework/io/output_place.h"
#include "layers/deform_conv2d/deform_conv2d.h"
#include "layers/sequential.h"

namespace convscope {
namespace {

struct PlacesArguments {
  std::string run, layer, output = "places.svg", weights = "last";
  int images = 8;
};

struct Found {
  std::size_t index;
  std::string name;
  DeformConv2d* layer;
};

// Returns the deformable layers of a network that is one list (`layers:`).
std::vector<Found> deformable_layers(Module& model) {
  std::vector<Found> out;
  const auto* const list = dynamic_cast<Sequential*>(&model);
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    auto* const layer = dynamic_cast<DeformConv2d*>(&list->layer(i));
    if (layer == nullptr) continue;
    for (const NamedModule& part : model.modules()) {
      if (part.module == layer) out.push_back({i, part.name, layer});
    }
  }
  return out;
}

Found layer_named(Module& model, const std::string& name) {
  const std::vector<Found> all = deformable_layers(model);
  std::vector<std::string> names;
  for (const Found& one : all) names.push_back(one.name);
  if (all.empty()) {
    fail(ErrorKind::kConfig, "places",
         "expected a network with a layer of type deform_conv2d in its list 'layers', because such "
         "layers choose where to read, got none; the config deform_digits has such a network");
  }
  if (name.empty()) return all.back();
  const auto found = std::ranges::find(all, name, &Found::name);
  if (found != all.end()) return *found;
  fail(ErrorKind::kConfig, "places",
       cat("expected --layer ", join(names, " or "), ", got '", name, "'",
           did_you_mean(name, names)));
}

// Returns indices of `data`: the first image of class 0, of class 1 and so on, then the second
// image of each class.
std::vector<std::int64_t> one_of_each_class(const Dataset& data, int count) {
  std::vector<std::vector<std::int64_t>> by_class(static_cast<std::size_t>(data.classes));
  for (std::int64_t i = 0; i < data.size(); ++i) {
    by_class[static_cast<std::size_t>(data.labels.data<std::int32_t>()[i])].push_back(i);
  }
  std::vector<std::int64_t> out;
  for (std::size_t round = 0; out.size() < static_cast<std::size_t>(count); ++round) {
    const std::size_t before = out.size();
    for (const auto& images : by_class) {
      if (round < images.size() && out.size() < static_cast<std::size_t>(count)) {
        out.push_back(images[round]);
      }
    }
    if (out.size() == before) break;
  }
  return out;
}

// Returns the grey of each pixel of image n, the mean of its channels: 0 is drawn white, 1 black.
std::vector<double> shades_of(const Tensor& images, std::int64_t n) {
  const std::int64_t channels = images.dim(1), pixels = images.dim(2) * images.dim(3);
  const std::uint8_t* const from = images.data<std::uint8_t>() + n * channels * pixels;
  std::vector<double> out(static_cast<std::size_t>(pixels));
  for (std::int64_t i = 0; i < pixels; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) {
      out[static_cast<std::size_t>(i)] +=
          from[c * pixels + i] / (255.0 * static_cast<double>(channels));
    }
  }
  return out;
}

struct Point {
  double h, w;
};

// Returns the mean position of the ink (pixels with a large value, drawn dark) in an image.
Point centre_of(const std::vector<double>& shades, std::int64_t width) {
  double sum = 1e-9, h = 0, w = 0;
  for (std::size_t i = 0; i < shades.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    sum += shades[i];
    h += shades[i] * static_cast<double>(at / width);
    w += shades[i] * static_cast<double>(at % width);
  }
  return {h / sum, w / sum};
}

// The sample positions of the output pixel whose receptive field is centred on the ink.
class Samples {
 public:
  Samples(const DeformConv2dProblem& problem, const Shape& image)
      : z_(problem),
        scale_h_(static_cast<double>(image[2]) / static_cast<double>(problem.h)),
        scale_w_(static_cast<double>(image[3]) / static_cast<double>(problem.w)) {}

  std::vector<ImagePanel::Dot> dots(const Tensor& offset, const Tensor& mask, std::int64_t n,
                                    Point centre) const {
    const std::int64_t p =
        output_at(centre.h / scale_h_, z_.pad_top, z_.dilation_h * (z_.r - 1), z_.stride_h, z_.p());
    const std::int64_t q = output_at(centre.w / scale_w_, z_.pad_left, z_.dilation_w * (z_.s - 1),
                                     z_.stride_w, z_.q());
    std::vector<ImagePanel::Dot> out;
    for (std::int64_t j = 0; j < z_.offset_groups * z_.taps(); ++j) {
      const std::int64_t r = j % z_.taps() / z_.s, s = j % z_.s;
      const auto at = [&](const Tensor& t, std::int64_t channel) {
        return t.at(((n * t.dim(1) + channel) * z_.p() + p) * z_.q() + q);
      };
      const auto v = static_cast<double>(p * z_.stride_h - z_.pad_top + r * z_.dilation_h);
      const auto u = static_cast<double>(q * z_.stride_w - z_.pad_left + s * z_.dilation_w);
      const double dv = at(offset, 2 * j), du = at(offset, 2 * j + 1);
      const double factor = mask.defined() ? at(mask, j) : 1.0;
      out.push_back({.x = in_image(u + du, scale_w_),
                     .y = in_image(v + dv, scale_h_),
                     .from_x = in_image(u, scale_w_),
                     .from_y = in_image(v, scale_h_),
                     .area = factor,
                     .title = fmt::format("tap {},{}: offset {:.2f},{:.2f}, mask {:.2f}", r, s, dv,
                                          du, factor)});
    }
    return out;
  }

 private:
  static std::int64_t output_at(double pixel, std::int64_t pad, std::int64_t reach,
                                std::int64_t stride, std::int64_t count) {
    const double at = (pixel + static_cast<double>(pad) - static_cast<double>(reach) / 2) /
                      static_cast<double>(stride);
    return std::clamp<std::int64_t>(std::llround(at), 0, count - 1);
  }
  // Returns the centre of the image area that a pixel of the layer's input covers.
  static double in_image(double pixel, double scale) { return (pixel + 0.5) * scale - 0.5; }

  DeformConv2dProblem z_;
  double scale_h_, scale_w_;
};

Figure figure_of(const PlacesArguments& arguments, const ExperimentConfig& config, Module& model,
                 const Dataset& data) {
  const Found found = layer_named(model, arguments.layer);
  if (data.points != nullptr) {
    fail(ErrorKind::kConfig, "places",
         cat("expected a data set of images to draw on, got the points of ", data.name));
  }
  if (data.label_shape().rank() > 0) {
    fail(ErrorKind::kConfig, "places",
         cat("expected a data set with one class for each image, because the images are chosen by "
             "their classes, got ",
             data.name, ", which has a class for each pixel"));
  }
  const Dataset some = subset(data, one_of_each_class(data, arguments.images));
  Loader loader(some, {.batch_size = some.size(), .shuffle = false, .prefetch = false});
  loader.start_epoch(0);
  Batch batch;
  loader.next(batch);
  const NoGrad no_grad;
  model.eval();
  auto& list = dynamic_cast<Sequential&>(model);
  Variable x(batch.x.to(config.device));
  for (std::size_t i = 0; i < found.index; ++i) x = list.layer(i).forward(x);
  const DeformConv2d::Places places = found.layer->places(x);
  const Samples samples(found.layer->problem(x.shape()), batch.x.shape());
  const Tensor offset = places.offset.value().to(Device{});
  const Tensor mask = places.mask.defined() ? places.mask.value().to(Device{}) : Tensor();

  Figure figure{
      .title = cat("Where ", found.name, " reads, ", config.name),
      .subtitle = cat("Sampling positions of one output pixel at the centre of the ink, on ",
                      some.size(), " test images; seed ", config.seed),
      .columns = 4};
  figure.data.push_back({"image", "class", "tap", "row", "column", "mask"});
  for (std::int64_t n = 0; n < some.size(); ++n) {
    const auto label = static_cast<std::size_t>(some.labels.data<std::int32_t>()[n]);
    const std::string name =
        label < some.class_names.size() ? some.class_names[label] : std::to_string(label);
    ImagePanel panel{.title = name,
                     .rows = static_cast<int>(some.images.dim(2)),
                     .columns = static_cast<int>(some.images.dim(3)),
                     .shades = shades_of(some.images, n),
                     .style = 1};
    panel.dots = samples.dots(offset, mask, n, centre_of(panel.shades, some.images.dim(3)));
    for (std::size_t j = 0; j < panel.dots.size(); ++j) {
      const ImagePanel::Dot& dot = panel.dots[j];
      figure.data.push_back({std::to_string(n), name, std::to_string(j),
                             fmt::format("{:.2f}", dot.y), fmt::format("{:.2f}", dot.x),
                             fmt::format("{:.3f}", dot.area)});
    }
    figure.panels.emplace_back(std::move(panel));
  }
  figure.legend = {
      {.name = "one sample; its area is the mask", .style = 1, .form = LegendEntry::Form::mark},
      {.name = "positions of a plain convolution",
       .style = 1,
       .form = LegendEntry::Form::hollow_mark}};
  figure.notes = {cat("Units: pixels of the image. The layer reads ", x.shape()[2], "x",
                      x.shape()[3],
                      " pixels of its input. Samples outside the image are drawn on its border.")};
  return figure;
}

int places(const PlacesArguments& arguments) {
  const std::string run = resolve_run(arguments.run);
  const ExperimentConfig config = load_config(run + "/config.yaml", global_overrides());
  std::filesystem::path path = arguments.output;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path /= "places.svg";
  check_output_files({path.string()});
  measure_this_machine_once();
  TrainingSetup setup = setup_training(config);
  load_checkpoint(cat(run, "/ckpt/", arguments.weights, ".safetensors"), *setup.model, nullptr);
  if (setup.test == nullptr) {
    fail(ErrorKind::kConfig, "places", "expected a data set with test images, got none");
  }
  const Figure figure = figure_of(arguments, config, *setup.model, setup.test->dataset());
  write_file(path.string(), to_svg(figure));
  print_result(path.string() + "\n");
  return 0;
}

std::function<int()> declare_places(CommandLine& app) {
  auto arguments = std::make_shared<PlacesArguments>();
  app.add_option("RUN", arguments->run, "run folder, or runs/<name> for its latest run")
      ->required();
  app.add_option("--layer", arguments->layer, "layer of type deform_conv2d (default: the last one)")
      ->type_name("NAME");
  app.add_option("-n,--images", arguments->images,
                 "number of test images, taken from each class in turn")
      ->type_name("N")
      ->range(1, 64)
      ->capture_default_str();
  app.add_option("--weights", arguments->weights, "weights: last or best")
      ->type_name("W")
      ->capture_default_str()
      ->one_of({"last", "best"});
  app.add_option("-o,--output", arguments->output, "output figure (SVG), or its folder")
      ->type_name("FILE")
      ->capture_default_str();
  return [arguments] { return places(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("places",
                           {.summary = "Draw where a deformable convolution samples test images.",
                            .usage = "places RUN [--layer NAME] [--images N] [-o FILE]",
                            .examples = {"places runs/deform_digits/deformable",
                                         "places runs/deform_digits/deformable --layer d2"},
                            .order = 36,
                            .declare = convscope::declare_places})
