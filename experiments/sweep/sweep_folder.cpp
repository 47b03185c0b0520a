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

#include "framework/io/atomic_file.h"
#include "framework/io/bytes.h"
#include "framework/io/clean_text.h"
#include "framework/io/json_text.h"
#include "framework/registry.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kStateFile = "/sweep.state.json";

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    fail(ErrorKind::kIo, "sweep",
         cat("expected to create the folder ", path, ", got: ", error.message()));
  }
}

// Held as long as this process lives; a child does not inherit it.
int lock_folder(const std::string& path) {
  const std::string name = path + "/.lock";
  const int lock = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) {
    fail(ErrorKind::kIo, "sweep",
         cat("expected to write in the folder ", path, ", got: ", std::strerror(errno)));
  }
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    fail(
        ErrorKind::kInvalid, "sweep",
        cat("expected a sweep that nobody works on, got ", path,
            ", which another `convscope sweep` is running; wait for it, or choose another --name"));
  }
  return lock;
}

// Nothing but a note is lost when the file cannot be read.
std::vector<std::pair<std::string, int>> read_jobs(const std::string& path) {
  std::vector<std::pair<std::string, int>> out;
  const std::optional<std::string> text = text_if_there(path + kStateFile);
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
                         const std::vector<std::string>& overrides)
    : path_(std::move(path)) {
  make_folder(path_);
  lock_ = lock_folder(path_);
  jobs_ = read_jobs(path_);
  std::string head = "# convscope sweep sweep.yaml";
  for (const std::string& text : overrides) head += " '" + clean_line(text) + "'";
  write_file(path_ + "/sweep.yaml", head + "\n" + plan.yaml);
}

SweepFolder::~SweepFolder() {
  if (lock_ >= 0) close(lock_);
}

std::string SweepFolder::prepare(const SweepMember& member) const {
  make_folder(path_ + "/" + member.row);
  const std::string path = cat(path_, "/", member.row, "/s", member.config.seed);
  write_file(path + ".yaml", to_yaml(member.config));
  return path;
}

int SweepFolder::jobs_before(const SweepMember& member) const {
  for (const auto& [label, jobs] : jobs_) {
    if (label == label_of(member)) return jobs;
  }
  return 1;
}

void SweepFolder::write(const std::string& state, const SweepPlan& plan,
                        const std::vector<SweepOutcome>& outcomes) const {
  Json members = Json::array();
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    const SweepMember& member = plan.members[i];
    const SweepOutcome& outcome = outcomes[i];
    members.push_back({{"row", member.row},
                       {"seed", member.config.seed},
                       {"state", std::string(name_of(outcome.state.progress))},
                       {"run", fs::path(outcome.state.run).lexically_relative(path_).string()},
                       {"jobs", outcome.jobs},
                       {"error", outcome.error}});
  }
  const Json out = {{"name", plan.name},
                    {"state", state},
                    {"pid", static_cast<std::int64_t>(getpid())},
                    {"members", members}};
  write_file(path_ + kStateFile, json_text(out));
  write_file(path_ + "/sweep.csv", to_csv(sweep_table(plan, outcomes)));
  write_file(path_ + "/sweep.md", sweep_markdown(plan, outcomes));
}

}  // namespace convscope
