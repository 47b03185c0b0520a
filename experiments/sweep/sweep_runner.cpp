// SPDX-License-Identifier: Apache-2.0
// sweep_runner.cpp: trains the members of a sweep that are not finished yet, each in a process of
// its own, and goes on where an earlier call stopped.
#include "experiments/sweep/sweep_runner.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "experiments/sweep/member_process.h"
#include "experiments/sweep/sweep_check.h"
#include "experiments/sweep/sweep_folder.h"
#include "experiments/trainer/progress.h"
#include "experiments/trainer/signals.h"
#include "framework/io/clean_text.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::milliseconds(10);
constexpr auto kRedraw = std::chrono::milliseconds(500);
constexpr double kPatienceSeconds = 60;  // for a member that an earlier, killed call left behind

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// Lines on stderr; on a terminal one more that is redrawn, about the members at work.
class Screen {
 public:
  explicit Screen(bool quiet) : quiet_(quiet), live_(!quiet && isatty(STDERR_FILENO) == 1) {}
  ~Screen() { clear(); }
  void line(const std::string& text) {
    if (quiet_) return;
    clear();
    std::fprintf(stderr, "%s\n", clean_text(text).c_str());
  }
  bool due() {
    if (!live_ || Clock::now() < next_) return false;
    next_ = Clock::now() + kRedraw;
    return true;
  }
  void live(const std::string& text) {
    winsize size{};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    const std::size_t width = known ? size.ws_col - 1u : 79u;  // a wrapped line cannot be redrawn
    std::fprintf(stderr, "\r%s\033[K", clean_line(text).substr(0, width).c_str());
    std::fflush(stderr);
    drawn_ = true;
  }

 private:
  void clear() {
    if (drawn_) std::fprintf(stderr, "\r\033[K");
    drawn_ = false;
  }
  bool quiet_, live_, drawn_ = false;
  Clock::time_point next_{};
};

class Runner {
 public:
  Runner(const SweepPlan& plan, const SweepOptions& options)
      : plan_(plan),
        options_(options),
        screen_(options.quiet),
        folder_(options.root + "/" + plan.name, plan, options.overrides),
        outcomes_(plan.members.size()),
        took_(plan.members.size()) {
    for (const SweepMember& member : plan.members) {
      width_ = std::max(width_, label_of(member).size());
    }
    set_num_threads(0);
    cores_ = num_threads();
  }

  SweepResult run() {
    take_stock();
    if (!queue_.empty()) check_data(plan_, queue_);
    // Until here a signal ends the process at once: data may take minutes, and nothing is lost.
    const StopSignals signals;
    folder_.write("RUNNING", plan_, outcomes_);
    std::size_t next = 0;
    while (next < queue_.size() || !active_.empty()) {
      if (StopSignals::received() != 0) return stop();
      while (next < queue_.size() && active_.size() < static_cast<std::size_t>(options_.jobs)) {
        start(queue_[next++]);
        if (StopSignals::received() != 0) return stop();
      }
      std::this_thread::sleep_for(kPoll);
      reap();
      if (screen_.due() && !active_.empty()) screen_.live(live_text());
    }
    const auto failed =
        std::count_if(outcomes_.begin(), outcomes_.end(),
                      [](const SweepOutcome& outcome) { return !outcome.error.empty(); });
    folder_.write(failed > 0 ? "FAILED" : "DONE", plan_, outcomes_);
    screen_.line(cat(failed > 0 ? cat("failed ", failed, failed == 1 ? " member" : " members", "; ")
                                : std::string("done   "),
                     "table: ", folder_.path(), "/sweep.md, sweep.csv"));
    return {failed > 0 ? exit_code(ErrorKind::kRun) : 0, std::move(outcomes_)};
  }

 private:
  struct Active {
    std::size_t member;
    std::unique_ptr<MemberProcess> process;
    Clock::time_point start;
  };

  // What earlier calls have done, and what is left to do.
  void take_stock() {
    std::map<MemberProgress, int> counts;
    for (std::size_t i = 0; i < plan_.members.size(); ++i) {
      SweepOutcome& outcome = outcomes_[i];
      outcome.state = member_state(folder_.path(), plan_.members[i], plan_.varies_threads);
      const MemberProgress progress = outcome.state.progress;
      ++counts[progress];
      if (progress != MemberProgress::missing) outcome.jobs = folder_.jobs_before(plan_.members[i]);
      if (progress == MemberProgress::done) {
        ++finished_;
      } else if (progress == MemberProgress::failed && !options_.retry_failed) {
        outcome.error = outcome.state.error;
        ++finished_;
        ++failed_before_;
      } else {
        queue_.push_back(i);
      }
    }
    std::string text = cat("sweep  ", folder_.path(), ": ", plan_.members.size(), " members");
    const auto say = [&](int count, const char* what) {
      if (count > 0) text += cat(", ", count, what);
    };
    say(counts[MemberProgress::done], " done already");
    say(failed_before_, " failed before (--retry-failed trains them again)");
    say(counts[MemberProgress::partial] + counts[MemberProgress::running], " to go on with");
    say(counts[MemberProgress::missing], " to train");
    screen_.line(text);
  }

  std::int64_t threads_for(const ExperimentConfig& config) const {
    if (options_.jobs == 1) return config.threads;
    const std::int64_t wanted = config.threads == 0 ? cores_ : config.threads;
    return std::max<std::int64_t>(1, std::min<std::int64_t>(wanted, cores_ / options_.jobs));
  }

  void start(std::size_t index) {
    const SweepMember& member = plan_.members[index];
    SweepOutcome& outcome = outcomes_[index];
    if (!wait_until_free(index)) return;
    const bool resume = outcome.state.progress == MemberProgress::partial;
    outcome.jobs = resume ? std::max(outcome.jobs, options_.jobs) : options_.jobs;
    outcome.error.clear();
    remove_stillborn_runs(folder_.path(), member);
    const std::string path = folder_.prepare(member);
    folder_.write("RUNNING", plan_, outcomes_);  // before it starts: the note must outlive a kill
    std::vector<std::string> words = {"run"};
    if (resume) {
      words.insert(words.end(), {"--resume", outcome.state.run});
    } else {
      words.insert(words.end(), {path + ".yaml", "-o", folder_.path()});
    }
    words.insert(words.end(),
                 {"--threads", std::to_string(threads_for(member.config)), "--color", "never"});
    active_.push_back({index, std::make_unique<MemberProcess>(words, path + ".log"), Clock::now()});
  }

  // A killed sweep's members were asked to stop, which takes them a moment. False: it went on too
  // long, or a signal came.
  bool wait_until_free(std::size_t index) {
    const SweepMember& member = plan_.members[index];
    SweepOutcome& outcome = outcomes_[index];
    const Clock::time_point begin = Clock::now();
    for (bool said = false; outcome.state.progress == MemberProgress::running; said = true) {
      if (!said) {
        screen_.line(cat("wait   ", label_of(member), ": process ", outcome.state.pid,
                         " still works on ", outcome.state.run));
      }
      if (StopSignals::received() != 0) return false;
      if (seconds_since(begin) > kPatienceSeconds) {
        report_failure(index, cat("process ", outcome.state.pid, " works on ", outcome.state.run));
        return false;
      }
      std::this_thread::sleep_for(kPoll);
      outcome.state = member_state(folder_.path(), member, plan_.varies_threads);
    }
    if (outcome.state.progress == MemberProgress::done) {
      report_done(index, 0);
      return false;
    }
    return true;
  }

  void reap() {
    for (std::size_t i = 0; i < active_.size();) {
      if (active_[i].process->running()) {
        ++i;
        continue;
      }
      const Active ended = std::move(active_[i]);
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      finish(ended);
    }
  }

  void finish(const Active& ended) {
    SweepOutcome& outcome = outcomes_[ended.member];
    outcome.state = member_state(folder_.path(), plan_.members[ended.member], plan_.varies_threads);
    if (outcome.state.progress == MemberProgress::done) {
      // With what the program needs to start: it will need that again.
      took_[ended.member] = seconds_since(ended.start);
      report_done(ended.member, took_[ended.member]);
    } else {
      const std::string failure = ended.process->failure();
      report_failure(ended.member, failure.empty() ? "it ended without a finished run" : failure);
    }
    folder_.write("RUNNING", plan_, outcomes_);
  }

  std::string counter() {
    ++finished_;
    const std::string all = std::to_string(plan_.members.size());
    std::string number = std::to_string(finished_);
    number.insert(0, all.size() - std::min(all.size(), number.size()), ' ');
    return "[" + number + "/" + all + "] ";
  }

  void report_done(std::size_t index, double seconds) {
    const std::optional<RunSummary>& summary = outcomes_[index].state.summary;
    std::string acc = "acc     -  ";
    if (summary && summary->acc) {
      char text[32];
      std::snprintf(text, sizeof text, "acc %5.2f %%", *summary->acc);
      acc = text;
    }
    screen_.line(counter() + padded(label_of(plan_.members[index]), width_) + "  " + acc + "  " +
                 duration_text(seconds) + "  left " + duration_text(seconds_left()));
  }

  void report_failure(std::size_t index, const std::string& sentence) {
    outcomes_[index].error = sentence;
    screen_.line(counter() + padded(label_of(plan_.members[index]), width_) +
                 "  failed: " + sentence);
  }

  // Of a member, by its row with another seed, else by the mean of all.
  double seconds_left() const {
    std::map<std::string, std::vector<double>> rows;
    std::vector<double> all;
    for (std::size_t i = 0; i < outcomes_.size(); ++i) {
      const MemberState& state = outcomes_[i].state;
      if (state.progress != MemberProgress::done || !state.summary) continue;
      const double seconds = std::max(state.summary->seconds, took_[i]);
      rows[plan_.members[i].row].push_back(seconds);
      all.push_back(seconds);
    }
    double left = 0;
    for (std::size_t index : queue_) {
      const SweepOutcome& outcome = outcomes_[index];
      if (outcome.state.progress == MemberProgress::done || !outcome.error.empty()) continue;
      const auto row = rows.find(plan_.members[index].row);
      double seconds = mean_std(row != rows.end() ? row->second : all).mean;
      for (const Active& active : active_) {
        if (active.member == index) seconds -= seconds_since(active.start);
      }
      left += std::max(0.0, seconds);
    }
    return left / options_.jobs;
  }

  std::string live_text() {
    std::string text;
    for (const Active& active : active_) {
      const SweepMember& member = plan_.members[active.member];
      MemberState state = member_state(folder_.path(), member, plan_.varies_threads);
      const std::int64_t epoch = state.summary ? state.summary->epochs : 0;
      text += cat(text.empty() ? "       " : "; ", label_of(member), " epoch ",
                  std::min(epoch + 1, member.config.train.epochs), "/", member.config.train.epochs,
                  " ", duration_text(seconds_since(active.start)));
    }
    return text;
  }

  // Every member at work writes its checkpoint.
  SweepResult stop() {
    const int signal = StopSignals::received();
    screen_.line(cat("stop   signal ", signal, "; ", active_.size(),
                     active_.size() == 1 ? " member writes its checkpoint"
                                         : " members write their checkpoints"));
    for (const Active& active : active_) active.process->send(signal);
    for (const Active& active : active_) {
      while (active.process->running()) std::this_thread::sleep_for(kPoll);
      outcomes_[active.member].state =
          member_state(folder_.path(), plan_.members[active.member], plan_.varies_threads);
    }
    folder_.write("INTERRUPTED", plan_, outcomes_);
    screen_.line("stopped; the same command goes on");
    return {128 + signal, std::move(outcomes_)};
  }

  const SweepPlan& plan_;
  const SweepOptions& options_;
  Screen screen_;
  SweepFolder folder_;
  std::vector<SweepOutcome> outcomes_;
  std::vector<double> took_;        // seconds of the members that this call has finished
  std::vector<std::size_t> queue_;  // members to train, in order
  std::vector<Active> active_;
  std::size_t finished_ = 0, width_ = 0;
  int failed_before_ = 0, cores_ = 1;
};

}  // namespace

SweepResult run_sweep(const SweepPlan& plan, const SweepOptions& options) {
  CONVSCOPE_CHECK(options.jobs == 1 || !plan.varies_threads, "sweep",
                  "expected --jobs 1, because this sweep is about the number of threads, got ",
                  options.jobs);
  return Runner(plan, options).run();
}

}  // namespace convscope
