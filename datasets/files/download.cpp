// SPDX-License-Identifier: Apache-2.0
// download.cpp: downloads a file over HTTP and resumes interrupted downloads. libcurl and its
// twenty dependencies are opened by name at the first download. So other commands start faster, and
// the program runs where libcurl is not installed.
#include "datasets/files/download.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "framework/check.h"

namespace convscope {
namespace {

constexpr std::int64_t kLargestBytes = std::int64_t{1} << 30;  // no known file is larger

struct Transfer {
  int descriptor = -1;
  std::int64_t begin = 0;    // bytes in the file before
  std::int64_t written = 0;  // bytes in the file now
  int write_error = 0;
  bool too_large = false;
  const DownloadProgress* progress = nullptr;
};

// The functions of libcurl in use; the types come from its header.
struct Curl {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) init = nullptr;
  decltype(&curl_easy_setopt) set = nullptr;
  decltype(&curl_easy_perform) perform = nullptr;
  decltype(&curl_easy_getinfo) get = nullptr;
  decltype(&curl_easy_strerror) strerror = nullptr;
  decltype(&curl_easy_cleanup) cleanup = nullptr;
};

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function != nullptr) return;
  fail(ErrorKind::kUnavailable, "data fetch",
       cat("expected a libcurl with the function ", name, ", got one without it"));
}

Curl open_curl() {
  void* library = nullptr;
  std::string reason;
  // libcurl-gnutls is Debian's name of the libcurl that uses GnuTLS.
  for (const char* const name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    if (reason.empty()) reason = ::dlerror();
  }
  if (library == nullptr) {
    fail(ErrorKind::kUnavailable, "data fetch",
         cat("expected libcurl, because it fetches the files, got: ", reason,
             "; on Debian and Ubuntu: apt-get install libcurl4; or put the files there by hand"));
  }
  Curl curl;
  look_up(library, "curl_global_init", curl.global_init);
  look_up(library, "curl_easy_init", curl.init);
  look_up(library, "curl_easy_setopt", curl.set);
  look_up(library, "curl_easy_perform", curl.perform);
  look_up(library, "curl_easy_getinfo", curl.get);
  look_up(library, "curl_easy_strerror", curl.strerror);
  look_up(library, "curl_easy_cleanup", curl.cleanup);
  curl.global_init(CURL_GLOBAL_DEFAULT);
  return curl;
}

const Curl& curl() {
  static const Curl functions = open_curl();
  return functions;
}

std::size_t on_data(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::size_t bytes = size * count;
  if (transfer.written + static_cast<std::int64_t>(bytes) > kLargestBytes) {
    transfer.too_large = true;
    return 0;
  }
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t wrote = ::write(transfer.descriptor, data + done, bytes - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      transfer.write_error = errno;
      return 0;
    }
    done += static_cast<std::size_t>(wrote);
  }
  transfer.written += static_cast<std::int64_t>(bytes);
  return bytes;
}

int on_progress(void* user, curl_off_t total, curl_off_t, curl_off_t, curl_off_t) {
  const auto& transfer = *static_cast<const Transfer*>(user);
  if (*transfer.progress) {
    (*transfer.progress)(transfer.written, total > 0 ? transfer.begin + total : 0);
  }
  return 0;
}

[[noreturn]] void fail_writing(const std::string& part, int error) {
  fail(ErrorKind::kIo, "data fetch",
       cat("expected to write ", part, ", got: ", std::strerror(error)));
}

// Opens the file, appends from its end, closes it.
CURLcode transfer_once(const std::string& url, const std::string& part, Transfer& transfer,
                       std::string& reason) {
  transfer.descriptor = ::open(part.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (transfer.descriptor < 0) fail_writing(part, errno);
  struct stat status {};
  if (::fstat(transfer.descriptor, &status) == 0) transfer.begin = status.st_size;
  transfer.written = transfer.begin;

  char text[CURL_ERROR_SIZE] = "";
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> session(curl().init(), curl().cleanup);
  if (session == nullptr)
    fail(ErrorKind::kRun, "data fetch", "expected memory for libcurl, got none");
  CURL* handle = session.get();
  const auto set = curl().set;
  set(handle, CURLOPT_URL, url.c_str());
  set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  set(handle, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(handle, CURLOPT_FOLLOWLOCATION, 1L);
  set(handle, CURLOPT_MAXREDIRS, 5L);
  set(handle, CURLOPT_FAILONERROR, 1L);
  set(handle, CURLOPT_NOSIGNAL, 1L);
  set(handle, CURLOPT_CONNECTTIMEOUT, 20L);
  set(handle, CURLOPT_LOW_SPEED_LIMIT, 100L);  // bytes per second
  set(handle, CURLOPT_LOW_SPEED_TIME, 30L);    // seconds
  set(handle, CURLOPT_USERAGENT, "convscope/" CONVSCOPE_VERSION);
  set(handle, CURLOPT_ERRORBUFFER, text);
  set(handle, CURLOPT_WRITEFUNCTION, &on_data);
  set(handle, CURLOPT_WRITEDATA, &transfer);
  set(handle, CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(handle, CURLOPT_XFERINFODATA, &transfer);
  set(handle, CURLOPT_NOPROGRESS, 0L);
  if (transfer.begin > 0) {
    set(handle, CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(transfer.begin));
  }
  const CURLcode code = curl().perform(handle);
  (void)::fsync(transfer.descriptor);  // it is renamed next
  if (::close(transfer.descriptor) != 0 && transfer.write_error == 0) transfer.write_error = errno;
  long answer = 0;
  curl().get(handle, CURLINFO_RESPONSE_CODE, &answer);
  if (transfer.write_error != 0) fail_writing(part, transfer.write_error);
  if (code == CURLE_HTTP_RETURNED_ERROR) {
    reason = cat("the server answered ", static_cast<int>(answer));
    // The server answers 416 when the partial file `part` is at least as long as the published
    // file. libcurl usually treats 416 as success.
    return answer == 416 ? CURLE_RANGE_ERROR : code;
  }
  if (transfer.too_large) {
    reason = cat("the file is larger than ", kLargestBytes, " bytes");
  } else if (code == CURLE_PARTIAL_FILE) {
    reason = cat("the connection ended after ", transfer.written, " bytes");
  } else if (code != CURLE_OK) {
    reason = text[0] != '\0' ? text : curl().strerror(code);
  }
  return code;
}

}  // namespace

std::string download(const std::string& url, const std::string& part,
                     const DownloadProgress& progress) {
  curl();  // throws if libcurl is missing
  std::string reason;
  std::int64_t best = -1;
  // Resumes a cut connection while each attempt makes progress.
  for (int attempt = 0; attempt < 20; ++attempt) {
    Transfer transfer;
    transfer.progress = &progress;
    reason.clear();
    const CURLcode code = transfer_once(url, part, transfer, reason);
    if (code == CURLE_OK) return "";
    if (code == CURLE_RANGE_ERROR && transfer.begin > 0) {  // no ranges supported: start again
      if (::unlink(part.c_str()) != 0) fail_writing(part, errno);
      continue;
    }
    if (code != CURLE_PARTIAL_FILE || transfer.written <= best) {
      if (transfer.written == 0) ::unlink(part.c_str());
      return reason;
    }
    best = transfer.written;
  }
  return reason;
}

}  // namespace convscope
