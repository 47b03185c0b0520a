// SPDX-License-Identifier: Apache-2.0
// note_command.cpp: `convscope note`: tags and a note for an existing run. A future run gets them
// from its config (tags, note).
#include <algorithm>
#include <memory>
#include <optional>

#include "experiments/cli/command.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_summary.h"
#include "experiments/run_folder/user_words.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

struct Arguments {
  std::string run, text;
  std::vector<std::string> add, remove;
  bool has_text = false;
};

RunSummary summary_of_folder(const std::string& folder) {
  const std::optional<std::string> text = text_if_there(folder + "/summary.json");
  if (!text) {
    fail(ErrorKind::kIo, "note",
         cat("expected a run with a summary.json, got '", folder, "', which has none"));
  }
  return parse_summary(*text);
}

int note(const Arguments& a) {
  const std::string folder = resolve_run(a.run);
  const bool changes = a.has_text || !a.add.empty() || !a.remove.empty();
  RunSummary summary = summary_of_folder(folder);
  if (changes) {
    // Fails while another process works on the run, because that process would overwrite the note.
    // The summary is read again, because another process may have just written it.
    const RunFolder held = RunFolder::reopen(folder);
    summary = summary_of_folder(folder);
    std::vector<std::string> tags = tags_of_text(summary.tags);
    for (const std::string& tag : a.add) {
      if (std::ranges::find(tags, tag) == tags.end()) tags.push_back(tag);
    }
    for (const std::string& tag : a.remove) {
      if (std::erase(tags, tag) == 0) {
        fail(ErrorKind::kInvalid, "note",
             cat("expected a tag of the run, which has ",
                 summary.tags.empty() ? "none" : summary.tags, ", got '", tag, "'"));
      }
    }
    check_tags(tags);
    if (a.has_text) summary.note = a.text;
    check_note(summary.note);
    summary.tags = join(tags, ", ");
    held.write("summary.json", to_json_text(summary));
  }
  print_screen(cat("tags   ", summary.tags.empty() ? "-" : summary.tags, "\nnote   ",
                   summary.note.empty() ? "-" : summary.note, "\n"));
  return 0;
}

std::function<int()> declare(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_option("RUN", arguments->run, "run folder, or runs/NAME for its latest run")->required();
  app.add_option_function(
      "TEXT",
      [arguments](const std::string& text) {
        arguments->text = text;
        arguments->has_text = true;
      },
      "note, one line; replaces the previous note");
  app.add_option("--tag", arguments->add, "add a tag")->type_name("WORD");
  app.add_option("--untag", arguments->remove, "tag to remove")->type_name("WORD");
  return [arguments] { return note(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "note", {.summary = "Add a note and tags to a run, or print them.",
             .usage = "note RUN [TEXT] [--tag WORD]... [--untag WORD]...",
             .examples = {"note runs/quickstart \"first run on the new machine\" --tag baseline"},
             .order = 36,
             .declare = convscope::declare})
