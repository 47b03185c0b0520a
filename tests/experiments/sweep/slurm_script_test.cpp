// SPDX-License-Identifier: Apache-2.0
// slurm_script_test.cpp: resources for Slurm and the script, without a Slurm.
#include "experiments/sweep/cluster/slurm_script.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "experiments/config/sweep_block.h"
#include "experiments/launchers/outside_program.h"
#include "experiments/sweep/cluster/slurm_calls.h"
#include "framework/check.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using testing::TemporaryFolder;

std::string refusal_of(const std::string& text) {
  try {
    parse_slurm_settings({text});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
    return error.what();
  }
  return "";
}

TEST(SlurmSettings, AreReadStrictly) {
  const SlurmSettings read =
      parse_slurm_settings({"partition=gpu,time=2:30:00,mem=8G", "gpus=a100:2,cpus=4,at_once=20"});
  EXPECT_EQ(read.of("partition"), "gpu");
  EXPECT_EQ(read.of("time"), "2:30:00");
  EXPECT_EQ(read.of("gpus"), "a100:2");
  EXPECT_EQ(read.of("qos"), "");

  EXPECT_EQ(refusal_of("tim=5"),
            "[sweep] --slurm: expected a key of Slurm's settings, got 'tim'; did you mean 'time'?");
  EXPECT_EQ(refusal_of("time"),
            "[sweep] --slurm: expected KEY=VALUE,KEY=VALUE such as time=30,mem=4G, got 'time'");
  EXPECT_EQ(refusal_of("time=5,time=6"),
            "[sweep] --slurm: expected each key once, got 'time' twice");
  EXPECT_EQ(refusal_of("cpus=0"), "[sweep] --slurm: expected cpus as a number from 1, got '0'");
  EXPECT_NE(refusal_of("mem=4GB").find("expected mem as a number such as 8G"), std::string::npos);
  EXPECT_NE(refusal_of("zzzzzzzz=1").find("(known: partition, time, mem"), std::string::npos);
}

// Valid values are in the script without quotes.
TEST(SlurmSettings, HoldNothingThatAShellReads) {
  for (const char* value : {"", "a b", "$(touch x)", "`x`", "a;b", "a\nb", "a'b", "-x", "a\"b",
                            "#a", "a\\b", "a/b", "%a", "ä"}) {
    for (const SlurmKey& key : slurm_keys()) {
      SlurmSettings settings;
      EXPECT_NE(settings.set(key.name, value), "") << key.name << " " << value;
    }
  }
}

TEST(SlurmSettings, KnowTheFormsOfATime) {
  EXPECT_EQ(seconds_of_slurm_time("30"), 1800);
  EXPECT_EQ(seconds_of_slurm_time("1:30"), 90);
  EXPECT_EQ(seconds_of_slurm_time("2:00:05"), 7205);
  EXPECT_EQ(seconds_of_slurm_time("1-12"), 129600);
  EXPECT_EQ(seconds_of_slurm_time("1-0:30"), 88200);
  for (const char* text : {"", "x", "1:2:3:4", "-5", "1-", "1--2", ":", "30m", "99999999999999"}) {
    EXPECT_EQ(seconds_of_slurm_time(text), -1) << text;
  }
}

SweepPlan plan_with(const std::string& slurm) {
  return parse_sweep_text(
      "data: {set: synthetic_digits}\nmodel: {type: lenet5}\nsweep:\n"
      "  seeds: [1, 2]\n  slurm: " +
          slurm + "\n",
      "s.yaml");
}

TEST(SlurmSettings, StandInTheConfigAndAreBeatenByTheCommandLine) {
  const SweepPlan plan = plan_with("{time: 90, partition: gpu, at_once: 2}");
  SlurmSettings settings = plan.slurm;
  settings.take(parse_slurm_settings({"time=10"}));
  EXPECT_EQ(settings.of("time"), "10");
  EXPECT_EQ(settings.of("partition"), "gpu");
  const auto mistake = [](const std::string& slurm) -> std::string {
    try {
      plan_with(slurm);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(mistake("{tim: 5}"),
            "[config] s.yaml:5:11: error: sweep.slurm: expected a key of Slurm's settings, got "
            "'tim'; did you mean 'time'?");
  EXPECT_NE(mistake("{mem: [1]}").find("expected a number or a text for mem, got a list"),
            std::string::npos);
  EXPECT_NE(mistake("[1]").find("sweep.slurm: expected a map"), std::string::npos);
}

SlurmScript some_script() {
  return {
      .name = "small",
      .folder = "/home/u/runs/small",
      .start_folder = "/home/u",
      .program = "/usr/bin/convscope",
      .queue = {0, 1, 2, 5, 7, 8},
      .settings = parse_slurm_settings({"at_once=4,time=30,mem=2G,gpus=1,cpus=3,constraint=a&b"})};
}

TEST(SlurmScript, AsksForWhatWasSaid) {
  EXPECT_EQ(slurm_script(some_script()), R"(#!/bin/sh
#SBATCH --job-name=convscope-small
#SBATCH --array=0-2,5,7-8%4
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=3
#SBATCH --mem=2G
#SBATCH --gres=gpu:1
#SBATCH --time=30
#SBATCH --constraint="a&b"
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=sweep.slurm-%a.log
#SBATCH --signal=B:TERM@60
# Submitted from the folder of the sweep. Task I trains member I of sweep.members.json.
cd /home/u || exit 6
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
exec /usr/bin/convscope sweep /home/u/runs/small --work --member "$SLURM_ARRAY_TASK_ID"
)");
}

TEST(SlurmScript, GivesNoticeWithinAShortLimit) {
  EXPECT_EQ(notice_seconds(parse_slurm_settings({"time=1"})), 10);
  EXPECT_EQ(notice_seconds(parse_slurm_settings({"time=3"})), 30);
  EXPECT_EQ(notice_seconds(parse_slurm_settings({"time=1-0"})), 60);
  EXPECT_EQ(notice_seconds({}), 60);
}

// A shell runs the generated script. The program must get all names unchanged, and the shell must
// run nothing else.
TEST(SlurmScript, IsSafeWithEveryName) {
  const TemporaryFolder root;
  const std::string spy = root.path() + "/spy";
  std::ofstream(spy) << "#!/bin/sh\nfor word in \"$@\"; do printf '%s\\0' \"$word\"; done\n";
  chmod(spy.c_str(), 0755);
  for (const std::string& name :
       {std::string("a b"), std::string("it's"), std::string("\"quoted\""),
        std::string("$(touch pwned)"), std::string("`touch pwned`"),
        std::string("a\nb; touch pwned"), std::string("x;touch pwned"), std::string("%a"),
        std::string("-rf"), std::string("\\"), std::string("'; touch pwned; '"),
        std::string("#SBATCH --wrap=x"), std::string("\n#SBATCH --uid=0\n")}) {
    SlurmScript script = some_script();
    script.name = name;
    script.folder = "/runs/" + name;
    script.start_folder = root.path();
    script.program = spy;
    script.plugins = {name};
    const std::string text = slurm_script(script);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("cd ")) break;  // Slurm reads no options after the first command
      EXPECT_EQ(line.find_first_of("'`$;"), std::string::npos) << line;
    }
    std::ofstream(root.path() + "/script.sh") << text;
    const OutsideAnswer answer = ask_program({"sh", root.path() + "/script.sh"}, root.path(), "");
    std::string wanted;
    for (const std::string& word :
         {std::string("sweep"), script.folder, std::string("--work"), std::string("--member"),
          std::string(), std::string("--plugin"), name}) {
      wanted += word + '\0';
    }
    EXPECT_EQ(answer.out, wanted) << text << answer.err;
    EXPECT_FALSE(std::filesystem::exists(root.path() + "/pwned")) << text;
  }
}

TEST(SlurmCalls, ReadTheQueue) {
  const auto tasks = parse_slurm_tasks("0|RUNNING|None|a\n3|PENDING|Resources|\nN/A|x|y|z\n\nx\n");
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks.at(0).node, "a");
  EXPECT_EQ(tasks.at(3).state, "PENDING");
  EXPECT_EQ(tasks.at(3).reason, "Resources");
}

TEST(SlurmCalls, KeepTheirNote) {
  const TemporaryFolder root;
  EXPECT_EQ(read_slurm_note(root.path()).job, "");
  write_slurm_note(root.path(), {.job = "17", .cancelled = true});
  EXPECT_EQ(read_slurm_note(root.path()).job, "17");
  EXPECT_TRUE(read_slurm_note(root.path()).cancelled);
  for (const char* text : {"", "[]", "{\"job\": \"1; rm\"}", "{\"job\": 5, \"cancelled\": 3}"}) {
    std::ofstream(root.path() + "/sweep.slurm.json") << text;
    EXPECT_EQ(read_slurm_note(root.path()).job, "") << text;
  }
}

TEST(OutsideProgram, ThatIsMissingIsOneSentence) {
  try {
    ask_program({"no-such-program-here"}, "", "install it");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnavailable);
    EXPECT_STREQ(
        error.what(),
        "[sweep] expected the program no-such-program-here in $PATH, got none; install it");
  }
}

TEST(OutsideProgram, IsEndedWhenItDoesNotAnswer) {
  const OutsideAnswer answer = ask_program({"sleep", "60"}, "", "", 0.2);
  EXPECT_EQ(answer.exit_code, 124);
  const OutsideAnswer failed = ask_program({"sh", "-c", "echo why >&2; exit 3"}, "/", "");
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_EQ(failed.last_words(), "why");
}

}  // namespace
}  // namespace convscope
