// SPDX-License-Identifier: Apache-2.0
// sweep_folder.cpp: the folder of a sweep, runs/<name>.
#include "experiments/sweep/sweep_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "experiments/run_folder/files/own_file.h"
#include "framework/io/atomic_file.h"
#include "framework/io/bytes.h"
#include "framework/io/clean_text.h"
#include "framework/io/json_text.h"
#include "framework/registry.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kStateFile = "sweep.state.json";

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    fail(ErrorKind::kIo, "sweep",
         cat("expected to create the folder ", path, ", got: ", error.message()));
  }
}

[[noreturn]] void refuse_busy(const std::string& path, const std::string& where) {
  fail(ErrorKind::kInvalid, "sweep",
       cat("expected a sweep that no process works on, got ", path,
           ", which another `convscope sweep` is running", where,
           "; wait for it, or choose another --name"));
}

// Returns a lock that is held while this process lives and that a child does not inherit; -1 when
// another process has it.
int lock_folder(const std::string& path) {
  const std::string name = path + "/.lock";
  const int lock = open_own(name, O_RDWR | O_CREAT | O_NONBLOCK);
  if (lock < 0) {
    fail(ErrorKind::kIo, "sweep",
         cat("expected to write in the folder ", path, ", got: ", std::strerror(errno)));
  }
  if (flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(lock);
    return -1;
  }
  return lock;
}

// The lock "command" is held while members are trained, the lock "refresh" for the moment in which
// a worker writes the table.
ClaimRecord this_process(const std::string& task) {
  return {.host = name_of_this_host(), .pid = static_cast<std::int64_t>(getpid()), .task = task};
}

std::string claim_of_sweep(const std::string& path) { return path + "/.sweep.claim"; }

// Takes the claim, or refuses if another process holds it. The lock of a holder on another host may
// be invisible here. In this case waits until the holder's counter changes, or until the holder is
// considered gone.
std::unique_ptr<Claim> claim_or_refuse(const std::string& path, const SweepFolder::Say& say) {
  const std::string folder = claim_of_sweep(path);
  ClaimWatch watch;
  bool said = false;
  for (int looks = 1;; ++looks) {
    std::unique_ptr<Claim> claim = watch.try_take(folder, this_process("command"));
    if (claim) return claim;
    const ClaimRecord holder = read_claim(folder);
    const bool for_a_moment = holder.task == "refresh" || looks < 3;
    if (!for_a_moment && watch.seen_alive(folder)) refuse_busy(path, cat(" on ", holder.host));
    if (!for_a_moment && !said && say) {
      said = true;
      say(cat("wait   a `convscope sweep` on ", holder.host.empty() ? "another host" : holder.host,
              " has begun this sweep; waiting a minute for a sign of life"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// If this file cannot be read, only a note is lost.
std::vector<std::pair<std::string, int>> read_jobs(const std::string& path) {
  std::vector<std::pair<std::string, int>> out;
  const std::optional<std::string> text = text_if_there(cat(path, "/", kStateFile));
  if (!text) return out;
  try {
    const Json state = Json::parse(*text);
    for (const Json& member : state.at("members")) {
      out.emplace_back(
          cat(member.at("row").get<std::string>(), " seed ", member.at("seed").get<std::int64_t>()),
          member.at("jobs").get<int>());
    }
  } catch (const Json::exception&) {
    out.clear();
  }
  return out;
}

}  // namespace

SweepFolder::SweepFolder(std::string path, const SweepPlan& plan,
                         const std::vector<std::string>& overrides, const Say& say)
    : path_(std::move(path)) {
  make_folder(path_);
  lock_ = lock_folder(path_);
  if (lock_ < 0) refuse_busy(path_, "");
  claim_ = claim_or_refuse(path_, say);
  jobs_ = read_jobs(path_);
  std::string head = "# convscope sweep sweep.yaml";
  for (const std::string& text : overrides) head += " '" + clean_line(text) + "'";
  for (const SweepMember& member : plan.members) refuse_link(path_ + "/" + member.row);
  write_file(own_path(path_, "sweep.yaml"), head + "\n" + plan.yaml);
}

std::unique_ptr<SweepFolder> SweepFolder::open_if_free(const std::string& path) {
  constexpr int kTries = 50;  // several workers may end at the same moment
  std::unique_ptr<SweepFolder> out(new SweepFolder(path));
  ClaimWatch watch;
  for (int i = 0; i < kTries; ++i) {
    out->claim_ = watch.try_take(claim_of_sweep(path), this_process("refresh"));
    if (out->claim_) {
      out->jobs_ = read_jobs(path);
      return out;
    }
    if (read_claim(claim_of_sweep(path)).task == "command") return nullptr;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return nullptr;
}

SweepFolder::~SweepFolder() {
  claim_.reset();
  if (lock_ >= 0) close(lock_);
}

std::string SweepFolder::prepare(const SweepMember& member) const {
  make_folder(path_ + "/" + member.row);
  const std::string name = cat(member.row, "/s", member.config.seed);
  write_file(own_path(path_, name + ".yaml"), to_yaml(member.config));
  return path_ + "/" + name;
}

int SweepFolder::jobs_before(const SweepMember& member) const {
  for (const auto& [label, jobs] : jobs_) {
    if (label == label_of(member)) return jobs;
  }
  return 1;
}

void SweepFolder::set_launcher(const std::string& launcher, const std::string& job) {
  launcher_ = launcher;
  job_ = job;
}

void SweepFolder::write(const std::string& state, const SweepPlan& plan,
                        const std::vector<SweepOutcome>& outcomes) const {
  if (claim_ && claim_->lost()) {
    fail(ErrorKind::kIo, "sweep",
         cat("expected to be the one process that works on ", path_,
             ", got a newer one on another host, because this one had given no sign of life for a "
             "minute; nothing more is written"));
  }
  Json members = Json::array();
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    const SweepMember& member = plan.members[i];
    const SweepOutcome& outcome = outcomes[i];
    members.push_back({{"row", member.row},
                       {"seed", member.config.seed},
                       {"state", std::string(name_of(outcome.state.progress))},
                       {"run", fs::path(outcome.state.run).lexically_relative(path_).string()},
                       {"jobs", outcome.jobs},
                       {"error", outcome.error},
                       {"host", outcome.state.host}});
  }
  const Json out = {{"name", plan.name},
                    {"state", state},
                    {"pid", static_cast<std::int64_t>(getpid())},
                    {"members", members},
                    {"launcher", launcher_},
                    {"job", job_},
                    {"host", name_of_this_host()},
                    {"format", "convscope sweep 1"}};
  // The state is written last, so that DONE appears only when all other files are complete.
  write_file(own_path(path_, "sweep.csv"), to_csv(sweep_table(plan, outcomes)));
  write_file(own_path(path_, "sweep.md"), sweep_markdown(plan, outcomes));
  write_file(own_path(path_, kStateFile), json_text(out));
}

}  // namespace convscope
