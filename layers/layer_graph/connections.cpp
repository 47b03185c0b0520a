// SPDX-License-Identifier: Apache-2.0
// connections.cpp: resolves the names in `from`.
#include "layers/layer_graph/connections.h"

#include <map>

#include "framework/registry.h"

namespace convscope {
namespace {

constexpr const char* kInput = "input";

// Returns n for "name.n".
std::optional<std::size_t> output_number(const std::string& word) {
  const std::size_t dot = word.rfind('.');
  if (dot == std::string::npos || dot + 1 == word.size() || word.size() - dot > 4 ||
      word.find_first_not_of("0123456789", dot + 1) != std::string::npos) {
    return std::nullopt;
  }
  return std::stoul(word.substr(dot + 1));
}

class Connector {
 public:
  explicit Connector(const std::vector<LayerSpec>& specs) : specs_(specs) {}

  Connections run() {
    name_layers();
    value_of_[kInput] = 0;
    is_read_.assign(specs_.size() + 1, false);
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      out_.sources.push_back(sources_of(i));
      for (const LayerSource& source : out_.sources[i]) is_read_[source.value] = true;
      value_of_[out_.names[i]] = i + 1;
    }
    if (out_.mistakes.empty()) check_readers();
    return std::move(out_);
  }

 private:
  void add(std::size_t layer, const char* key, const std::string& sentence, std::size_t entry = 0) {
    out_.mistakes.push_back({layer, key, entry, sentence});
  }

  void name_layers() {
    std::map<std::string, int> count_of_type;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const int number = ++count_of_type[specs_[i].type];
      const std::string& given = specs_[i].name;
      const std::string name = given.empty() ? cat(specs_[i].type, "_", number) : given;
      out_.names.push_back(name);
      if (name == kInput) {
        add(i, "name", "expected another name because 'input' is the input of the network");
      } else if (!index_of_.emplace(name, i).second) {
        add(i, "name", cat("expected layers with different names, got '", name, "' twice"));
      }
    }
    for (const auto& [name, index] : index_of_) check_parts(name, index);
  }

  // The parameters of "a.b" and of the part b of "a" would have the same names.
  void check_parts(const std::string& name, std::size_t index) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos;
         dot = name.find('.', dot + 1)) {
      if (!index_of_.contains(name.substr(0, dot))) continue;
      add(index, "name",
          cat("expected no name that continues another one because dots join the names of "
              "parameters, got '",
              name.substr(0, dot), "' and '", name, "'"));
      return;
    }
  }

  std::vector<LayerSource> sources_of(std::size_t index) {
    std::vector<LayerSource> out;
    const std::vector<std::string>& from = specs_[index].from;
    if (from.empty()) return {{.value = index}};
    for (std::size_t entry = 0; entry < from.size(); ++entry) {
      if (const auto source = source_named(from[entry])) {
        out.push_back(*source);
      } else {
        add(index, "from", refusal(from[entry], index), entry);
      }
    }
    return out;
  }

  std::optional<LayerSource> source_named(const std::string& word) const {
    const auto whole = value_of_.find(word);
    if (whole != value_of_.end()) return LayerSource{.value = whole->second};
    const auto number = output_number(word);
    if (!number) return std::nullopt;
    const auto layer = value_of_.find(word.substr(0, word.rfind('.')));
    if (layer == value_of_.end()) return std::nullopt;
    return LayerSource{.value = layer->second, .output = number};
  }

  std::string refusal(const std::string& word, std::size_t index) const {
    auto later = index_of_.find(word);
    if (later == index_of_.end() && output_number(word)) {
      later = index_of_.find(word.substr(0, word.rfind('.')));
    }
    if (later != index_of_.end()) {
      return cat(
          "expected a layer above this one, because layers run in the order of the list "
          "(so a cycle is impossible), got '",
          word, later->second == index ? "', the layer itself" : "', which follows");
    }
    std::vector<std::string> known;
    for (const auto& [name, value] : value_of_) known.push_back(name);
    const std::string near = nearest_word(word, known);
    return cat("unknown layer '", word, "'",
               near.empty() ? cat(" (known here: ", join(known), ")")
                            : cat("; did you mean '", near, "'?"));
  }

  void check_readers() {
    for (std::size_t i = 0; i + 1 < specs_.size(); ++i) {
      if (is_read_[i + 1]) continue;
      add(i, "",
          cat("expected a layer that reads the result of '", out_.names[i],
              "', because only the result of the last layer leaves the network, got none"));
    }
  }

  const std::vector<LayerSpec>& specs_;
  std::map<std::string, std::size_t> index_of_;  // all layers
  std::map<std::string, std::size_t> value_of_;  // what the current layer may read
  std::vector<bool> is_read_;                    // by value
  Connections out_;
};

}  // namespace

bool Connections::is_chain() const {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i] != std::vector<LayerSource>{{.value = i}}) return false;
  }
  return true;
}

Connections connect_layers(const std::vector<LayerSpec>& specs) { return Connector(specs).run(); }

}  // namespace convscope
