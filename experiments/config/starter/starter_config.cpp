// SPDX-License-Identifier: Apache-2.0
// starter_config.cpp: a starter config with every key for a data set and a network.
#include "experiments/config/starter/starter_config.h"

#include <algorithm>
#include <list>
#include <map>
#include <vector>

#include "datasets/dataset.h"
#include "experiments/config/build.h"
#include "experiments/config/compose.h"
#include "experiments/config/document.h"
#include "experiments/config/no_memory.h"

namespace convscope {
namespace {

// A key or a block of the config. The keys and blocks inside a block are in the order of
// config_keys().
struct Entry {
  std::string name, path;
  const OptionField* field = nullptr;  // null: a block
  std::list<Entry> inner = {};

  Entry& at(const std::string& wanted) {
    for (Entry& entry : inner) {
      if (entry.name == wanted) return entry;
    }
    Entry& entry = inner.emplace_back();
    entry.name = wanted;
    entry.path = path.empty() ? wanted : path + "." + wanted;
    return entry;
  }
};

using Recipe = std::map<std::string, std::string>;  // path -> value in YAML

bool has_choice(const std::vector<OptionField>& fields, const char* name, const char* choice) {
  return std::ranges::any_of(fields, [&](const OptionField& field) {
    return field.name == name && std::ranges::count(field.choices, choice) > 0;
  });
}

Recipe recipe_for(const StarterRequest& request) {
  const ModelType& model = model_types().get(request.model, ErrorKind::kInvalid);
  const DatasetType& data = dataset_types().get(request.data, ErrorKind::kInvalid);
  if (data.point_grid) {
    fail("init", cat("expected a data set of images, got '", request.data,
                     "', whose samples are points and need 'layers'; start from `convscope config "
                     "show sparse_mnist_points`"));
  }
  const Shape image =
      data.sample_shape ? data.sample_shape(Options(data.fields)) : Shape{3, 224, 224};
  Recipe out = {{"name", config::quoted_if_needed(config::name_from_file(request.file))},
                {"seed", "1"},
                {"device", "cpu"},
                {"data.set", request.data},
                {"data.batch_size", "64"},
                {"data.val_split", "1000"},
                {"model.type", request.model},
                {"conv.algorithm", "auto"},
                {"optim.type", "sgd"},
                {"optim.lr", "0.05"},
                {"optim.momentum", "0.9"},
                {"optim.weight_decay", "5.0e-4"},
                {"optim.schedule.type", "one_cycle"},
                {"train.epochs", "5"}};
  constexpr std::int64_t kSmall = 64;  // pixels: a stem for ImageNet would leave few pixels
  if (image[1] < kSmall && has_choice(model.fields, "stem", "cifar")) out["model.stem"] = "cifar";
  // Nothing is written when the network does not accept the images.
  const std::string minimal = cat("data: {set: ", request.data, "}\nmodel: {type: ", request.model,
                                  out.contains("model.stem") ? ", stem: cifar" : "", "}\n");
  const ExperimentConfig config = parse_config_text(minimal, request.file);
  const auto unbacked = no_memory(config);
  const int classes = data.classes > 0 ? data.classes : 10;
  check_labels_fit(
      config, *build_model(config, image, classes),
      {image, classes, data.label_shape ? data.label_shape(Options(data.fields)) : Shape{}});
  return out;
}

// Returns "optim.momentum" for "optim[sgd].momentum" if the recipe has this type. Returns "" for
// keys of other types, for keys of entries of lists, and for blocks that a starter config does not
// need.
std::string plain_path(const std::string& path, const Recipe& recipe) {
  if (path == "extends" || path.starts_with("sweep.") || path.find('<') != std::string::npos) {
    return "";
  }
  const std::size_t open = path.find('['), close = path.find(']');
  if (open == std::string::npos) return path;
  const std::string block = path.substr(0, open);
  const std::string type = path.substr(open + 1, close - open - 1);
  const auto chosen = recipe.find(block + (block == "data" ? ".set" : ".type"));
  const bool fits = chosen != recipe.end() && chosen->second == type;
  return fits ? block + path.substr(close + 1) : "";
}

// Returns the values that a key may have: the names in the registry of types to which the key
// refers, or else the choices of the field.
std::vector<std::string> choices_of(const Entry& entry) {
  if (entry.path == "data.set") return dataset_types().names();
  if (entry.path == "model.type") return model_types().names();
  if (entry.path == "optim.type") return optimizer_types().names();
  if (entry.path == "optim.schedule.type") return schedule_types().names();
  return entry.field->choices;
}

class Writer {
 public:
  explicit Writer(const Recipe& recipe) : recipe_(recipe) {}

  std::string text(const Entry& root) {
    for (const Entry& entry : root.inner) write(entry, 0, -1);
    return std::move(out_);
  }

 private:
  bool is_chosen(const Entry& entry) const {
    if (entry.field != nullptr) return recipe_.contains(entry.path);
    return std::ranges::any_of(entry.inner, [this](const Entry& one) { return is_chosen(one); });
  }

  // Writes an entry. `mark` is the column of the '#' before the enclosing block, or -1 if this
  // block is not a comment.
  void write(const Entry& entry, int indent, int mark) {
    if (mark < 0 && !is_chosen(entry)) mark = indent;
    std::string line = mark < 0 ? std::string(static_cast<std::size_t>(indent), ' ')
                                : std::string(static_cast<std::size_t>(mark), ' ') + "# " +
                                      std::string(static_cast<std::size_t>(indent - mark), ' ');
    line += entry.name + ":";
    if (entry.field == nullptr) {
      if (indent == 0) out_ += "\n";
      out_ += line + "\n";
      for (const Entry& one : entry.inner) write(one, indent + 2, mark);
      return;
    }
    const OptionValue& standard = entry.field->default_value;
    const auto* word = std::get_if<std::string>(&standard);
    const bool none =
        std::holds_alternative<std::monostate>(standard) || (word != nullptr && word->empty());
    const std::string text = none ? "" : config::yaml_text(standard);
    const auto chosen = recipe_.find(entry.path);
    const std::string value = chosen != recipe_.end() ? chosen->second : text;
    if (!value.empty()) line += " " + value;
    line += std::string(line.size() < 30 ? 30 - line.size() : 1, ' ') + "# " + entry.field->doc;
    const std::vector<std::string> choices = choices_of(entry);
    if (!choices.empty()) line += " (" + join(choices, " | ") + ")";
    if (chosen != recipe_.end() && !none && value != text) line += " (default " + text + ")";
    out_ += line + "\n";
  }

  const Recipe& recipe_;
  std::string out_;
};

}  // namespace

std::string starter_config(const StarterRequest& request) {
  const Recipe recipe = recipe_for(request);
  const std::vector<ConfigKey> keys = config_keys();
  Entry root;
  for (const ConfigKey& key : keys) {
    const std::string path = plain_path(key.path, recipe);
    if (path.empty()) continue;
    Entry* here = &root;
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::size_t end = std::min(path.find('.', begin), path.size());
      here = &here->at(path.substr(begin, end - begin));
      begin = end + 1;
    }
    here->field = &key.field;
  }
  const std::string file = config::printable(request.file);  // a line break would end the comment
  return cat("# ", request.model, " on ", request.data,
             ". A line that begins with # holds a default; take the # away to change it.\n"
             "# Train:          convscope run ",
             file, "\n# Try a value:    convscope run ", file,
             " optim.lr=0.02\n# Keys of lists and layers too: convscope config keys\n",
             Writer(recipe).text(root));
}

}  // namespace convscope
