// SPDX-License-Identifier: Apache-2.0
// run_view.cpp: the progress of a run, read from its files while another process writes them.
#include "experiments/watch/run_view.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/report/csv_table.h"
#include "experiments/report/html/markup.h"
#include "experiments/report/index/index_rows.h"
#include "framework/int_math.h"
#include "framework/io/clean_text.h"
#include "framework/io/file_start.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kLogLines = 12;
constexpr std::streamoff kLogTail = 16384;                         // bytes
constexpr std::uintmax_t kMetricsTail = std::uintmax_t{64} << 20;  // half a million rows
constexpr double kStartingSeconds = 120;  // time after which a folder without a status is given up

// Returns whether the file has changed since the last look.
bool is_new(const std::string& path, fs::file_time_type& seen) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(path, error);
  if (error || time == seen) return false;
  seen = time;
  return true;
}

double seconds_since_change(const std::string& path) {
  std::error_code error;
  const auto age = fs::file_time_type::clock::now() - fs::last_write_time(path, error);
  return error ? 0 : std::max(0.0, std::chrono::duration<double>(age).count());
}

std::vector<std::string> last_lines(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};  // opening a pipe would block
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - kLogTail));
  std::vector<std::string> out;
  std::string line;
  if (size > kLogTail) std::getline(in, line);  // half a line
  while (std::getline(in, line)) {
    out.push_back(clean_line(line));
    if (out.size() > kLogLines) out.erase(out.begin());
  }
  return out;
}

// The largest number of steps or epochs. A file may contain a larger number, which is clipped.
constexpr std::int64_t kMaxSteps = std::int64_t{1} << 53;

std::int64_t steps_in(double value) {
  return static_cast<std::int64_t>(std::clamp(value, 0.0, static_cast<double>(kMaxSteps)));
}

std::int64_t whole_number(const std::map<std::string, std::string>& settings, const char* key) {
  const auto it = settings.find(key);
  std::int64_t value = 0;
  if (it == settings.end()) return 0;
  std::from_chars(it->second.data(), it->second.data() + it->second.size(), value);
  return std::clamp<std::int64_t>(value, 0, kMaxSteps);
}

// Returns the expected number of steps per epoch, which is shown until the first epoch has ended.
// Returns 0 if the config does not tell the size of the data set.
std::int64_t expected_steps_per_epoch(const std::map<std::string, std::string>& settings) {
  std::int64_t images = whole_number(settings, "data.train_size");
  const std::int64_t limit = whole_number(settings, "data.limit");
  if (images > 0) images -= whole_number(settings, "data.val_split");
  if (limit > 0 && images > 0) images = std::min(limit, images);
  const std::int64_t batch = whole_number(settings, "data.batch_size");
  return images > 0 && batch > 0 ? ceil_div(images, batch) : 0;
}

}  // namespace

RunReader::RunReader(std::string path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  view_.path = std::move(path);
  view_.id = whole.filename().string();
  view_.name = whole.parent_path().filename().string();
  const auto settings = plain_settings(file_text(view_.path + "/config.yaml"));
  view_.epochs = whole_number(settings, "train.epochs");
  steps_per_epoch_ = expected_steps_per_epoch(settings);
}

const RunView& RunReader::look() {
  read_status();
  if (is_new(view_.path + "/summary.json", summary_time_)) {
    try {
      view_.summary = parse_summary(file_text(view_.path + "/summary.json"));
      if (!view_.summary->name.empty()) view_.name = view_.summary->name;
    } catch (const Error&) {  // status and metrics still show the progress
    }
  }
  if (view_.summary && view_.epochs == 0) view_.epochs = view_.summary->epochs_planned;
  read_metrics();
  if (is_new(view_.path + "/epochs.csv", epochs_time_)) read_epochs();
  if (is_new(view_.path + "/log.txt", log_time_)) view_.log = last_lines(view_.path + "/log.txt");
  estimate();
  return view_;
}

// The status of a stopped run is read again only when its file has changed. Reading it every time
// would also test whether the process lives, and that test takes the run's lock for a moment.
void RunReader::read_status() {
  std::error_code error;
  if (is_new(view_.path + "/status.json", status_time_) || view_.status.state == "RUNNING") {
    view_.status = read_run_status(view_.path);
  } else if (view_.status.state.empty() || view_.status.state == "STARTING") {
    const std::string config = view_.path + "/config.yaml";
    const bool young = fs::exists(config, error) && seconds_since_change(config) < kStartingSeconds;
    view_.status.state = young ? "STARTING" : "UNREADABLE";
    view_.status.reason = "status.json is not there";
  }
  view_.heartbeat_age =
      view_.status.heartbeat_unix > 0 ? unix_seconds_now() - view_.status.heartbeat_unix : kUnknown;
}

void RunReader::read_metrics() {
  const std::string path = view_.path + "/metrics.jsonl";
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error || !fs::is_regular_file(path, error) || size == metrics_read_) return;
  if (size < metrics_read_) {  // a resumed run has truncated it to its checkpoint
    metrics_read_ = 0;
    view_.losses.clear();
  }
  // Only the end of a long file is read. The first line read may be incomplete; it is not valid
  // JSON and is skipped.
  metrics_read_ = std::max(metrics_read_, size > kMetricsTail ? size - kMetricsTail : 0);
  metrics_read_ = for_each_line(path, metrics_read_, [&](std::string_view line, bool whole) {
    if (!whole) return;
    const json row = json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto value = [&](const char* key) {
      return row.is_object() && row.contains(key) && row[key].is_number() ? row[key].get<double>()
                                                                          : kUnknown;
    };
    if (!std::isfinite(value("step"))) return;
    view_.step = steps_in(value("step"));
    if (std::isfinite(value("epoch"))) view_.epoch = steps_in(value("epoch"));
    last_row_s_ = value("t");
    if (!row.contains("split") || row["split"] != "train") return;
    view_.loss = value("loss");
    view_.train_acc = value("acc");
    view_.images_per_s = value("images_per_s");
    view_.losses.emplace_back(value("step"), view_.loss);
  });
}

void RunReader::read_epochs() {
  const CsvTable epochs =
      parse_csv(file_text(view_.path + "/epochs.csv"), "epochs.csv", {"phases"});
  view_.test_accuracy.clear();
  view_.test_iou = kUnknown;
  for (std::size_t row = 0; row < epochs.rows.size(); ++row) {
    const double accuracy = epochs.number(row, "test_acc");
    if (std::isfinite(accuracy)) {
      view_.test_accuracy.emplace_back(epochs.number(row, "epoch"), accuracy);
      view_.test_iou = epochs.number(row, "test_iou");
    }
  }
  if (epochs.empty()) return;
  const std::size_t last = epochs.rows.size() - 1;
  if (view_.losses.empty()) {  // epochs shorter than the interval of metrics.jsonl
    view_.loss = epochs.number(last, "train_loss");
    view_.train_acc = epochs.number(last, "train_acc");
    view_.images_per_s = epochs.number(last, "images_per_s");
  }
  const double steps = epochs.number(last, "step") / epochs.number(last, "epoch");
  if (std::isfinite(steps) && steps > 0) steps_per_epoch_ = steps_in(std::round(steps));
}

void RunReader::estimate() {
  view_.step = std::max(view_.step, view_.status.step);
  view_.epoch = std::max(view_.epoch, view_.status.epoch);
  // Treat the total as unknown in these cases: the run had more epochs than its config has now, or
  // the estimated number of steps per epoch was too low.
  if (__builtin_mul_overflow(steps_per_epoch_, view_.epochs, &view_.steps) ||
      view_.steps < view_.step) {
    view_.steps = 0;
  }
  view_.seconds_left = kUnknown;
  if (!view_.is_going()) {
    if (view_.summary && view_.summary->seconds > 0) view_.seconds = view_.summary->seconds;
    return;
  }
  if (!std::isfinite(last_row_s_)) return;
  const double since = seconds_since_change(view_.path + "/metrics.jsonl");
  view_.seconds = last_row_s_ + since;
  if (view_.steps == 0 || view_.losses.empty()) return;
  const double pace = last_row_s_ / view_.losses.back().first;
  const double left = pace * (static_cast<double>(view_.steps) - view_.losses.back().first) - since;
  view_.seconds_left = std::max(0.0, left);
}

}  // namespace convscope
