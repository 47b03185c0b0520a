// SPDX-License-Identifier: Apache-2.0
// layer_types.cpp: the tables of layers and models that a config can name.
#include "layers/layer_types.h"

#include <set>

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

}  // namespace

std::shared_ptr<Module> build_layers(const std::vector<LayerSpec>& specs, const Shape& input,
                                     LayerContext& context, const std::string& kind) {
  auto network = std::make_shared<Sequential>(kind);
  Shapes shapes = {input};
  std::set<std::string> taken;
  std::map<std::string, int> count_of_type;
  for (const LayerSpec& spec : specs) {
    const LayerType& type = layer_types().get(spec.type);
    const int number = ++count_of_type[spec.type];
    const std::string name = spec.name.empty() ? cat(spec.type, "_", number) : spec.name;
    if (name.find('.') != std::string::npos) {
      fail(ErrorKind::kConfig, "layers",
           cat("expected layer names without dots because dots join the names of parameters, got '",
               name, "'"));
    }
    if (!taken.insert(name).second) {
      fail(ErrorKind::kConfig, "layers",
           cat("expected layers with different names, got '", name, "' twice"));
    }
    context.layer_name = name;
    try {
      check_takes(spec, type, context.rows);
      const std::shared_ptr<Module> layer =
          type.build(complete_options(type.fields, spec.options, spec.type), shapes[0], context);
      layer->check_inputs(shapes.size());
      shapes = layer->output_shapes(shapes);
      network->add(name, layer);
    } catch (const Error& error) {
      fail(error.kind(), "layers",
           cat("layer '", name, "' (", spec.type, ", input ", shapes[0], "): ", error.what()));
    }
  }
  return network;
}

}  // namespace convscope
