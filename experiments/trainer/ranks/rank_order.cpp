// SPDX-License-Identifier: Apache-2.0
// rank_order.cpp: sends the files that only process 0 reads to the other processes, before
// training.
#include "experiments/trainer/ranks/rank_order.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "framework/io/atomic_file.h"
#include "framework/io/bytes.h"

namespace convscope {

using Json = nlohmann::json;

RankOrder share_order(ProcessGroup& group, const RankOrder& order) {
  std::string text;
  if (group.rank() == 0) {
    text = Json{{"trains", order.trains},
                {"config", order.config},
                {"choices", order.choices},
                {"resumes", order.resumes},
                {"epochs_limit", order.epochs_limit}}
               .dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const Json in = Json::parse(group.broadcast(text));
  return {.trains = in.at("trains").get<bool>(),
          .config = in.at("config").get<std::string>(),
          .choices = in.at("choices").get<std::string>(),
          .resumes = in.at("resumes").get<bool>(),
          .epochs_limit = in.at("epochs_limit").get<std::int64_t>()};
}

bool share_file(ProcessGroup& group, const std::string& from, const std::string& to) {
  std::string bytes;
  if (group.rank() == 0 && !from.empty()) bytes = text_if_there(from).value_or("");
  const std::string all = group.broadcast(bytes);
  if (all.empty()) return false;
  if (group.rank() != 0) {
    std::filesystem::create_directories(std::filesystem::path(to).parent_path());
    write_file(to, all);
  }
  return true;
}

namespace {

constexpr std::string_view kScratchName = "convscope-rank-";

// Removes the scratch folders of processes that were killed before they could remove them. A folder
// is named convscope-rank-<pid>-XXXXXX.
void remove_left_behind(const std::filesystem::path& root) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kScratchName)) continue;
    const int pid = std::atoi(name.c_str() + kScratchName.size());
    std::error_code ignored;
    if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) {
      std::filesystem::remove_all(it->path(), ignored);
    }
  }
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::error_code error;
  std::filesystem::path root = std::filesystem::temp_directory_path(error);
  if (error) root = "/tmp";
  remove_left_behind(root);
  std::string name = root / cat(kScratchName, static_cast<std::int64_t>(getpid()), "-XXXXXX");
  if (mkdtemp(name.data()) == nullptr) {
    fail(ErrorKind::kIo, "ranks",
         cat("expected to make a folder for a process of the group, got none at ", name,
             "; TMPDIR names another place"));
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace convscope
