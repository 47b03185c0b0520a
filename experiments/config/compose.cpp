// SPDX-License-Identifier: Apache-2.0
// compose.cpp: loads a config: the texts of a file, its base files and the overrides become one
// tree of nodes, and resolve() makes it a typed config.
#include "experiments/config/compose.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "experiments/config/resolve.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "framework/io/bytes.h"
#include "framework/registry.h"

namespace convscope::config {
namespace {

constexpr int kMaxFiles = 64;

// Merges two maps. If one of the values is not a map, `later` replaces `base`.
void merge(Node& base, Node&& later) {
  if (base.kind != Node::Kind::map || later.kind != Node::Kind::map) {
    base = std::move(later);
    return;
  }
  for (Node::Entry& entry : later.entries) {
    if (Node::Entry* old = base.find(entry.key)) {
      old->origin = entry.origin;
      merge(old->value, std::move(entry.value));
    } else {
      base.entries.push_back(std::move(entry));
    }
  }
  base.origin = later.origin;
}

Node empty_map(const Origin& origin) {
  Node node;
  node.kind = Node::Kind::map;
  node.origin = origin;
  return node;
}

// Returns the parts of "optim.schedule.type".
std::vector<std::string> split_path(std::string_view dotted) {
  std::vector<std::string> path;
  for (std::size_t begin = 0; begin <= dotted.size();) {
    const std::size_t end = std::min(dotted.find('.', begin), dotted.size());
    path.emplace_back(dotted.substr(begin, end - begin));
    begin = end + 1;
  }
  return path;
}

// Joins parts of a layer's name with dots: conv.per_layer.block1.conv2.forward=... names layer
// block1.conv2. Keys in the lists of a sweep are joined in the same way: sweep.grid.optim.lr=[...].
void join_name_with_dots(std::vector<std::string>& path) {
  if (path.size() < 4) return;
  const bool in_sweep = path[0] == "sweep" && (path[1] == "grid" || path[1] == "zip");
  if (!in_sweep && (path[0] != "conv" || path[1] != "per_layer")) return;
  std::vector<std::string> name(path.begin() + 2, path.end());
  std::vector<std::string> joined = {path[0], path[1]};
  const std::string last = name.back();
  const bool has_direction =
      !in_sweep && (last == "forward" || last == "backward_data" || last == "backward_weight");
  if (has_direction) name.pop_back();
  joined.push_back(join(name, "."));
  if (has_direction) joined.push_back(last);
  path = joined;
}

// Some blocks have a short form: one value instead of a map. An override of one key needs the map.
// `conv.per_layer.c1: NAME` sets all directions, `train.loss: NAME` is the type of the loss.
// Returns the keys that have the value, or nothing for other blocks.
std::vector<std::string> keys_of_short_form(const std::string& walked, const Node& node) {
  if (walked.starts_with("conv.per_layer.")) return {"forward", "backward_data", "backward_weight"};
  if (walked == "train.loss" && node.kind == Node::Kind::scalar) return {"type"};
  return {};
}
void replace_by_map(Node& node, const std::vector<std::string>& keys) {
  Node map = empty_map(node.origin);
  for (const std::string& key : keys) map.entries.push_back({key, node.origin, node});
  node = std::move(map);
}

class Composer {
 public:
  Composer(const ConfigReader& reader, Mistakes& mistakes) : reader_(reader), mistakes_(mistakes) {}

  // Returns the file merged with its base files; `chain` holds the files that extend this file,
  // directly or indirectly.
  Node file(std::string_view text, const std::string& name, std::vector<std::string> chain) {
    chain.push_back(name);
    ++files_;
    Origin origin;
    origin.source = std::make_shared<const std::string>(name);
    Node own = parse_document(text, origin, mistakes_);
    if (own.kind == Node::Kind::null) own.kind = Node::Kind::map;  // an empty file
    if (own.kind != Node::Kind::map) {
      mistakes_.add(own.origin, cat("expected a map of keys and values, got ", describe(own)));
      return empty_map(origin);
    }
    Node merged = empty_map(own.origin);
    const auto extends = std::find_if(own.entries.begin(), own.entries.end(),
                                      [](const auto& entry) { return entry.key == "extends"; });
    if (extends != own.entries.end()) {
      const Node value = std::move(extends->value);
      own.entries.erase(extends);
      for (const Node& base : bases(value)) merge(merged, extended(base, name, chain));
    }
    set_layer(own, layer_++);
    merge(merged, std::move(own));
    return merged;
  }

  int layer() const { return layer_; }

 private:
  std::vector<Node> bases(const Node& value) {
    std::vector<Node> found =
        value.kind == Node::Kind::list ? value.items : std::vector<Node>{value};
    if (value.kind == Node::Kind::null) found.clear();
    std::erase_if(found, [&](const Node& base) {
      if (base.kind == Node::Kind::scalar) return false;
      mistakes_.add(base.origin, cat("expected a file name or a list of file names after "
                                     "'extends', got ",
                                     describe(base)));
      return true;
    });
    return found;
  }

  Node extended(const Node& base, const std::string& from, const std::vector<std::string>& chain) {
    const std::string path =
        (std::filesystem::path(from).parent_path() / base.text).lexically_normal().string();
    const auto same = [&](const std::string& seen) {
      return std::filesystem::path(seen).lexically_normal().string() == path;
    };
    if (std::any_of(chain.begin(), chain.end(), same)) {
      mistakes_.add(base.origin, cat("expected 'extends' without a cycle, got ",
                                     join(chain, " -> "), " -> ", printable(path)));
      return empty_map(base.origin);
    }
    if (files_ >= kMaxFiles) {
      mistakes_.add(base.origin, cat("expected at most ", kMaxFiles, " files in all"));
      return empty_map(base.origin);
    }
    std::string text;
    try {
      if (!reader_) fail(ErrorKind::kConfig, "config", "no files can be read here");
      text = reader_(path);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kIo) {
        fail(ErrorKind::kIo, "config",
             cat("expected the extended file '", printable(path), "' (", base.origin.comment(),
                 "), got: ", sentence(error)));
      }
      mistakes_.add(base.origin,
                    cat("expected the extended file '", printable(path), "', got ", sentence(error),
                        chain.size() > 1 ? cat(" (", join(chain, " -> "), ")") : ""));
      return empty_map(base.origin);
    }
    return file(text, path, chain);
  }

  static std::string sentence(const Error& error) {
    const std::string text = error.what();
    const std::size_t end = text.find("] ");
    return end == std::string::npos ? text : text.substr(end + 2);
  }

  const ConfigReader& reader_;
  Mistakes& mistakes_;
  int files_ = 0;
  int layer_ = 0;
};

}  // namespace

void set_layer(Node& node, int layer) {
  node.origin.layer = layer;
  for (Node& item : node.items) set_layer(item, layer);
  for (Node::Entry& entry : node.entries) {
    entry.origin.layer = layer;
    set_layer(entry.value, layer);
  }
}

void assign(Node& root, std::string_view dotted_path, const Origin& origin, Node value,
            Mistakes& mistakes) {
  std::vector<std::string> path = split_path(dotted_path);
  if (path.size() > kMaxDepth) {
    mistakes.add(origin, cat("expected a path of at most ", kMaxDepth, " keys"));
    return;
  }
  join_name_with_dots(path);
  Node* here = &root;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const std::string walked =
        join(std::vector<std::string>(path.begin(), path.begin() + static_cast<long>(i)), ".");
    if (path[i].empty()) {
      mistakes.add(origin, origin.is_override ? "expected KEY=VALUE with a name between the dots"
                                              : "expected a key with a name between the dots");
      return;
    }
    if (here->kind == Node::Kind::null) *here = empty_map(origin);
    if (here->kind != Node::Kind::map) {
      const std::vector<std::string> keys = keys_of_short_form(walked, *here);
      if (!keys.empty()) replace_by_map(*here, keys);
    }
    if (here->kind == Node::Kind::list) {
      std::size_t index = 0;
      const char* end = path[i].data() + path[i].size();
      const auto [stopped, error] = std::from_chars(path[i].data(), end, index);
      if (error != std::errc() || stopped != end || index >= here->items.size()) {
        mistakes.add(origin, cat("expected an index below ", here->items.size(), " into the list '",
                                 walked, "', got '", printable(path[i]), "'"));
        return;
      }
      here = &here->items[index];
    } else if (here->kind == Node::Kind::map) {
      Node::Entry* entry = here->find(path[i]);
      if (entry == nullptr) {
        here->entries.push_back({path[i], origin, empty_map(origin)});
        entry = &here->entries.back();
      }
      entry->origin = origin;
      here = &entry->value;
    } else {
      mistakes.add(origin, cat("expected '", walked, "' to be a map, got ", describe(*here)));
      return;
    }
  }
  merge(*here, std::move(value));
}

void apply_override(Node& root, const std::string& text, int layer, Mistakes& mistakes) {
  Origin origin;
  origin.source = std::make_shared<const std::string>(text);
  origin.is_override = origin.is_dotted = true;
  origin.layer = layer;
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    mistakes.add(origin, "expected KEY=VALUE, such as train.epochs=3");
    return;
  }
  const std::string path = text.substr(0, equals);
  if (text.find_first_not_of(" \t\r\n", equals + 1) == std::string::npos) {
    mistakes.add(origin, cat("expected a value, got nothing; ", path, "=null takes the default"));
    return;
  }
  Node value = parse_override_value(std::string_view(text).substr(equals + 1), origin, mistakes);
  set_layer(value, layer);
  if (path == "extends" || path.starts_with("extends.")) {
    mistakes.add(origin, "expected 'extends' in a file, it cannot be overridden");
    return;
  }
  assign(root, path, origin, std::move(value), mistakes);
}

Node compose(std::string_view text, const std::string& file_name, const ConfigReader& reader,
             const std::vector<std::string>& overrides, Mistakes& mistakes) {
  Composer composer(reader, mistakes);
  Node root = composer.file(text, file_name, {});
  int layer = composer.layer();
  for (const std::string& override_text : overrides) {
    apply_override(root, override_text, layer++, mistakes);
  }
  return root;
}

std::string read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    fail(ErrorKind::kConfig, "config", "a folder");
  }
  try {
    return read_text(path, config::kMaxTextBytes);
  } catch (const Error& failure) {
    // A missing file is reported as an error of the config, because its name is probably wrong. A
    // file that cannot be read is an I/O error.
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    const bool is_there = status.type() == std::filesystem::file_type::regular ||
                          status.type() == std::filesystem::file_type::fifo ||
                          error == std::errc::permission_denied || error == std::errc::io_error;
    const std::string text = failure.what();
    const std::size_t reason = text.find(", got: ");
    fail(is_there ? ErrorKind::kIo : ErrorKind::kConfig, "config",
         reason == std::string::npos ? text : text.substr(reason + std::strlen(", got: ")));
  }
}

std::string read_named_file(const std::string& path) {
  try {
    return read_file(path);
  } catch (const Error& error) {
    const std::string reason = std::string(error.what()).substr(std::strlen("[config] "));
    const char* const before = error.kind() == ErrorKind::kConfig ? "error: " : "";
    fail(error.kind(), "config",
         cat(before, "expected the config file '", printable(path), "', got: ", reason));
  }
}

std::string folder_name(std::string_view text) {
  std::string name(text.substr(0, 100));
  for (char& c : name) {
    const bool keeps = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!keeps) c = '_';
  }
  if (!name.empty() && (name[0] == '.' || name[0] == '-')) name[0] = '_';
  return name;
}

std::string name_from_file(std::string_view file_name) {
  const std::string name = folder_name(std::filesystem::path(file_name).stem().string());
  return name.empty() ? "experiment" : name;
}

}  // namespace convscope::config

namespace convscope {

ExperimentConfig parse_config_text(std::string_view yaml, std::string_view file_name,
                                   const ConfigReader& reader,
                                   const std::vector<std::string>& overrides) {
  config::Mistakes mistakes;
  const config::Node root =
      config::compose(yaml, std::string(file_name), reader, overrides, mistakes);
  // If the text could be parsed only partly, the errors are thrown here: a partial tree would cause
  // further, misleading errors.
  if (!mistakes.all_harmless()) mistakes.throw_if_any();
  ExperimentConfig config = config::resolve(root, config::name_from_file(file_name), mistakes);
  mistakes.throw_if_any();
  return config;
}

ExperimentConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  const std::string file = find_config(path);
  return parse_config_text(config::read_named_file(file), file, config::read_file, overrides);
}

}  // namespace convscope
