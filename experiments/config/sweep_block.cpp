// SPDX-License-Identifier: Apache-2.0
// sweep_block.cpp: combines the axes of a sweep into members, each with a resolved config.
#include "experiments/config/sweep_block.h"

#include <algorithm>
#include <set>

#include "experiments/config/compose.h"
#include "experiments/config/resolve.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "experiments/config/sweep_block_axes.h"

namespace convscope {
namespace config {
namespace {

constexpr std::size_t kMaxMembers = 10000;
constexpr std::size_t kLongestName = 100;
// The values of Origin::layer for the settings of a member and for overrides of the command line. A
// member's settings replace values of files, and overrides replace a member's settings.
constexpr int kMemberLayer = 1000;
constexpr int kOverrideLayer = 2000;

std::string hex_hash(std::string_view text) {  // FNV-1a, 32 bits
  std::uint32_t hash = 2166136261u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  std::string out;
  for (int shift = 28; shift >= 0; shift -= 4) out += "0123456789abcdef"[(hash >> shift) & 15u];
  return out;
}

using Choices = std::vector<const SweepChoice*>;

const SweepSetting* find_setting(const Choices& choices, const std::string& key) {
  for (const SweepChoice* choice : choices) {
    for (const SweepSetting& setting : choice->settings) {
      if (setting.key == key) return &setting;
    }
  }
  return nullptr;
}

// Returns "lenet_k5--batch_size-64", within the length limit of folder names.
std::string row_name(const Choices& choices, const std::string& sweep_name) {
  std::string name;
  for (const SweepChoice* choice : choices) {
    name += (name.empty() || choice->label.empty() ? "" : "--") + choice->label;
  }
  if (name.empty()) return sweep_name;
  if (name.size() > kLongestName) name = name.substr(0, kLongestName - 9) + "-" + hex_hash(name);
  return name;
}

class Planner {
 public:
  Planner(Node root, std::vector<std::string> overrides, const std::string& default_name,
          Mistakes& mistakes)
      : root_(std::move(root)),
        overrides_(std::move(overrides)),
        default_name_(default_name),
        mistakes_(mistakes) {}

  SweepPlan run() {
    SweepPlan plan;
    const Node all = root_;
    const Node::Entry* entry = root_.find("sweep");
    if (entry == nullptr || entry->value.kind == Node::Kind::null) {
      mistakes_.add(root_.origin,
                    "missing key 'sweep' (what differs between the members); `convscope run` "
                    "trains a single config");
      return plan;
    }
    const Node sweep = entry->value;
    block_ = read_sweep_block(sweep, mistakes_);
    std::erase_if(root_.entries, [](const Node::Entry& e) { return e.key == "sweep"; });
    check_overrides();
    if (!mistakes_.empty()) return plan;
    plan.slurm = block_.slurm;
    plan.varies_threads = block_.owners.contains("threads");
    combine(sweep.origin);
    if (!mistakes_.empty()) return plan;
    make_members(plan, sweep.origin);
    plan.yaml = text_with_name(all, plan.name);
    return plan;
  }

 private:
  struct Row {
    Choices choices;
    std::vector<std::int64_t> seeds;  // empty: the config's own
  };

  // Returns the tree as text with a fixed name, because the default name would depend on the file's
  // name.
  static std::string text_with_name(Node tree, const std::string& name) {
    std::erase_if(tree.entries, [](const Node::Entry& e) { return e.key == "name"; });
    return "name: " + quoted_if_needed(name) + "\n" + block_text(tree);
  }

  // Overrides of the command line apply to all members, so they may not set a key of zip or grid,
  // or the seed when the sweep has seeds.
  void check_overrides() {
    for (const std::string& text : overrides_) {
      const std::string key = text.substr(0, text.find('='));
      Origin origin;
      origin.source = std::make_shared<const std::string>(text);
      origin.is_override = true;
      origin.layer = kOverrideLayer;
      if (key == "seed" && !block_.seeds.empty()) {
        mistakes_.add(origin, "expected sweep.seeds=[...], because the sweep sets the seeds");
      }
      for (const auto& [owned, owner] : block_.owners) {
        if (owner == "sweep.members") continue;  // these may be overridden
        if (owned != key && !owned.starts_with(key + ".") && !key.starts_with(owned + "."))
          continue;
        mistakes_.add(
            origin, cat("expected ", owner, ".", owned, "=[...], because the sweep sets this key"));
      }
    }
  }

  void combine(const Origin& origin) {
    std::size_t count = std::max<std::size_t>(1, block_.seeds.size());
    for (const auto& axis : block_.axes) {
      if (count > kMaxMembers / axis.size()) {
        mistakes_.add(origin, cat("sweep: expected at most ", kMaxMembers, " members in all"));
        return;
      }
      count *= axis.size();
    }
    std::vector<bool> used(block_.excludes.size(), false);
    std::vector<std::size_t> place(block_.axes.size(), 0);
    for (bool more = true; more;) {
      Row row;
      for (std::size_t i = 0; i < place.size(); ++i) {
        row.choices.push_back(&block_.axes[i][place[i]]);
      }
      if (keep(row, used)) rows_.push_back(std::move(row));
      more = false;
      for (std::size_t i = place.size(); i-- > 0 && !more;) {  // the last axis varies fastest
        more = ++place[i] < block_.axes[i].size();
        if (!more) place[i] = 0;
      }
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (used[i]) continue;
      mistakes_.add(block_.excludes[i].origin,
                    cat("sweep.exclude.", i, ": expected values that some member has, got ",
                        "a map that fits none"));
    }
    if (rows_.empty() && mistakes_.empty()) {
      mistakes_.add(block_.excludes.front().origin,
                    "sweep.exclude: expected at least one member to be left, got all of them "
                    "excluded");
    }
  }

  // Removes the excluded seeds of the row. Returns false when no member of the row is left.
  bool keep(Row& row, std::vector<bool>& used) {
    row.seeds = block_.seeds;
    bool all_gone = false;
    for (std::size_t i = 0; i < block_.excludes.size(); ++i) {
      const SweepExclude& exclude = block_.excludes[i];
      const SweepSetting* seed = nullptr;
      bool fits = true;
      for (const SweepSetting& setting : exclude.settings) {
        if (setting.key == "seed") {
          seed = &setting;
        } else if (setting.key == "name") {
          fits = fits && setting.value.kind == Node::Kind::scalar &&
                 std::any_of(row.choices.begin(), row.choices.end(), [&](const auto* choice) {
                   return choice->label == setting.value.text;
                 });
        } else {
          const SweepSetting* own = find_setting(row.choices, setting.key);
          fits = fits && own != nullptr && same_value(own->value, setting.value);
        }
      }
      if (!fits) continue;
      if (seed == nullptr) {
        used[i] = all_gone = true;
        continue;
      }
      const bool any = std::erase_if(row.seeds, [&](std::int64_t own) {
                         const OptionValue value = typed_scalar(seed->value);
                         return value == OptionValue(own);
                       }) > 0;
      if (any) used[i] = true;
      if (any && row.seeds.empty()) all_gone = true;
    }
    return !all_gone;
  }

  ExperimentConfig config_of(const Row& row, const std::int64_t* seed, Mistakes& mistakes) const {
    Node tree = root_;
    const auto put = [&](const std::string& key, Origin origin, Node value) {
      origin.layer = kMemberLayer;
      set_layer(value, kMemberLayer);
      assign(tree, key, origin, std::move(value), mistakes);
    };
    for (const SweepChoice* choice : row.choices) {
      for (const SweepSetting& setting : choice->settings) {
        put(setting.key, setting.origin, setting.value);
      }
    }
    if (seed != nullptr) {
      Node value;
      value.kind = Node::Kind::scalar;
      value.origin = root_.origin;
      value.text = std::to_string(*seed);
      put("seed", root_.origin, value);
    }
    int layer = kOverrideLayer;
    for (const std::string& text : overrides_) apply_override(tree, text, layer++, mistakes);
    return resolve(tree, default_name_, mistakes);
  }

  void make_members(SweepPlan& plan, const Origin& origin) {
    std::vector<std::int64_t> seeds = block_.seeds;
    if (seeds.empty()) seeds = {0};  // one pass, with the config's own
    std::set<std::string> names;
    for (std::size_t pass = 0; pass < seeds.size(); ++pass) {
      for (const Row& row : rows_) {
        const bool own = block_.seeds.empty();
        if (!own && std::find(row.seeds.begin(), row.seeds.end(), seeds[pass]) == row.seeds.end()) {
          continue;
        }
        SweepMember member;
        member.config = config_of(row, own ? nullptr : &seeds[pass], mistakes_);
        if (plan.name.empty()) plan.name = member.config.name;
        member.row = row_name(row.choices, plan.name);
        member.config.name = member.row;
        member.place = (row.choices.empty() ? origin : row.choices.front()->origin).comment();
        for (const SweepChoice* choice : row.choices) {
          for (const SweepSetting& setting : choice->settings) {
            member.overrides.emplace_back(setting.key, flow_text(setting.value));
          }
        }
        plan.members.push_back(std::move(member));
      }
      if (!mistakes_.empty()) return;  // the next seed would only repeat the mistakes
    }
    for (const Row& row : rows_) {
      SweepRow named{.name = row_name(row.choices, plan.name), .reference = {}};
      for (const SweepChoice* choice : row.choices) {
        named.reference.insert(choice->reference.begin(), choice->reference.end());
      }
      if (!names.insert(named.name).second) {
        mistakes_.add(row.choices.front()->origin,
                      cat("sweep: expected rows with different names, got '", named.name,
                          "' twice; name the members differently"));
      }
      if (named.name.starts_with("sweep.")) {
        mistakes_.add(row.choices.front()->origin,
                      cat("sweep: expected a row's name that does not begin with 'sweep.', because "
                          "the files of the sweep do, got '",
                          named.name, "'"));
      }
      plan.rows.push_back(std::move(named));
    }
  }

  Node root_;
  std::vector<std::string> overrides_;
  std::string default_name_;
  Mistakes& mistakes_;
  SweepBlock block_;
  std::vector<Row> rows_;
};

bool is_of_sweep(const std::string& text) {
  return text.starts_with("sweep.") || text.starts_with("sweep=");
}

}  // namespace
}  // namespace config

SweepPlan parse_sweep_text(std::string_view yaml, std::string_view file_name,
                           const ConfigReader& reader, const std::vector<std::string>& overrides) {
  // Overrides of keys of the block `sweep:` apply before the block is read; all other overrides
  // replace values of the members.
  std::vector<std::string> sweep_texts, member_texts;
  for (const std::string& text : overrides) {
    (config::is_of_sweep(text) ? sweep_texts : member_texts).push_back(text);
  }
  config::Mistakes mistakes;
  config::Node root = config::compose(yaml, std::string(file_name), reader, sweep_texts, mistakes);
  if (!mistakes.all_harmless()) mistakes.throw_if_any();
  SweepPlan plan = config::Planner(std::move(root), std::move(member_texts),
                                   config::name_from_file(file_name), mistakes)
                       .run();
  mistakes.throw_if_any();
  return plan;
}

bool holds_sweep(const std::string& path, const std::vector<std::string>& overrides) {
  config::Mistakes mistakes;  // the loader of the file reports them
  const std::string file = find_config(path);
  const config::Node root =
      config::compose(config::read_named_file(file), file, config::read_file, overrides, mistakes);
  const config::Node::Entry* const sweep = root.find("sweep");
  return sweep != nullptr && sweep->value.kind != config::Node::Kind::null;
}

SweepPlan load_sweep(const std::string& path, const std::vector<std::string>& overrides) {
  const std::string file = find_config(path);
  return parse_sweep_text(config::read_named_file(file), file, config::read_file, overrides);
}

}  // namespace convscope
