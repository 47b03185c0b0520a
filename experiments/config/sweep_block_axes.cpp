// SPDX-License-Identifier: Apache-2.0
// sweep_block_axes.cpp: the block `sweep:` as written, before combination.
#include "experiments/config/sweep_block_axes.h"

#include <algorithm>
#include <set>

#include "experiments/config/compose.h"
#include "experiments/config/experiment_config.h"
#include "experiments/config/resolve.h"
#include "experiments/config/schema.h"
#include "framework/registry.h"

namespace convscope::config {
namespace {

const std::vector<std::string> kReferenceColumns = {"acc", "avg_forward", "avg_backward",
                                                    "avg_forward_mem", "avg_backward_mem"};

constexpr std::size_t kMaxKeys = 64,
                      kMaxValues = 1000;  // limits for zip and grid; keep hostile texts cheap

std::string nearest_or_known(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest_word(word, known);
  return near.empty() ? cat(" (known: ", join(known), ")") : cat("; did you mean '", near, "'?");
}

// Shortens each key to its last parts, as few as keep the keys distinct: optim.lr -> lr.
std::map<std::string, std::string> short_names(const std::vector<std::string>& keys) {
  const auto tail = [](const std::string& key, int parts) {
    std::size_t begin = key.size();
    for (int i = 0; i < parts && begin != std::string::npos; ++i) {
      begin = begin == 0 ? std::string::npos : key.rfind('.', begin - 1);
    }
    return begin == std::string::npos ? key : key.substr(begin + 1);
  };
  std::map<std::string, std::string> out;
  for (const std::string& key : keys) {
    for (int parts = 1; parts <= kMaxDepth; ++parts) {
      const auto same = [&](const std::string& other) {
        return other != key && tail(other, parts) == tail(key, parts);
      };
      out[key] = tail(key, parts);
      if (std::none_of(keys.begin(), keys.end(), same)) break;
    }
  }
  return out;
}

// Returns a value as a part of a folder name: "lsq-w_bits-4" for {method: lsq, w_bits: 4}.
std::string value_label(const Node& value) {
  std::string out;
  switch (value.kind) {
    case Node::Kind::null:
      return "none";
    case Node::Kind::scalar:
      return value.text.empty() ? "empty" : value.text;
    case Node::Kind::list:
      for (const Node& item : value.items) out += (out.empty() ? "" : "x") + value_label(item);
      return out.empty() ? "empty" : out;
    case Node::Kind::map:
      for (const Node::Entry& entry : value.entries) {
        out += (out.empty() ? "" : "-") + entry.key + "-" + value_label(entry.value);
      }
      return out.empty() ? "empty" : out;
  }
  return out;
}

class BlockReader {
 public:
  explicit BlockReader(Mistakes& mistakes) : mistakes_(mistakes) {}

  SweepBlock run(const Node& node) {
    SweepBlock block;
    if (node.kind != Node::Kind::map) {
      mistakes_.add(node.origin,
                    cat("sweep: expected a map with members, zip or grid, got ", describe(node)));
      return block;
    }
    const std::vector<std::string> known = {"members", "zip", "grid", "exclude", "seeds", "slurm"};
    for (const Node::Entry& entry : node.entries) {
      if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
      mistakes_.add(entry.origin, cat("unknown key '", printable("sweep." + entry.key), "'",
                                      nearest_or_known(entry.key, known)));
    }
    const std::map<std::string, std::string> names = short_names(list_keys(node));
    if (const Node* members = given(node, "members")) read_members(*members, block);
    if (const Node* zip = given(node, "zip")) read_zip(*zip, names, block);
    if (const Node* grid = given(node, "grid")) read_grid(*grid, names, block);
    if (const Node* exclude = given(node, "exclude")) read_excludes(*exclude, block);
    if (const Node* seeds = given(node, "seeds")) read_seeds(*seeds, block);
    if (const Node* slurm = given(node, "slurm")) read_slurm(*slurm, block);
    if (block.axes.empty() && block.seeds.empty() && mistakes_.empty()) {
      mistakes_.add(node.origin, "sweep: expected members, zip, grid or seeds, got none of them");
    }
    block.owners = owners_;
    return block;
  }

 private:
  static const Node* given(const Node& node, const char* key) {
    const Node::Entry* entry = node.find(key);
    return entry == nullptr || entry->value.kind == Node::Kind::null ? nullptr : &entry->value;
  }

  static std::vector<std::string> list_keys(const Node& node) {
    std::vector<std::string> keys;
    for (const char* name : {"zip", "grid"}) {
      const Node* lists = given(node, name);
      if (lists == nullptr || lists->entries.size() > kMaxKeys) continue;
      for (const Node::Entry& entry : lists->entries) keys.push_back(entry.key);
    }
    return keys;
  }

  // Refuses keys that may not differ between members, or for which a sweep has its own setting.
  bool refuse_own_key(const Node::Entry& entry, const std::string& path) {
    const std::string& key = entry.key;
    const char* instead = key == "seed"      ? "use sweep.seeds"
                          : key == "extends" ? "'extends' is allowed only at the top level"
                          : key == "sweep" || key.starts_with("sweep.")
                              ? "a sweep cannot contain a sweep"
                          : key == "name" ? "rows are named after their values, or in sweep.members"
                                          : nullptr;
    if (instead == nullptr) return false;
    mistakes_.add(entry.origin,
                  cat(path, ": expected a key that may differ between the members, got '",
                      printable(key), "'; ", instead));
    return true;
  }

  // Records that the list at `path` sets this key. Members, zip and grid may not set the same key.
  void claim(const Node::Entry& entry, const std::string& path) {
    const auto [old, is_first] = owners_.emplace(entry.key, path);
    if (is_first || old->second == path) return;
    mistakes_.add(entry.origin,
                  cat(path, ": expected each key in one of members, zip and grid, got '",
                      printable(entry.key), "', which is in ", old->second, " too"));
  }

  static SweepSetting setting(const std::string& key, Origin origin, const Node& value) {
    origin.is_dotted = true;
    return {key, origin, value};
  }

  void read_members(const Node& list, SweepBlock& block) {
    if (list.kind != Node::Kind::list || list.items.empty()) {
      mistakes_.add(list.origin,
                    cat("sweep.members: expected a list of at least one member, got ",
                        list.kind == Node::Kind::list ? "an empty list" : describe(list)));
      return;
    }
    std::map<std::string, Origin> names;
    std::vector<SweepChoice> axis;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      const Node& item = list.items[i];
      const std::string path = cat("sweep.members.", i);
      if (item.kind != Node::Kind::map) {
        mistakes_.add(item.origin, cat(path,
                                       ": expected a map such as {name: k5, model.kernel_size: 5}, "
                                       "got ",
                                       describe(item)));
        continue;
      }
      SweepChoice choice;
      choice.origin = item.origin;
      choice.label = member_name(item, path);
      const auto [first, is_first] = names.emplace(choice.label, item.origin);
      if (!is_first && !choice.label.empty()) {
        mistakes_.add(item.find("name")->value.origin,
                      cat(path, ".name: expected members with different names, got '", choice.label,
                          "' twice, first in line ", first->second.line));
      }
      for (const Node::Entry& entry : item.entries) {
        if (entry.key == "name") continue;
        if (entry.key == "reference") {
          choice.reference = read_reference(entry.value, path + ".reference");
          continue;
        }
        if (refuse_own_key(entry, path)) continue;
        claim(entry, "sweep.members");
        choice.settings.push_back(setting(entry.key, entry.origin, entry.value));
      }
      axis.push_back(std::move(choice));
    }
    block.axes.push_back(std::move(axis));
  }

  std::string member_name(const Node& item, const std::string& path) {
    const Node::Entry* entry = item.find("name");
    if (entry == nullptr) {
      mistakes_.add(item.origin, cat("missing key '", path, ".name' (the name of the row)"));
      return "";
    }
    const Key<ExperimentConfig>* key = nullptr;
    for (const Key<ExperimentConfig>& candidate : top_keys()) {
      if (candidate.field.name == "name") key = &candidate;
    }
    OptionField field = key->field;
    field.required = true;
    const auto value = read_value(entry->value, field, path + ".name", mistakes_);
    if (!value) return "";
    ExperimentConfig named;
    try {
      key->set(named, *value);
    } catch (const Error& error) {
      const std::string text = error.what();
      mistakes_.add(entry->value.origin, cat(path, ".name: ", text.substr(text.find("] ") + 2)));
      return "";
    }
    return named.name;
  }

  std::map<std::string, double> read_reference(const Node& node, const std::string& path) {
    std::map<std::string, double> out;
    if (node.kind != Node::Kind::map) {
      mistakes_.add(node.origin,
                    cat(path, ": expected a map such as {acc: 58.07}, got ", describe(node)));
      return out;
    }
    for (const Node::Entry& entry : node.entries) {
      if (std::find(kReferenceColumns.begin(), kReferenceColumns.end(), entry.key) ==
          kReferenceColumns.end()) {
        mistakes_.add(entry.origin, cat("unknown key '", printable(path + "." + entry.key), "'",
                                        nearest_or_known(entry.key, kReferenceColumns)));
        continue;
      }
      const OptionField field{.name = entry.key, .type = OptionType::number, .required = true};
      const auto value = read_value(entry.value, field, path + "." + entry.key, mistakes_);
      if (value) out[entry.key] = std::get<double>(*value);
    }
    return out;
  }

  // Returns the map of lists under `zip` or `grid`; false when it is not a map of lists.
  bool is_map_of_lists(const Node& node, const std::string& path) {
    if (node.kind != Node::Kind::map || node.entries.empty()) {
      mistakes_.add(node.origin,
                    cat(path, ": expected at least one key with a list of values, got ",
                        node.kind == Node::Kind::map ? "an empty map" : describe(node)));
      return false;
    }
    if (node.entries.size() > kMaxKeys) {
      mistakes_.add(node.origin,
                    cat(path, ": expected at most ", kMaxKeys, " keys, got ", node.entries.size()));
      return false;
    }
    bool fits = true;
    for (const Node::Entry& entry : node.entries) {
      if (refuse_own_key(entry, path)) {
        fits = false;
        continue;
      }
      claim(entry, path);
      const Node& list = entry.value;
      if (list.kind == Node::Kind::list && !list.items.empty() && list.items.size() <= kMaxValues) {
        continue;
      }
      fits = false;
      if (list.kind == Node::Kind::list && !list.items.empty()) {
        mistakes_.add(list.origin, cat(path, ".", printable(entry.key), ": expected at most ",
                                       kMaxValues, " values, got ", list.items.size()));
        continue;
      }
      mistakes_.add(
          list.origin,
          cat(path, ".", printable(entry.key), ": expected a list of at least one value",
              list.kind == Node::Kind::map ? ", under a key with dots such as optim.lr" : "",
              ", got ", list.kind == Node::Kind::list ? "an empty list" : describe(list)));
    }
    return fits;
  }

  void read_zip(const Node& node, const std::map<std::string, std::string>& names,
                SweepBlock& block) {
    if (!is_map_of_lists(node, "sweep.zip")) return;
    const std::size_t length = node.entries[0].value.items.size();
    std::vector<SweepChoice> axis(length);
    for (const Node::Entry& entry : node.entries) {
      if (entry.value.items.size() != length) {
        mistakes_.add(entry.value.origin,
                      cat("sweep.zip: expected lists of one length, because they are taken side by "
                          "side, got ",
                          length, " values of '", printable(node.entries[0].key), "' and ",
                          entry.value.items.size(), " of '", printable(entry.key), "'"));
        return;
      }
      for (std::size_t i = 0; i < length; ++i) {
        add_value(axis[i], entry, entry.value.items[i], names.at(entry.key));
      }
    }
    make_labels_differ(axis);
    block.axes.push_back(std::move(axis));
  }

  void read_grid(const Node& node, const std::map<std::string, std::string>& names,
                 SweepBlock& block) {
    if (!is_map_of_lists(node, "sweep.grid")) return;
    for (const Node::Entry& entry : node.entries) {
      std::vector<SweepChoice> axis;
      for (const Node& value : entry.value.items) {
        for (const SweepChoice& other : axis) {
          if (!same_value(other.settings[0].value, value)) continue;
          mistakes_.add(value.origin,
                        cat("sweep.grid.", printable(entry.key),
                            ": expected different values, got ", flow_text(value), " twice"));
          return;
        }
        SweepChoice choice;
        add_value(choice, entry, value, names.at(entry.key));
        axis.push_back(std::move(choice));
      }
      make_labels_differ(axis);
      block.axes.push_back(std::move(axis));
    }
  }

  static void add_value(SweepChoice& choice, const Node::Entry& entry, const Node& value,
                        const std::string& name) {
    choice.label += (choice.label.empty() ? "" : "--") + folder_name(name) + "-" +
                    folder_name(value_label(value));
    choice.origin = value.origin;
    // The setting has the position of the key, and value.origin has that of the value, so that each
    // error is reported at the right place.
    choice.settings.push_back(setting(entry.key, entry.origin, value));
  }

  // Makes the labels of an axis distinct. Two labels may be equal, because characters that a folder
  // name cannot contain are replaced.
  static void make_labels_differ(std::vector<SweepChoice>& axis) {
    std::set<std::string> seen;
    for (SweepChoice& choice : axis) {
      const std::string label = choice.label;
      for (int number = 2; !seen.insert(choice.label).second; ++number) {
        choice.label = cat(label, "-", number);
      }
    }
  }

  void read_excludes(const Node& list, SweepBlock& block) {
    if (list.kind != Node::Kind::list) {
      mistakes_.add(list.origin, cat("sweep.exclude: expected a list of maps such as "
                                     "{data.batch_size: 4}, got ",
                                     describe(list)));
      return;
    }
    std::vector<std::string> known = {"name", "seed"};
    for (const auto& [key, owner] : owners_) known.push_back(key);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      const Node& item = list.items[i];
      const std::string path = cat("sweep.exclude.", i);
      if (item.kind != Node::Kind::map || item.entries.empty()) {
        mistakes_.add(item.origin,
                      cat(path, ": expected a map such as {data.batch_size: 4}, got ",
                          item.kind == Node::Kind::map ? "an empty one" : describe(item)));
        continue;
      }
      SweepExclude exclude;
      exclude.origin = item.origin;
      for (const Node::Entry& entry : item.entries) {
        if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
          mistakes_.add(entry.origin,
                        cat(path, ": expected a key that members, zip or grid set, got '",
                            printable(entry.key), "'", nearest_or_known(entry.key, known)));
        }
        exclude.settings.push_back(setting(entry.key, entry.origin, entry.value));
      }
      block.excludes.push_back(std::move(exclude));
    }
  }

  void read_seeds(const Node& list, SweepBlock& block) {
    const OptionField field{
        .name = "seeds", .type = OptionType::integers, .required = true, .min = 0};
    if (list.kind != Node::Kind::list || list.items.empty()) {
      mistakes_.add(list.origin,
                    cat("sweep.seeds: expected a list of at least one seed such as [1, 2, 3], got ",
                        list.kind == Node::Kind::list ? "an empty list" : describe(list)));
      return;
    }
    const auto value = read_value(list, field, "sweep.seeds", mistakes_);
    if (!value) return;
    for (std::int64_t seed : std::get<std::vector<std::int64_t>>(*value)) {
      if (std::find(block.seeds.begin(), block.seeds.end(), seed) != block.seeds.end()) {
        mistakes_.add(list.origin,
                      cat("sweep.seeds: expected different seeds, got ", seed, " twice"));
      }
      block.seeds.push_back(seed);
    }
  }

  void read_slurm(const Node& map, SweepBlock& block) {
    if (map.kind != Node::Kind::map) {
      mistakes_.add(map.origin,
                    cat("sweep.slurm: expected a map such as {partition: gpu, time: 30}, got ",
                        describe(map)));
      return;
    }
    for (const Node::Entry& entry : map.entries) {
      const Node& value = entry.value;
      if (value.kind == Node::Kind::null) continue;
      const std::string wrong = value.kind == Node::Kind::scalar
                                    ? block.slurm.set(printable(entry.key), printable(value.text))
                                    : cat("expected a number or a text for ", printable(entry.key),
                                          ", got ", describe(value));
      if (!wrong.empty()) mistakes_.add(entry.origin, cat("sweep.slurm: ", wrong));
    }
  }

  Mistakes& mistakes_;
  std::map<std::string, std::string> owners_;  // key -> "sweep.grid"
};

}  // namespace

SweepBlock read_sweep_block(const Node& node, Mistakes& mistakes) {
  return BlockReader(mistakes).run(node);
}

}  // namespace convscope::config
