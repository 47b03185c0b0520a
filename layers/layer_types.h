// SPDX-License-Identifier: Apache-2.0
// layer_types.h: the tables of layers and models that a config can name. A layer registers itself
// in its own .cpp file; its keys, their types, defaults and meaning are data (framework/options.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/options.h"
#include "framework/precision.h"
#include "framework/registry.h"
#include "layers/conv2d/policy.h"
#include "layers/module.h"

namespace convscope {

class SiteLevels;

// While a network is built, this struct says whether the current layer receives rows of sites [n,C]
// (layers/sparse_conv/levels.h) instead of images, and which rows. A layer that converts images to
// rows or rows to images, or whose output has another level, changes the struct.
struct RowsOfSites {
  struct Step {
    std::string layer;
    int level;  // after it
  };
  std::shared_ptr<SiteLevels> levels = {};  // null: no rows
  int level = 0;                            // of the rows that arrive
  std::string made_by = {};                 // the layer that made the rows
  std::vector<Step> steps = {};             // the strided layers so far
};

// The data of a network that a layer needs besides its own options.
struct LayerContext {
  std::uint64_t seed = 0;  // of the run; weights are drawn from it
  std::uint64_t next_stream =
      1;  // each layer that draws random numbers takes a stream: next_stream++
  Device device;
  ComputePrecision precision = ComputePrecision::f32;
  std::string layer_name;  // of the layer being built: "c1"
  Shapes inputs = {};      // of the layer being built
  // Returns the convolution algorithm of a layer by its name (config block `conv:`).
  std::function<Conv2dPolicy(const std::string& layer_name)> conv_policy;
  std::vector<std::int64_t> point_grid = {};  // for data sets of points: [T,H,W] or [H,W]
  RowsOfSites rows = {};
  bool had_rows = false;  // a layer made rows
};

struct LayerType {
  std::string doc;                  // one line
  std::vector<OptionField> fields;  // without `type` and `name`, which every layer has
  // Builds the layer. `input` is the shape that the layer receives, with batch size N = 1: the
  // first one of context.inputs.
  std::function<std::shared_ptr<Module>(const Options&, const Shape& input, LayerContext&)> build;
  bool takes_rows = false;  // of sites; false: images and vectors only
};
CONVSCOPE_API Registry<LayerType>& layer_types();

// A whole network: lenet5. `classes` is the number of outputs.
struct ModelType {
  std::string doc;
  std::vector<OptionField> fields;
  std::function<std::shared_ptr<Module>(const Options&, const Shape& input, int classes,
                                        LayerContext&)>
      build;
};
CONVSCOPE_API Registry<ModelType>& model_types();

// One entry of a `layers:` list.
struct LayerSpec {
  std::string type;
  std::string name;  // unique; "": build_layers chooses type + number, such as conv2d_1
  Options options;
  std::vector<std::string> from = {};  // its inputs (layer_graph/connections.h); empty: the layer
                                       // before it
  std::string place = {};              // in a config, for errors: "mnist.yaml:12:5"
};
// Returns `given` with a value for every field: fields that are not given get their defaults. Where
// a list is expected, an integer becomes a list of one. An unknown key or a value that does not fit
// is an error of `operation`.
CONVSCOPE_API Options complete_options(const std::vector<OptionField>& fields, const Options& given,
                                       const std::string& operation);

// Returns a Sequential of the layers, or a LayerGraph if they are not a chain. An error names the
// layer and the shapes that reached it.
CONVSCOPE_API std::shared_ptr<Module> build_layers(const std::vector<LayerSpec>& specs,
                                                   const Shape& input, LayerContext& context,
                                                   const std::string& kind = "sequential");

}  // namespace convscope

// Use these macros in the .cpp file of a layer or model. A file may use them several times, but at
// most once in a line.
#define CONVSCOPE_REGISTER_LAYER(name, ...) \
  CONVSCOPE_REGISTER_IN(::convscope::layer_types(), __LINE__, name, __VA_ARGS__)
#define CONVSCOPE_REGISTER_MODEL(name, ...) \
  CONVSCOPE_REGISTER_IN(::convscope::model_types(), __LINE__, name, __VA_ARGS__)

#define CONVSCOPE_REGISTER_IN(table, line, name, ...) \
  CONVSCOPE_REGISTER_AT(table, line, name, __VA_ARGS__)
#define CONVSCOPE_REGISTER_AT(table, line, name, ...)                              \
  namespace {                                                                      \
  const bool registered_on_line_##line = (table).add(name, __VA_ARGS__, __FILE__); \
  }
