// SPDX-License-Identifier: Apache-2.0
// life_signs.h: the short status messages that process 0 and every other process exchange twice a
// second. A message says that a process is alive, has received a signal, has failed, or leaves.
//
// Clocks  Each process measures the silence of others with its own clock, so clocks need not agree.
//         A process that was suspended starts to measure all silences again, because it cannot know
//         which process was silent while it was suspended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/distributed/mpi_library.h"

namespace convscope {

class LifeSigns {
 public:
  enum Kind : std::int32_t { kAlive, kFailed, kBye };

  LifeSigns(const MpiLibrary& mpi, int rank, int size, double patience_s);

  // Sends and receives pending messages; returns quickly. Call it often.
  void tick();
  // Sets this process's status; the next tick() sends it.
  void say(Kind kind, std::int32_t code, const std::string& text);
  void say_signal(int signal) { signal_ = signal; }

  // Returns a process that was silent for longer than the permitted time; -1: none.
  int silent_rank() const { return silent_; }
  // Returns the first process that has failed; -1: none.
  int failed_rank() const { return failed_; }
  std::int32_t failed_code() const { return failed_code_; }
  const std::string& failed_text() const { return failed_text_; }
  // Returns a signal that another process has received; 0: none.
  int heard_signal() const { return heard_signal_; }
  // Returns true when this process has sent its status, and each process with which it exchanges
  // messages has failed or reported that it leaves.
  bool all_gone() const;

 private:
  struct Message {
    std::int32_t kind = kAlive, signal = 0, code = 0;
    char text[500] = {};
  };
  struct Peer {
    int rank = 0;
    Message in, out;
    MpiLibrary::Request receiving, sending;
    bool is_sending = false, is_gone = false, knows_end = false;
    double heard_s = 0, sent_s = 0;
  };
  void receive(Peer& peer, double now);
  void send(Peer& peer, double now);

  const MpiLibrary& mpi_;
  int rank_;
  double patience_s_, last_tick_s_ = 0;
  std::vector<Peer> peers_;  // on process 0: all other processes; elsewhere: process 0
  Message own_;
  int signal_ = 0, heard_signal_ = 0, silent_ = -1, failed_ = -1;
  std::int32_t failed_code_ = 0;
  std::string failed_text_;
};

}  // namespace convscope
