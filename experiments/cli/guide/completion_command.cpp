// SPDX-License-Identifier: Apache-2.0
// completion_command.cpp: `convscope completion bash|zsh|fish`: a completion script for commands,
// options, config names and keys. The script asks the program itself (`completion words`), so it is
// never older than the program.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "experiments/cli/command.h"
#include "experiments/config/experiment_config.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "layers/conv2d/algorithm.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"

namespace convscope {
namespace {

// bash also splits words at '='. The script joins them again and returns only the part of a
// completion after the '='.
constexpr const char* kBash =
    R"(# bash completion of convscope, from `convscope completion bash`. Use it with
#   source <(convscope completion bash)      # in ~/.bashrc
_convscope() {
  local words=() word line i
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if ((${#words[@]} > 0)) && [[ $word == = || ${COMP_WORDS[i - 1]} == = ]]; then
      words[${#words[@]} - 1]+=$word
    else
      words+=("$word")
    fi
  done
  word=${words[${#words[@]} - 1]}
  local typed=$word cut=""
  if [[ $word == *=* && $COMP_WORDBREAKS == *=* ]]; then
    cut=${word%%=*}=
    typed=${word#*=}
  fi
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$typed")
        compopt -o filenames 2>/dev/null ;;
      :folders) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$typed")
        compopt -o filenames 2>/dev/null ;;
      *) line=${line%%$'\t'*}
        COMPREPLY+=("${line#"$cut"}") ;;
    esac
  done < <("${COMP_WORDS[0]}" completion words "${words[@]/#/:}" 2>/dev/null)
  if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace 2>/dev/null
  fi
  return 0
}
complete -F _convscope convscope
)";

constexpr const char* kZsh = R"(#compdef convscope
# zsh completion of convscope, from `convscope completion zsh`. Use it with
#   source <(convscope completion zsh)       # in ~/.zshrc, behind compinit
_convscope() {
  local line text
  local -a texts abouts keys about_keys
  for line in "${(@f)$("$words[1]" completion words "${(@)words[2,CURRENT]/#/:}" 2>/dev/null)}"; do
    text=${line%%$'\t'*}
    case $line in
      '') ;;
      :files) _files ;;
      :folders) _files -/ ;;
      *=$'\t'*) keys+=("$text"); about_keys+=("$text  ${line#*$'\t'}") ;;
      *) texts+=("$text"); abouts+=("$text  ${line#*$'\t'}") ;;
    esac
  done
  compadd -l -d abouts -a texts
  compadd -l -S '' -d about_keys -a keys
}
if [[ $funcstack[1] == _convscope ]]; then
  _convscope "$@"
else
  compdef _convscope convscope
fi
)";

constexpr const char* kFish =
    R"(# fish completion of convscope, from `convscope completion fish`. Use it with
#   convscope completion fish | source       # in ~/.config/fish/config.fish
function __convscope_candidates
    set -l words (commandline -opc)
    set -l now (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    for line in ($program completion words :$words ":$now" 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path "$now"
            case :folders
                __fish_complete_directories "$now"
            case '*'
                echo $line
        end
    end
end
complete -c convscope -f -a '(__convscope_candidates)'
)";

struct Candidates {
  struct One {
    std::string text, about;
  };
  std::vector<One> words;  // all begin with the last word; no blank follows a final '='
  bool files = false;      // file and folder names fit too
  bool folders = false;    // folder names fit too
};

using OptionFacts = CommandOption::Facts;

// Finds an option of the command or of an outer one.
std::optional<OptionFacts> option_named(const CommandLine& line, const std::string& word) {
  for (const CommandLine* here = &line; here != nullptr; here = here->outer()) {
    for (const OptionFacts& option : here->options()) {
      for (const std::string& name : option.names) {
        if (word == "--" + name) return option;
      }
      for (const std::string& name : option.short_names) {
        if (word == "-" + name) return option;
      }
    }
  }
  return std::nullopt;
}

const CommandLine* nested_named(const CommandLine& line, const std::string& word) {
  const auto found = std::ranges::find(line.nested(), word, &CommandLine::name);
  return found == line.nested().end() ? nullptr : &*found;
}

// Returns "optim.momentum" for "optim[sgd].momentum". Returns "" for keys that contain an index or
// the name of a layer.
std::string plain_key(const std::string& path) {
  const std::size_t open = path.find('['), close = path.find(']');
  if (path.find('<') != std::string::npos || path == "extends") return "";
  if (open == std::string::npos) return path;
  if (close == open + 1 || path.starts_with("layers")) return "";
  return path.substr(0, open) + path.substr(close + 1);
}

std::map<std::string, OptionField> keys_of_configs() {
  std::map<std::string, OptionField> out;
  for (const ConfigKey& key : config_keys()) {
    const std::string path = plain_key(key.path);
    if (!path.empty()) out.emplace(path, key.field);
  }
  return out;
}

std::vector<std::string> values_of(const std::string& key, const OptionField& field) {
  if (key == "data.set") return dataset_types().names();
  if (key == "model.type") return model_types().names();
  if (key == "optim.type") return optimizer_types().names();
  if (key == "optim.schedule.type") return schedule_types().names();
  if (key == "device") return {"cpu", "cuda"};
  if (key.starts_with("conv.")) {
    std::vector<std::string> names = conv2d_algorithms(DeviceType::cpu).names();
    names.insert(names.begin(), {"auto", "measure"});
    return names;
  }
  if (field.type == OptionType::boolean) return {"true", "false"};
  return field.choices;
}

class Finder {
 public:
  Finder(const CommandLine& program, const std::vector<std::string>& words)
      : program_(program), here_(&program), last_(words.empty() ? "" : words.back()) {
    for (std::size_t i = 0; i + 1 < words.size(); ++i) pass(words[i]);
  }

  Candidates find() {
    if (value_of_) {
      add_value(*value_of_);
    } else if (last_.starts_with("-")) {
      add_options();
    } else {
      if (given_.empty()) add_commands(*here_);
      add_positional();
    }
    return std::move(out_);
  }

 private:
  void pass(const std::string& word) {
    if (value_of_) {
      value_of_.reset();
    } else if (word.starts_with("-")) {
      const std::optional<OptionFacts> option = option_named(*here_, word);
      if (option && option->values > 0) value_of_ = option;
    } else if (const CommandLine* nested = nested_named(*here_, word);
               nested != nullptr && given_.empty()) {
      here_ = nested;
    } else {
      given_.push_back(word);
    }
  }

  void add(const std::string& text, const std::string& about) {
    if (text.starts_with(last_)) out_.words.push_back({text, about.substr(0, about.find('\n'))});
  }

  void add_names(const std::vector<std::string>& names) {
    for (const std::string& name : names) add(name, "");
  }

  void add_commands(const CommandLine& line) {
    for (const CommandLine& nested : line.nested()) add(nested.name(), nested.description());
  }

  void add_options() {
    for (const CommandLine* here = here_; here != nullptr; here = here->outer()) {
      for (const OptionFacts& option : here->options()) {
        for (const std::string& name : option.names) add("--" + name, option.description);
        for (const std::string& name : option.short_names) add("-" + name, option.description);
      }
    }
  }

  void add_value(const OptionFacts& option) {
    add_names(option.choices);
    if (!option.choices.empty() || option.type == "N" || option.type == "INT") return;
    (option.type == "DIR" || option.type == "RUN" ? out_.folders : out_.files) = true;
  }

  // Adds completions of a positional argument; the last one may take several words.
  void add_positional() {
    std::vector<OptionFacts> places;
    for (const OptionFacts& option : here_->options()) {
      if (option.is_positional) places.push_back(option);
    }
    if (places.empty()) return;
    const OptionFacts& place = places[std::min(given_.size(), places.size() - 1)];
    const bool many = place.values > 1;
    if (place.name == "COMMAND") return add_commands_behind();
    if (place.name == "SET") return add_names(dataset_types().names());
    if (place.name == "CONFIG|MODEL|RUN") add_names(model_types().names());
    if (place.name.starts_with("CONFIG") && (!many || given_.empty())) return add_configs();
    if (place.name.starts_with("CONFIG") || place.name == "KEY=VALUE") return add_keys();
    add_names(place.choices);
    out_.files = place.choices.empty() && place.name != "TEXT";
  }

  void add_commands_behind() {
    const CommandLine* line = &program_;
    for (const std::string& word : given_) {
      line = nested_named(*line, word);
      if (line == nullptr) return;
    }
    add_commands(*line);
  }

  void add_configs() {
    for (const ShippedConfig& config : shipped_configs()) add(config.name, config.about);
    out_.files = true;
  }

  void add_keys() {
    const std::size_t equals = last_.find('=');
    for (const auto& [key, field] : keys_of_configs()) {
      if (equals == std::string::npos) {
        add(key + "=", field.doc);
      } else if (key == last_.substr(0, equals)) {
        for (const std::string& value : values_of(key, field)) add(cat(key, "=", value), "");
      }
    }
  }

  const CommandLine& program_;
  const CommandLine* here_;
  std::string last_;
  std::vector<std::string> given_;       // positional words
  std::optional<OptionFacts> value_of_;  // the option that the next word belongs to
  Candidates out_;
};

// Returns the completions of the last word of a command line. `words` follow the program's name;
// the last one, which is being typed, may be empty.
Candidates candidates_for(const CommandLine& program, const std::vector<std::string>& words) {
  return Finder(program, words).find();
}

// Prints one line per completion: the word, a tab, its description. A line ":files" or ":folders"
// follows if names of files or folders are possible, too. In the command line that the script
// passes, each word begins with a ':', so that no word is empty or looks like an option.
int print_words(const CommandLine& program, const std::vector<std::string>& marked) {
  std::vector<std::string> words;
  for (const std::string& word : marked) words.push_back(word.substr(word.starts_with(':')));
  const Candidates found = candidates_for(program, words);
  std::string out;
  for (const Candidates::One& one : found.words) out += cat(one.text, "\t", one.about, "\n");
  if (found.files) out += ":files\n";
  if (found.folders) out += ":folders\n";
  print_result(out);
  return 0;
}

std::function<int()> declare_completion(CommandLine& app) {
  auto words = std::make_shared<std::vector<std::string>>();
  CommandLine* const bash = app.add_subcommand("bash", "source <(convscope completion bash)");
  CommandLine* const zsh = app.add_subcommand("zsh", "source <(convscope completion zsh)");
  app.add_subcommand("fish", "convscope completion fish | source");
  CommandLine* const asked =
      app.add_subcommand("words", "Print the completions of a command line, for the scripts.");
  asked->add_option("WORD", *words, "command line so far, with a ':' before each word");
  app.require_subcommand(1);
  return [=, &app] {
    if (asked->parsed()) return print_words(*app.outer(), *words);
    print_result(bash->parsed() ? kBash : zsh->parsed() ? kZsh : kFish);
    return 0;
  };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("completion",
                           {.summary = "Print a completion script for bash, zsh or fish.",
                            .usage = "completion bash|zsh|fish",
                            .examples = {"completion bash > ~/.convscope_completion",
                                         "completion fish > ~/.config/fish/completions/"
                                         "convscope.fish"},
                            .order = 90,
                            .declare = convscope::declare_completion})
