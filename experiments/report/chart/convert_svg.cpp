// SPDX-License-Identifier: Apache-2.0
// convert_svg.cpp: converts an SVG to PNG or PDF with the program rsvg-convert.
#include "experiments/report/chart/convert_svg.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "experiments/launchers/outside_program.h"
#include "framework/check.h"
#include "framework/io/atomic_file.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr double kLongestSeconds = 3600;

// The names of temporary files next to the output file. They are removed at the end.
struct TemporaryFiles {
  std::string svg, picture;
  explicit TemporaryFiles(const std::string& file)
      : svg(cat(file, ".", ::getpid(), ".svg")), picture(cat(file, ".", ::getpid(), ".tmp")) {}
  ~TemporaryFiles() {
    std::error_code error;
    for (const std::string& path : {svg, picture}) fs::remove(path, error);
  }
  TemporaryFiles(const TemporaryFiles&) = delete;
  TemporaryFiles& operator=(const TemporaryFiles&) = delete;
};

}  // namespace

std::string svg_converter() { return find_program("rsvg-convert"); }

void convert_svg(const std::string& svg, const std::string& file, int dpi) {
  const bool pdf = file.ends_with(".pdf");
  const std::string program = svg_converter();
  if (program.empty()) {
    fail(ErrorKind::kIo, "plot",
         cat("expected the program rsvg-convert in PATH, because it makes ", file,
             ", got none; install the package librsvg2-bin, or ask for SVG only"));
  }
  // The converter would read a name that begins with - as an option.
  const std::string path = fs::absolute(file).string();
  const TemporaryFiles files(path);
  write_file(files.svg, svg);
  std::vector<std::string> words = {program,   "--format", pdf ? "pdf" : "png", "--dpi-x", "96",
                                    "--dpi-y", "96"};
  if (!pdf) {
    words.emplace_back("--zoom");
    words.push_back(fmt::format("{:.6f}", dpi / 96.0));
  }
  words.insert(words.end(), {"--output", files.picture, files.svg});
  const OutsideAnswer answer = ask_program(words, "", "", kLongestSeconds);
  if (answer.exit_code != 0) {
    fail(ErrorKind::kIo, "plot",
         cat("expected ", program, " to make ", file, ", got exit code ", answer.exit_code, ": ",
             answer.err.substr(0, answer.err.find('\n'))));
  }
  std::error_code error;
  fs::rename(files.picture, path, error);
  if (error) {
    fail(ErrorKind::kIo, "plot", cat("expected to write ", file, ", got: ", error.message()));
  }
}

}  // namespace convscope
