// SPDX-License-Identifier: Apache-2.0
// look_command.cpp: `convscope look`: a page that plays the lesson of an algorithm.
#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/look/look_page.h"
#include "experiments/run_folder/user_words.h"
#include "framework/io/atomic_file.h"
#include "framework/io/output_place.h"

namespace convscope {
namespace {

struct LookArguments {
  std::string algorithm, problem, output;
  std::string direction = "forward";
};

Direction direction_named(const std::string& name) {
  std::vector<std::string> known;
  for (const Direction direction : kDirections) {
    if (name == name_of(direction)) return direction;
    known.emplace_back(name_of(direction));
  }
  fail_usage("look", cat("expected --direction ", join(known, ", "), ", got '", name, "'",
                         did_you_mean(name, known)));
}

// Returns "look-winograd.html".
std::string page_of(const std::string& algorithm) {
  std::string name = algorithm;
  constexpr std::string_view kEnding = "_lesson";
  if (name.ends_with(kEnding)) name.resize(name.size() - kEnding.size());
  return cat("look-", name, ".html");
}

int look(const LookArguments& arguments) {
  const Direction direction = direction_named(arguments.direction);
  std::filesystem::path path =
      arguments.output.empty() ? page_of(arguments.algorithm) : arguments.output;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path /= page_of(arguments.algorithm);
  if (path.string() == arguments.output) check_output_files({arguments.output});
  const Look look = look_at(arguments.algorithm, arguments.problem, direction);
  write_file(path.string(), look.page);
  print_screen(cat(path.string(), "\n", look.lesson, ", ", name_of(direction), ", ",
                   look.problem.text(), ": ", look.reads, " reads, ", look.writes, " writes, ",
                   look.products, " multiplications (textbook: ", look.textbook, ")",
                   look.scalings == 0 ? "" : cat(", ", look.scalings, " more by constants"), "\n"));
  if (!look.other_algorithm.empty()) print_remark(cat("note: ", look.other_algorithm));
  print_remark("note: open it in a browser; it needs no other file");
  return 0;
}

std::function<int()> declare_look(CommandLine& app) {
  auto arguments = std::make_shared<LookArguments>();
  app.add_option("ALGORITHM", arguments->algorithm,
                 cat("algorithm with a lesson: ", join(lessons_to_look_at())))
      ->required()
      ->suggest(lessons_to_look_at());
  app.add_option(
         "--problem", arguments->problem,
         cat("small problem, such as n=1,c=2,h=5,w=5,k=2,r=3,s=3,pad=1; a page holds at most ",
             kMaxLookEvents, " reads, writes and additions (default: the lesson's own)"))
      ->type_name("TEXT");
  std::vector<std::string> directions;
  for (const Direction direction : kDirections) directions.emplace_back(name_of(direction));
  app.add_option("--direction", arguments->direction, join(directions, ", "))
      ->type_name("D")
      ->capture_default_str()
      ->suggest(directions);
  app.add_option("-o,--output", arguments->output,
                 "output page, or its folder (default: look-ALGORITHM.html)")
      ->type_name("FILE");
  return [arguments] { return look(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "look", {.summary = "Make an HTML page that plays an algorithm step by step.",
             .usage = "look ALGORITHM [--problem TEXT] [--direction D] [-o FILE]",
             .examples = {"look winograd",
                          "look direct --problem n=1,c=1,h=6,w=6,k=1,r=3,s=3,stride=2 -o look.html",
                          "look fft --direction backward_weight"},
             .order = 47,
             .group = "Study algorithms",
             .declare = convscope::declare_look})
