// SPDX-License-Identifier: Apache-2.0
// fetch.cpp: fetches a published data set from its mirrors, and checks the files on the disk.
#include "datasets/files/fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>

#include "datasets/cifar10.h"
#include "datasets/files/data_files.h"
#include "datasets/files/download.h"
#include "datasets/files/idx.h"
#include "datasets/files/sums.h"
#include "datasets/files/tar.h"
#include "framework/io/atomic_file.h"
#include "framework/io/inflater.h"

namespace convscope {
namespace {

constexpr std::uint64_t kLargestMember = std::uint64_t{1} << 28;  // unpacked size
constexpr std::string_view kNoSum =
    "valid structure; this program knows no published checksum of the unpacked file";

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::string sha256_of_content(Bytes file, const std::string& name) {
  Sha256 sum;
  if (!is_gzip(file)) {
    sum.add(file);
    return sum.hex();
  }
  Inflater inflater(file, DeflateFormat::gzip, name);
  std::vector<std::uint8_t> piece(std::size_t{1} << 16);
  std::uint64_t bytes = 0;
  while (true) {
    const std::size_t got = inflater.read(piece.data(), piece.size());
    bytes += got;
    if (bytes > kLargestMember) {
      fail(ErrorKind::kData, "data",
           cat(name, ": expected at most ", kLargestMember, " bytes of content, got more"));
    }
    sum.add(Bytes(piece.data(), got));
    if (got == piece.size()) continue;
    if (inflater.left() > 0) {
      fail(ErrorKind::kData, "data", cat(name, ": expected nothing after the gzip data"));
    }
    return sum.hex();
  }
}

std::string md5_of(Bytes file) {
  Md5 sum;
  sum.add(file);
  return sum.hex();
}

// Returns a text that names the matching checksum, or "" if there is none to compare. Throws kData
// if a checksum differs. `as_published`: the file has not been unpacked.
std::string check_sum(const PublishedFile& file, Bytes bytes, const std::string& path,
                      bool as_published) {
  const auto compare = [&](const std::string& kind, const std::string& expected,
                           const std::string& got) {
    if (got != expected) {
      fail(ErrorKind::kData, "data", cat(path, ": expected ", kind, " ", expected, ", got ", got));
    }
    return kind + " matches";
  };
  if (!file.content_sha256.empty()) {
    return compare("SHA-256 of the content", file.content_sha256, sha256_of_content(bytes, path));
  }
  if (!file.md5.empty() && as_published) {
    return compare("MD5 of the published archive", file.md5, md5_of(bytes));
  }
  return "";
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    fail(ErrorKind::kIo, "data fetch",
         cat("expected to create the folder ", folder, ", got: ", error.message()));
  }
}

// Lets only one process at a time fetch into a folder, because two processes would append to the
// same partial file. Has no effect on a file system without locks.
class Turn {
 public:
  Turn(const std::string& folder, const std::function<void(const std::string&)>& say)
      : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (folder_ < 0 || ::flock(folder_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    say(cat("another process fetches into ", folder, "; waiting for it"));
    while (::flock(folder_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~Turn() {
    if (folder_ >= 0) ::close(folder_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const int folder_;
};

void remove(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

// Downloads the file, stores a verified copy in `part`, and returns the name of the matching
// checksum.
std::string fetch_file(const PublishedSet& set, const PublishedFile& file, const std::string& part,
                       const FetchEvents& events) {
  std::string reasons;
  for (const std::string& mirror : set.mirrors) {
    const std::string url = cat(mirror, mirror.ends_with('/') ? "" : "/", file.name);
    // A partial file of an earlier attempt may belong to another version of the file. Then the
    // download is repeated once from the beginning.
    for (const bool may_retry : {true, false}) {
      const bool resumed = exists(part);
      std::string reason = download(url, part, [&](std::int64_t done, std::int64_t total) {
        if (events.progress) events.progress(file.name, done, total);
      });
      if (reason.empty()) {
        try {
          const std::string fits = check_sum(file, read_file(part), file.name, true);
          return fits.empty() ? "this program knows no published checksum" : fits;
        } catch (const Error& error) {
          if (error.kind() != ErrorKind::kData) throw;
          reason = error.what();
          remove(part);
          if (resumed && may_retry) continue;
        }
      }
      if (events.say) events.say(cat(url, ": ", reason));
      reasons += cat("\n  ", url, ": ", reason);
      break;
    }
  }
  fail(ErrorKind::kData, "data fetch",
       cat("expected ", file.name, " of ", set.name, " from one of ", set.mirrors.size(),
           " mirrors, got:", reasons,
           "\n  (another mirror: --mirror URL; or put the file there by hand)"));
}

void unpack(const PublishedSet& set, const std::string& archive_path, const std::string& folder) {
  const std::vector<std::uint8_t> archive = read_file(archive_path);
  Inflater inflater(archive, DeflateFormat::gzip, archive_path);
  std::set<std::string> missing(set.members.begin(), set.members.end());
  read_tar([&](std::uint8_t* to, std::size_t bytes) { return inflater.read(to, bytes); },
           archive_path, kLargestMember,
           [&](const std::string& name, std::vector<std::uint8_t> content) {
             const bool wanted =
                 missing.erase(name) > 0 || std::ranges::count(set.optional_members, name) > 0;
             if (!wanted) return;
             write_file(folder + "/" + name,
                        {reinterpret_cast<const char*>(content.data()), content.size()});
           });
  if (!missing.empty()) {
    fail(ErrorKind::kData, "data fetch",
         cat(archive_path, ": expected ", *missing.begin(), " in the archive, got none"));
  }
}

// Returns the copy of an IDX file that loading would use, "" when there is none.
std::string find_copy(const PublishedFile& file, const std::string& folder) {
  std::string stem = file.name;
  if (stem.ends_with(".gz")) stem.resize(stem.size() - 3);
  std::string dotted = stem;
  const std::size_t idx = dotted.rfind("-idx");
  if (idx != std::string::npos) dotted[idx] = '.';
  for (const std::string& name : {stem, dotted, stem + ".gz", dotted + ".gz"}) {
    if (exists(folder + "/" + name)) return folder + "/" + name;
  }
  return "";
}

// Checks the structure of an MNIST-like file; throws when it is invalid.
void check_idx_structure(const PublishedSet& set, Bytes bytes, const std::string& path,
                         const PublishedFile& file) {
  const Tensor tensor = parse_idx(bytes, path);
  const std::int64_t count = file.name.starts_with("train") ? set.train_size : set.test_size;
  const bool images = file.name.find("images") != std::string::npos;
  const Shape expected = images ? Shape{count, 28, 28} : Shape{count};
  if (count != 0 && !(tensor.shape() == expected)) {
    fail(ErrorKind::kData, "data", cat(path, ": expected ", expected, ", got ", tensor.shape()));
  }
  if (!images) check_labels(tensor.to(DType::i32), 10, set.name, path);
}

std::string check_cifar_member(const PublishedSet& set, Bytes bytes, const std::string& path,
                               std::size_t train_files) {
  const Dataset part = parse_cifar10(bytes, path);
  const bool is_test = path.ends_with("test_batch.bin");
  const std::int64_t expected =
      is_test ? set.test_size : set.train_size / static_cast<std::int64_t>(train_files);
  if (expected != 0 && part.size() != expected) {
    fail(ErrorKind::kData, "data",
         cat(path, ": expected ", expected, " records, got ", part.size()));
  }
  return std::string(kNoSum);
}

template <class Check>
FileReport report(const std::string& name, const std::string& path, Check&& check) {
  FileReport out;
  out.file = name;
  if (path.empty() || !exists(path)) {
    out.remark = "missing";
    return out;
  }
  try {
    const std::vector<std::uint8_t> bytes = read_file(path);
    out.file = std::filesystem::path(path).filename().string();
    out.bytes = static_cast<std::int64_t>(bytes.size());
    out.remark = check(Bytes(bytes));
    out.sound = true;
  } catch (const Error& error) {
    out.remark = error.what();
  }
  return out;
}

}  // namespace

std::string fetch_folder(const PublishedSet& set, const std::string& root) {
  if (root.empty()) return data_folders(set.name, "").front();
  std::filesystem::path path(root);
  if (!path.has_filename()) path = path.parent_path();  // "data/mnist/"
  const bool holds_some =
      set.members.empty()
          ? std::ranges::any_of(set.files,
                                [&](const PublishedFile& f) { return !find_copy(f, root).empty(); })
          : std::ranges::any_of(set.members,
                                [&](const std::string& m) { return exists(root + "/" + m); });
  return holds_some || path.filename() == set.name ? path.string() : (path / set.name).string();
}

std::vector<FileReport> check_files(const PublishedSet& set, const std::string& folder) {
  std::vector<FileReport> out;
  if (!set.members.empty()) {
    for (const std::string& member : set.members) {
      const std::string path = folder + "/" + member;
      out.push_back(report(member, path, [&](Bytes bytes) {
        return check_cifar_member(set, bytes, path, set.members.size() - 1);
      }));
    }
    return out;
  }
  for (const PublishedFile& file : set.files) {
    const std::string path = find_copy(file, folder);
    out.push_back(report(file.name, path, [&](Bytes bytes) {
      const std::string fits = check_sum(file, bytes, path, path.ends_with(".gz"));
      check_idx_structure(set, bytes, path, file);
      return fits.empty() ? std::string(kNoSum) : fits;
    }));
  }
  return out;
}

void fetch(const PublishedSet& set, const std::string& folder, const FetchEvents& events) {
  const auto say = [&](const std::string& line) {
    if (events.say) events.say(line);
  };
  make_folder(folder);
  const Turn turn(folder, say);
  const std::vector<FileReport> there = check_files(set, folder);
  if (std::ranges::all_of(there, [](const FileReport& f) { return f.sound; })) {
    say(cat(set.name, " is complete in ", folder));
    return;
  }
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    const PublishedFile& file = set.files[i];
    if (set.members.empty() && there[i].sound) {
      say(cat(file.name, ": there (", there[i].remark, ")"));
      continue;
    }
    const std::string path = folder + "/" + file.name;
    const std::string part = path + ".part";
    const std::string fits = fetch_file(set, file, part, events);
    if (!set.members.empty()) {
      unpack(set, part, folder);
      remove(part);
    } else {
      std::error_code error;
      std::filesystem::rename(part, path, error);
      if (error) {
        fail(ErrorKind::kIo, "data fetch",
             cat("expected to rename ", part, ", got: ", error.message()));
      }
    }
    say(cat(file.name, ": fetched (", fits, ")"));
  }
  for (const FileReport& file : check_files(set, folder)) {
    if (!file.sound) fail(ErrorKind::kData, "data fetch", cat(file.file, ": ", file.remark));
  }
}

}  // namespace convscope
