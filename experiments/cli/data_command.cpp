// SPDX-License-Identifier: Apache-2.0
// data_command.cpp: `convscope data fetch|check|synth`: downloads, checks and generates data sets.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "datasets/files/data_files.h"
#include "datasets/files/fetch.h"
#include "datasets/files/idx.h"
#include "datasets/synthetic_digits.h"
#include "experiments/cli/command.h"
#include "framework/io/atomic_file.h"
#include "framework/io/npz.h"
#include "framework/io/output_place.h"

namespace convscope {
namespace {

struct Arguments {
  std::string set;
  std::string root;
  std::vector<std::string> mirrors;
  SyntheticDigitsOptions synth;
  std::string format = "idx";
  std::string sheet;
};

constexpr double kMiB = 1024.0 * 1024.0;

// A progress bar on stderr. It is drawn only on a terminal, at most ten times per second.
class ProgressBar {
 public:
  ~ProgressBar() { clear(); }
  void show(const std::string& file, std::int64_t done, std::int64_t total) {
    if (!on_terminal_ || total <= 0) return;
    const auto now = std::chrono::steady_clock::now();
    if (drawn_ && done < total && now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    drawn_ = true;
    constexpr std::int64_t kWidth = 30;
    const std::int64_t full = std::clamp<std::int64_t>(done * kWidth / total, 0, kWidth);
    std::fprintf(stderr, "\r\033[K%s [%s%s] %.1f of %.1f MiB", file.c_str(),
                 std::string(static_cast<std::size_t>(full), '#').c_str(),
                 std::string(static_cast<std::size_t>(kWidth - full), '.').c_str(),
                 static_cast<double>(done) / kMiB, static_cast<double>(total) / kMiB);
    std::fflush(stderr);
  }
  void clear() {
    if (drawn_) std::fputs("\r\033[K", stderr);
    drawn_ = false;
  }

 private:
  bool on_terminal_ = ::isatty(2) == 1 && global_options().verbosity >= 0;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

void print_report(const PublishedSet& set, const std::string& folder,
                  const std::vector<FileReport>& files) {
  std::size_t width = 4;
  for (const FileReport& file : files) width = std::max(width, file.file.size());
  std::printf("%s in %s\n%-*s  %10s  %-5s  %s\n", set.name.c_str(), folder.c_str(),
              static_cast<int>(width), "file", "bytes", "sound", "remark");
  for (const FileReport& file : files) {
    std::printf("%-*s  %10lld  %-5s  %s\n", static_cast<int>(width), file.file.c_str(),
                static_cast<long long>(file.bytes), file.sound ? "yes" : "NO", file.remark.c_str());
  }
}

int run_fetch(const Arguments& arguments) {
  PublishedSet set = published_set(arguments.set);
  if (!arguments.mirrors.empty()) set.mirrors = arguments.mirrors;
  const std::string folder = fetch_folder(set, arguments.root);
  ProgressBar bar;
  FetchEvents events;
  events.say = [&](const std::string& line) {
    bar.clear();
    print_remark(line);
  };
  events.progress = [&](const std::string& file, std::int64_t done, std::int64_t total) {
    bar.show(file, done, total);
  };
  fetch(set, folder, events);
  bar.clear();
  print_report(set, folder, check_files(set, folder));
  return 0;
}

int run_check(const Arguments& arguments) {
  const PublishedSet& set = published_set(arguments.set);
  // Checks the files in the first folder that contains any file of the set. The order of the
  // folders is that of loading.
  const std::vector<std::string> folders = data_folders(set.name, arguments.root);
  for (const std::string& folder : folders) {
    const std::vector<FileReport> files = check_files(set, folder);
    if (std::ranges::all_of(files, [](const FileReport& f) { return f.remark == "missing"; })) {
      continue;
    }
    print_report(set, folder, files);
    const auto bad = std::ranges::count_if(files, [](const FileReport& f) { return !f.sound; });
    if (bad == 0) return 0;
    fail(ErrorKind::kData, "data check",
         cat("expected ", files.size(), " sound files of ", set.name, ", got ", bad,
             " that are missing or damaged; `convscope data fetch ", set.name,
             arguments.root.empty() ? "" : " --root " + arguments.root, "` gets them again"));
  }
  fail(ErrorKind::kData, "data check",
       cat("expected files of ", set.name, " in ", join(folders, " or "),
           ", got none; fetch them with `convscope data fetch ", set.name,
           arguments.root.empty() ? "" : " --root " + arguments.root, "`"));
}

// A picture of the first images in 10 rows of 20: row r shows samples 20 r to 20 r + 19.
std::string contact_sheet(const Dataset& from) {
  constexpr std::int64_t kRows = 10, kColumns = 20;
  const std::int64_t size = from.images.dim(2);
  std::string out = cat("P5\n", kColumns * size, " ", kRows * size, "\n255\n");
  const std::uint8_t* pixel = from.images.data<std::uint8_t>();
  for (std::int64_t h = 0; h < kRows * size; ++h) {
    for (std::int64_t w = 0; w < kColumns * size; ++w) {
      const std::int64_t sample = h / size * kColumns + w / size;
      out += sample < from.size()
                 ? static_cast<char>(pixel[(sample * size + h % size) * size + w % size])
                 : '\0';
    }
  }
  return out;
}

int run_synth(const Arguments& arguments) {
  const std::string root = arguments.root.empty() ? "." : arguments.root;
  check_output_folder(root);
  // The sheet may be in the folder that this command creates.
  if (!arguments.sheet.empty()) {
    check_output_folder(std::filesystem::path(arguments.sheet).parent_path().string());
  }
  const DatasetSplits splits = synthetic_digits(arguments.synth);
  std::error_code error;
  std::filesystem::create_directories(root, error);
  if (error) {
    fail(ErrorKind::kIo, "data synth",
         cat("expected to make the folder ", root, ", got: ", error.message()));
  }
  const auto say = [](const std::string& path) { print_result(path + "\n"); };
  if (arguments.format == "npz") {
    const std::string path = root + "/synthetic_digits.npz";
    write_npz(path, {{"train_images", splits.train.images},
                     {"train_labels", splits.train.labels},
                     {"test_images", splits.test.images},
                     {"test_labels", splits.test.labels}});
    say(path);
  } else {
    const auto put = [&](const std::string& stem, const Dataset& part) {
      const std::string images = cat(root, "/", stem, "-images-idx3-ubyte");
      const std::string labels = cat(root, "/", stem, "-labels-idx1-ubyte");
      write_file(
          images,
          idx_bytes(part.images.reshape({part.size(), part.images.dim(2), part.images.dim(3)})));
      write_file(labels, idx_bytes(part.labels.to(DType::u8)));
      say(images);
      say(labels);
    };
    put("train", splits.train);
    put("t10k", splits.test);
  }
  if (!arguments.sheet.empty()) {
    write_file(arguments.sheet, contact_sheet(splits.train));
    say(arguments.sheet);
  }
  return 0;
}

std::function<int()> declare(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  std::string names;
  for (const PublishedSet& set : published_sets()) names += (names.empty() ? "" : ", ") + set.name;
  CommandLine* fetch_app =
      app.add_subcommand("fetch", "Download a data set and verify its checksums.");
  CommandLine* check_app =
      app.add_subcommand("check", "Check the files of a data set: presence, structure, checksums.");
  CommandLine* synth_app =
      app.add_subcommand("synth", "Write the built-in synthetic digits to files.");
  for (CommandLine* sub : {fetch_app, check_app}) {
    sub->add_option("SET", arguments->set, "one of " + names)->required();
    sub->add_option("--root", arguments->root,
                    "folder of the data sets (default $CONVSCOPE_DATA, then ./data)")
        ->type_name("DIR");
  }
  fetch_app
      ->add_option("--mirror", arguments->mirrors,
                   "base URL of the files, replacing the built-in list; may be given several times")
      ->type_name("URL");
  synth_app->add_option("--root", arguments->root, "output folder (default: the current folder)")
      ->type_name("DIR");
  const auto whole = [&](const char* name, std::int64_t& value, const char* doc, std::int64_t least,
                         std::int64_t most) {
    synth_app->add_option(name, value, doc)
        ->type_name("N")
        ->capture_default_str()
        ->range(least, most);
  };
  whole("--train-size", arguments->synth.train_size, "number of training images", 1, 1'000'000);
  whole("--test-size", arguments->synth.test_size, "test images", 1, 1'000'000);
  whole("--image-size", arguments->synth.image_size, "height and width, in pixels", 8, 256);
  synth_app
      ->add_option("--warp", arguments->synth.warp,
                   "strength of rotation, shrinking and slant, from 0 (as written by hand) to 1")
      ->type_name("X")
      ->capture_default_str();
  synth_app->add_option("--seed", arguments->synth.seed, "seed of the generator")
      ->type_name("N")
      ->capture_default_str();
  synth_app
      ->add_option("--format", arguments->format,
                   "file format: idx (four files, as MNIST has) or npz")
      ->type_name("FORMAT")
      ->one_of({"idx", "npz"});
  synth_app->add_option("--sheet", arguments->sheet, "file for an overview picture (PGM)")
      ->type_name("FILE")
      ->output_file();
  app.require_subcommand(1);
  return [=] {
    if (fetch_app->parsed()) return run_fetch(*arguments);
    if (check_app->parsed()) return run_check(*arguments);
    return run_synth(*arguments);
  };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "data", {.summary = "Download, check or generate data sets.",
             .usage = "data fetch|check SET [--root DIR] [--mirror URL]\ndata synth [--root DIR]",
             .examples = {"data fetch mnist", "data check mnist --root data",
                          "data synth --root /tmp/digits --sheet /tmp/digits/sheet.pgm"},
             .order = 40,
             .declare = convscope::declare})
