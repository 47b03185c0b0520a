// SPDX-License-Identifier: Apache-2.0
// completion_command.cpp: `convscope completion bash|zsh|fish`: a completion script for commands,
// options, config names and keys. The script asks the program itself (`completion words`), so it is
// never older than the program.
#include <iostream>
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/cli/guide/candidates.h"

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
