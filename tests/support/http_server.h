// SPDX-License-Identifier: Apache-2.0
// http_server.h: a small HTTP server on 127.0.0.1 for tests of downloads. The server sends files
// from memory, one connection at a time. It can truncate answers, ignore the Range header, and
// answer with errors.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace convscope::testing {

struct ServedFile {
  std::string content;
  std::size_t cut_after = std::string::npos;  // bytes of each answer, then it disconnects
  bool ranges = true;
};

class HttpServer {
 public:
  HttpServer() : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw std::runtime_error("no local port for the test server");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    stopping_ = true;
    thread_.join();
    ::close(listener_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url(const std::string& path = "") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  void put(const std::string& path, ServedFile file) {
    const std::scoped_lock lock(mutex_);
    files_[path] = std::move(file);
  }
  // Returns "/a" or "/a from 100" per request, in order.
  std::vector<std::string> requests() {
    const std::scoped_lock lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (!stopping_) {
      pollfd waiting{listener_, POLLIN, 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection < 0) continue;
      answer(connection);
      ::close(connection);
    }
  }

  void answer(int connection) {
    std::string request;
    char piece[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = ::recv(connection, piece, sizeof piece, 0);
      if (got <= 0) return;
      request.append(piece, static_cast<std::size_t>(got));
    }
    const std::string path = request.substr(4, request.find(' ', 4) - 4);  // "GET /path ..."
    const std::size_t range = request.find("Range: bytes=");
    const bool has_range = range != std::string::npos;
    const std::size_t begin = has_range ? std::stoul(request.substr(range + 13)) : 0;
    ServedFile file;
    bool known = false;
    {
      const std::scoped_lock lock(mutex_);
      requests_.push_back(has_range ? path + " from " + std::to_string(begin) : path);
      const auto found = files_.find(path);
      known = found != files_.end();
      if (known) file = found->second;
    }
    if (!known) return send(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    std::string head = "HTTP/1.1 200 OK\r\n";
    std::string body = file.content;
    if (has_range && file.ranges) {
      if (begin >= body.size()) {
        return send(connection, "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n");
      }
      head = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " + std::to_string(begin) + "-" +
             std::to_string(body.size() - 1) + "/" + std::to_string(body.size()) + "\r\n";
      body = body.substr(begin);
    }
    head += "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n";
    send(connection, head + body.substr(0, std::min(body.size(), file.cut_after)));
  }

  static void send(int connection, const std::string& bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t sent =
          ::send(connection, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (sent <= 0) return;
      done += static_cast<std::size_t>(sent);
    }
  }

  int listener_;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::map<std::string, ServedFile> files_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace convscope::testing
