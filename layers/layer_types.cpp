// SPDX-License-Identifier: Apache-2.0
// layer_types.cpp: the tables of layers and models that a config can name.
#include "layers/layer_types.h"

#include "layers/layer_graph/layer_graph.h"
#include "layers/sequential.h"

namespace convscope {

Registry<LayerType>& layer_types() {
  static Registry<LayerType> table("layer");
  return table;
}

Registry<ModelType>& model_types() {
  static Registry<ModelType> table("model");
  return table;
}

Options complete_options(const std::vector<OptionField>& fields, const Options& given,
                         const std::string& operation) {
  Options complete(fields);
  for (const auto& [name, value] : given.values()) {
    const OptionField* field = nullptr;
    std::vector<std::string> known;
    for (const OptionField& candidate : fields) {
      if (candidate.name == name) field = &candidate;
      known.push_back(candidate.name);
    }
    if (field == nullptr) {
      const std::string near = nearest_word(name, known);
      fail(ErrorKind::kConfig, operation,
           cat("unknown option '", name, "'",
               near.empty() ? "" : cat("; did you mean '", near, "'?"), " (known: ", join(known),
               ")"));
    }
    const std::string refusal = refusal_of(*field, value);
    if (!refusal.empty()) fail(ErrorKind::kConfig, operation, cat(name, ": ", refusal));
    const auto* whole = std::get_if<std::int64_t>(&value);
    if (field->type == OptionType::integers && whole != nullptr) {
      complete.set(name, std::vector<std::int64_t>{*whole});
    } else if (field->type == OptionType::text && whole != nullptr) {
      complete.set(name, to_text(value));
    } else {
      complete.set(name, value);
    }
  }
  for (const OptionField& field : fields) {
    if (field.required && !complete.has(field.name)) {
      fail(ErrorKind::kConfig, operation,
           cat("expected a value for '", field.name, "' (", field.doc, "), got none"));
    }
  }
  return complete;
}

namespace {

// Rejects a layer that expects images but receives rows of sites.
void check_takes(const LayerSpec& spec, const LayerType& type, const RowsOfSites& rows) {
  if (rows.levels == nullptr || type.takes_rows) return;
  fail(ErrorKind::kConfig, spec.type,
       cat("expected an image or a vector for each sample, got the rows of sites that '",
           rows.made_by,
           "' makes; put 'to_dense' before it, which makes an image of them, or "
           "'sparse_global_pool', which makes a vector of each sample"));
}

// Builds the layers one after the other, and follows the shapes.
class Builder {
 public:
  Builder(const std::vector<LayerSpec>& specs, const Shape& input, LayerContext& context)
      : specs_(specs), connections_(connect_layers(specs)), context_(context) {
    for (const Connections::Mistake& mistake : connections_.mistakes) {
      fail(ErrorKind::kConfig, "layers", mistake.sentence);
    }
    shapes_.push_back({input});
    rows_.push_back(context.rows);
  }

  std::shared_ptr<Module> run(const std::string& kind) {
    std::vector<LayerGraph::Entry> entries;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const std::shared_ptr<Module> layer = built(i);
      entries.push_back(
          {connections_.names[i], layer, connections_.sources[i], shapes_.back().size()});
    }
    if (!connections_.is_chain()) return std::make_shared<LayerGraph>(std::move(entries));
    auto chain = std::make_shared<Sequential>(kind);
    for (const LayerGraph::Entry& entry : entries) chain->add(entry.name, entry.layer);
    return chain;
  }

 private:
  std::shared_ptr<Module> built(std::size_t index) {
    const LayerSpec& spec = specs_[index];
    const std::string& name = connections_.names[index];
    const LayerType& type = layer_types().get(spec.type);
    context_.layer_name = name;
    try {
      take_inputs(index);
      check_takes(spec, type, context_.rows);
      const std::shared_ptr<Module> layer = type.build(
          complete_options(type.fields, spec.options, spec.type), context_.inputs.at(0), context_);
      layer->check_inputs(context_.inputs.size());
      shapes_.push_back(layer->output_shapes(context_.inputs));
      rows_.push_back(context_.rows);
      return layer;
    } catch (const Error& error) {
      const std::string sentence =
          cat("layer '", name, "' (", spec.type, ", ", inputs_text(index), "): ", error.what());
      if (spec.place.empty()) fail(error.kind(), "layers", sentence);
      const bool is_invalid = error.kind() == ErrorKind::kInvalid;
      fail(is_invalid ? ErrorKind::kConfig : error.kind(), "config",
           cat(spec.place, ": error: ", sentence));
    }
  }

  void take_inputs(std::size_t index) {
    const std::vector<LayerSource>& sources = connections_.sources[index];
    for (const LayerSource& source : sources) {
      const std::size_t count = shapes_[source.value].size();
      if (!source.output || *source.output < count) continue;
      fail(ErrorKind::kConfig, "from",
           cat("expected a result of '", name_of_value(source.value), "' from 0 to ", count - 1,
               ", got ", *source.output));
    }
    context_.inputs = gathered(shapes_, sources);
    context_.rows = rows_[sources[0].value];
    for (const LayerSource& source : sources) {
      if (rows_[source.value].levels != nullptr) context_.rows = rows_[source.value];
    }
  }

  std::string name_of_value(std::size_t value) const {
    return value == 0 ? "input" : connections_.names[value - 1];
  }

  // Returns "input [1,3,8,8]", with names where the config names the inputs.
  std::string inputs_text(std::size_t index) const {
    std::vector<std::string> texts;
    const bool has_names = !specs_[index].from.empty();
    for (const LayerSource& source : connections_.sources[index]) {
      std::string shapes;
      for (const Shape& shape : shapes_[source.value]) {
        shapes += (shapes.empty() ? "" : " and ") + shape.str();
      }
      texts.push_back(has_names ? cat("'", name_of_value(source.value), "' ", shapes) : shapes);
    }
    return cat(texts.size() == 1 ? "input " : "inputs ", join(texts, ", "));
  }

  const std::vector<LayerSpec>& specs_;
  const Connections connections_;
  LayerContext& context_;
  std::vector<Shapes> shapes_;     // by value (layer_graph/connections.h)
  std::vector<RowsOfSites> rows_;  // by value
};

}  // namespace

std::shared_ptr<Module> build_layers(const std::vector<LayerSpec>& specs, const Shape& input,
                                     LayerContext& context, const std::string& kind) {
  return Builder(specs, input, context).run(kind);
}

}  // namespace convscope
