// SPDX-License-Identifier: Apache-2.0
// watch_test.cpp: tests which files `convscope watch` reads and what it shows.
// watch_terminal_test.py in this folder tests the terminal.
#include <gtest/gtest.h>
#include <sys/file.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "experiments/watch/folder_view.h"
#include "framework/io/atomic_file.h"
#include "tests/experiments/program.h"
#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

std::string text_of_lines(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

// Writes the status of a run on this host. If the lock of the run is free, its process no longer
// exists.
void set_state(const std::string& folder, const std::string& state, int exit_code = -1) {
  nlohmann::json status = nlohmann::json::parse(text_of(folder + "/status.json"));
  char host[256] = {};
  EXPECT_EQ(gethostname(host, sizeof host - 1), 0);
  status["host"] = host;
  status["state"] = state;
  status["exit_code"] = exit_code < 0 ? nlohmann::json() : nlohmann::json(exit_code);
  write_file(folder + "/status.json", status.dump());  // whole, as a run writes it
}

// Locks a run, as the process that trains it does.
class Lock {
 public:
  explicit Lock(const std::string& folder)
      : file_(open((folder + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    EXPECT_EQ(flock(file_, LOCK_EX | LOCK_NB), 0);
  }
  ~Lock() { close(file_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int file_;
};

TEST(TextCurve, draws_a_rising_line_from_below_to_above) {
  const auto lines = text_curve({{0, 1}, {1, 2}, {2, 3}}, 12, 3, CurveInk::stars);
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(lines[0], "3         **");
  EXPECT_EQ(lines[1], "     *****  ");
  EXPECT_EQ(lines[2], "1 ***       ");
}

TEST(TextCurve, takes_points_in_any_order) {
  for (const CurveInk ink : {CurveInk::stars, CurveInk::braille}) {
    EXPECT_EQ(text_curve({{2, 3}, {0, 1}, {1, 2}}, 12, 3, ink),
              text_curve({{0, 1}, {1, 2}, {2, 3}}, 12, 3, ink));
  }
  // The second and third point have x values far outside of the range between the first and the
  // last point, as in a file with reordered lines.
  const auto lines =
      text_curve({{1000, 1}, {1e9, 2}, {-1e9, 3}, {1001, 4}}, 40, 3, CurveInk::stars);
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(lines[0].back(), ' ');  // the last point, 2, is below the highest
}

TEST(TextCurve, draws_the_largest_and_the_smallest_numbers_there_are) {
  const double most = std::numeric_limits<double>::max();
  const double least = std::numeric_limits<double>::denorm_min();
  for (const double x : {most, least, 0.0}) {
    for (const double y : {most, least, 1e300, 0.0}) {
      for (const auto& line : text_curve({{-x, -y}, {0, y}, {x, y}}, 40, 3, CurveInk::braille)) {
        EXPECT_EQ(columns_of(line), 40);
      }
    }
  }
}

TEST(TextCurve, leaves_out_what_is_not_finite_and_survives_any_size) {
  EXPECT_TRUE(text_curve({}, 40, 4, CurveInk::braille).empty());
  EXPECT_TRUE(text_curve({{0, std::nan("")}}, 40, 4, CurveInk::braille).empty());
  EXPECT_TRUE(text_curve({{0, 1}}, 3, 4, CurveInk::braille).empty());
  for (int columns = 8; columns < 40; ++columns) {
    for (const auto& line :
         text_curve({{0, 5}, {7, 5}, {8, INFINITY}}, columns, 2, CurveInk::braille)) {
      EXPECT_EQ(columns_of(line), columns);
    }
  }
}

TEST(TextCurve, text_of_others_cannot_drive_the_terminal) {
  EXPECT_EQ(fit_text("a\033[2Jb\tc\xC2\x9B", 20), "a?[2Jb?c?");
  EXPECT_EQ(fit_text("\xC3\xA4\xC3\xB6\xC3\xBC", 2), "\xC3\xA4\xC3\xB6");
}

TEST(Watch, shows_a_run_that_is_going_on) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  set_state(folder, "RUNNING");
  write_text(folder + "/log.txt", "2026-01-01T00:00:00Z the last line\n");
  const Lock lock(folder);
  RunReader reader(folder);
  const RunView& run = reader.look();
  EXPECT_TRUE(run.is_going());
  EXPECT_EQ(run.step, 20);
  EXPECT_EQ(run.loss, 1.0);
  const std::string frame = text_of_lines(run_frame(run, {.columns = 80, .rows = 24}));
  for (const char* text : {"lenet", "RUNNING", "step 20", "loss 1.0000", "train 50.00 %",
                           "test 90.00 %", "best 90.00 % in epoch 2", "1000 images/s", "left ",
                           "the last line", "training loss over steps", "test accuracy"}) {
    EXPECT_NE(frame.find(text), std::string::npos) << text << "\n" << frame;
  }
}

TEST(Watch, shows_the_mean_iou_only_of_a_run_that_has_one) {
  const TemporaryFolder root;
  RunReader pets(write_run(root.path(), {.name = "pets", .test_iou = 62.5}));
  RunReader lenet(write_run(root.path(), {}));
  const auto shown = [](RunReader& reader) {
    return text_of_lines(run_frame(reader.look(), {.columns = 80})) + run_line(reader.look());
  };
  EXPECT_NE(shown(pets).find("\ntest IoU 62.50 %\n"), std::string::npos);
  EXPECT_NE(shown(pets).find("test 90.00 %  test IoU 62.50 %"), std::string::npos);
  EXPECT_EQ(shown(lenet).find("IoU"), std::string::npos);
}

TEST(Watch, fits_every_size_of_terminal) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {.name = std::string(90, 'n'), .epochs = 30});
  RunReader reader(folder);
  const RunView& run = reader.look();
  for (const CurveInk ink : {CurveInk::stars, CurveInk::braille}) {
    for (int columns : {60, 61, 80, 99, 100, 200}) {
      for (int rows : {5, 8, 12, 16, 24, 60}) {
        const auto frame = run_frame(run, {.columns = columns, .rows = rows, .ink = ink});
        EXPECT_LE(static_cast<int>(frame.size()), rows);
        for (const std::string& line : frame) EXPECT_LE(columns_of(line), columns) << line;
      }
    }
  }
}

TEST(Watch, reads_only_what_is_new_and_starts_anew_when_a_run_was_cut) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  RunReader reader(folder);
  EXPECT_EQ(reader.look().losses.size(), 2);
  const std::string before = text_of(folder + "/metrics.jsonl");
  write_text(folder + "/metrics.jsonl",
             before + "{\"step\":30,\"split\":\"train\",\"loss\":0.5}\n{\"step\":40,\"spl");
  EXPECT_EQ(reader.look().losses.size(), 3);  // the half line waits
  EXPECT_EQ(reader.look().loss, 0.5);
  write_text(folder + "/metrics.jsonl", before.substr(0, before.find('\n') + 1));
  EXPECT_EQ(reader.look().losses.size(), 1);
}

TEST(Watch, estimates_the_time_left_from_the_pace_so_far) {
  const TemporaryFolder root;
  SampleRun sample;
  sample.config = "data:\n  batch_size: 10\n  train_size: 100\ntrain:\n  epochs: 10\n";
  const std::string folder = write_run(root.path(), sample);
  set_state(folder, "RUNNING");
  const Lock lock(folder);
  write_text(folder + "/epochs.csv", "epoch,step\n");
  write_text(folder + "/metrics.jsonl",
             "{\"t\":1000,\"step\":20,\"epoch\":2,\"split\":\"train\",\"loss\":1}\n");
  RunReader reader(folder);
  const RunView& run = reader.look();
  EXPECT_EQ(run.steps, 100);
  EXPECT_NEAR(run.seconds_left, 4000, 60);  // 50 s per step, 80 to go; minus the elapsed time
}

TEST(Watch, takes_numbers_that_no_run_has) {
  const TemporaryFolder root;
  const std::string run =
      write_run(root.path(), {.config = "data:\n  train_size: 9223372036854775807\n  val_split: "
                                        "-9223372036854775807\n  batch_size: 1\ntrain:\n  epochs: "
                                        "9223372036854775807\n"});
  write_text(run + "/metrics.jsonl",
             "{\"t\":1e308,\"step\":1e308,\"epoch\":-1e308,\"split\":\"train\",\"loss\":1e308}\n");
  write_text(run + "/epochs.csv", "epoch,step,test_acc\n1e-300,1e308,1e308\n-1,1,-1e308\n");
  RunReader reader(run);
  const RunView& view = reader.look();
  EXPECT_GE(view.step, 0);
  EXPECT_GE(view.steps, 0);
  EXPECT_GE(view.epochs, 0);
  for (const std::string& line : run_frame(view, {.columns = 60})) {
    EXPECT_LE(columns_of(line), 60) << line;
  }
}

TEST(Watch, says_that_a_run_was_killed) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  set_state(folder, "RUNNING");
  RunReader reader(folder);
  const RunView& run = reader.look();
  EXPECT_EQ(run.status.state, "KILLED");
  const std::string frame = text_of_lines(run_frame(run, {}));
  EXPECT_NE(frame.find("KILLED"), std::string::npos);
  EXPECT_NE(frame.find("go on with --resume"), std::string::npos);
}

TEST(Watch, does_not_touch_the_lock_of_a_run_that_is_over_twice) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  set_state(folder, "RUNNING");
  RunReader reader(folder);
  EXPECT_EQ(reader.look().status.state, "KILLED");
  const Lock lock(folder);  // it runs, but has not reported this yet
  EXPECT_EQ(reader.look().status.state, "KILLED");
  set_state(folder, "RUNNING");
  std::filesystem::last_write_time(folder + "/status.json",
                                   std::filesystem::file_time_type::clock::now());
  EXPECT_EQ(reader.look().status.state, "RUNNING");
}

TEST(Watch, a_folder_has_a_line_for_each_run_and_the_running_first) {
  const TemporaryFolder root;
  for (int seed = 1; seed <= 4; ++seed) write_run(root.path(), {.name = "a", .seed = seed});
  const std::string going = write_run(root.path(), {.name = "b", .seed = 0});
  set_state(going, "RUNNING");
  auto lock = std::make_unique<Lock>(going);
  FolderReader reader(root.path());
  reader.look();
  EXPECT_TRUE(reader.is_going());
  const auto frame = reader.frame({.columns = 60, .rows = 24});
  ASSERT_EQ(frame.size(), 7);  // counts, head, five runs
  EXPECT_TRUE(frame[0].starts_with("5 runs in "));
  EXPECT_NE(frame[0].find(": 4 DONE, 1 RUNNING"), std::string::npos) << frame[0];
  EXPECT_TRUE(frame[2].starts_with("RUNNING     b/000000-s0")) << frame[2];
  for (const std::string& line : frame) EXPECT_LE(columns_of(line), 60) << line;
  EXPECT_EQ(reader.frame({.columns = 60, .rows = 5}).back(), "... 3 more");
  EXPECT_EQ(reader.changes().size(), 5);
  EXPECT_TRUE(reader.changes().empty());
  lock.reset();
  reader.look();
  EXPECT_FALSE(reader.is_going());
  EXPECT_TRUE(reader.any_failed());
  EXPECT_EQ(reader.changes().size(), 1);
}

// Exit code and output of `convscope watch` without a terminal.
struct Printed {
  int code;
  std::string out, err;
};
Printed watch(const std::string& folder, std::vector<std::string> words) {
  words.insert(words.begin(), {kProgram, "watch"});
  Program program(words, folder + "/printed");
  const int code = program.wait();
  return {code, text_of(folder + "/printed.out"), text_of(folder + "/printed.err")};
}

TEST(WatchCommand, ends_with_the_run_and_its_exit_code) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  Printed printed = watch(root.path(), {folder});
  EXPECT_EQ(printed.code, 0) << printed.err;
  EXPECT_TRUE(printed.out.starts_with("DONE  epoch 2")) << printed.out;
  set_state(folder, "FAILED", 1);
  printed = watch(root.path(), {folder});
  EXPECT_EQ(printed.code, 1);
  EXPECT_EQ(std::count(printed.out.begin(), printed.out.end(), '\n'), 1) << printed.out;
  set_state(folder, "RUNNING");
  EXPECT_EQ(watch(root.path(), {folder}).code, 1);  // it was killed
}

TEST(WatchCommand, once_prints_a_frame_without_control_characters) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  set_state(folder, "RUNNING");
  const Lock lock(folder);
  const Printed printed = watch(root.path(), {folder, "--once"});
  EXPECT_EQ(printed.code, 0) << printed.err;
  EXPECT_NE(printed.out.find("RUNNING"), std::string::npos);
  EXPECT_EQ(printed.out.find('\033'), std::string::npos);
}

TEST(WatchCommand, without_a_folder_it_says_what_it_expected) {
  const TemporaryFolder root;
  Printed printed = watch(root.path(), {root.path() + "/none"});
  EXPECT_EQ(printed.code, 6);
  EXPECT_NE(printed.err.find("/none, which is no folder"), std::string::npos) << printed.err;
  printed = watch(root.path(), {root.path()});
  EXPECT_EQ(printed.code, 6);
  EXPECT_NE(printed.err.find("got none"), std::string::npos) << printed.err;
  EXPECT_EQ(watch(root.path(), {root.path(), "--interval", "0"}).code, 2);
}

// Waits until the file contains the text, but at most a minute.
bool comes(const std::string& path, const std::string& text) {
  for (int tries = 0; tries < 6000; ++tries) {
    if (text_of(path).find(text) != std::string::npos) return true;
    usleep(10000);
  }
  return false;
}

TEST(WatchCommand, follows_a_run_of_another_process_to_its_end) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  set_state(folder, "RUNNING");
  auto lock = std::make_unique<Lock>(folder);
  Program program({kProgram, "watch", folder, "--interval", "0.05"}, root.path() + "/printed");
  EXPECT_TRUE(comes(root.path() + "/printed.out", "step 20"));
  std::ofstream(folder + "/metrics.jsonl", std::ios::app)
      << "{\"step\":30,\"epoch\":3,\"split\":\"train\",\"loss\":0.125}\n";
  EXPECT_TRUE(comes(root.path() + "/printed.out", "loss 0.125"));
  set_state(folder, "DONE", 0);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_NE(text_of(root.path() + "/printed.out").find("\nDONE  epoch 3"), std::string::npos);
}

}  // namespace
}  // namespace convscope::testing
