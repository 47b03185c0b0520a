// SPDX-License-Identifier: Apache-2.0
// life_signs.cpp: the short status messages that process 0 and every other process exchange twice a
// second.
#include "framework/distributed/life_signs.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace convscope {
namespace {

constexpr int kTag = 7;
constexpr double kSendSeconds = 0.5, kLookSeconds = 0.01, kSleptSeconds = 2;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

LifeSigns::LifeSigns(const MpiLibrary& mpi, int rank, int size, double patience_s)
    : mpi_(mpi), rank_(rank), patience_s_(patience_s) {
  peers_.resize(static_cast<std::size_t>(rank == 0 ? size - 1 : 1));
  const double now = last_tick_s_ = now_s();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    peer.rank = rank == 0 ? static_cast<int>(i) + 1 : 0;
    peer.heard_s = now;
    mpi_.irecv(&peer.in, sizeof(Message), mpi_.type_byte, peer.rank, kTag, mpi_.world,
               &peer.receiving);
  }
}

void LifeSigns::say(Kind kind, std::int32_t code, const std::string& text) {
  own_.kind = kind;
  own_.code = code;
  const std::size_t length = std::min(text.size(), sizeof(own_.text) - 1);
  std::memcpy(own_.text, text.data(), length);
  own_.text[length] = '\0';
  for (Peer& peer : peers_) peer.sent_s = 0;  // send at once
}

void LifeSigns::receive(Peer& peer, double now) {
  while (!peer.is_gone) {
    int done = 0;
    if (mpi_.test(&peer.receiving, &done, mpi_.status_ignore) != 0 || done == 0) return;
    peer.heard_s = now;
    if (peer.in.signal != 0) heard_signal_ = peer.in.signal;
    if (peer.in.kind == kFailed && failed_ < 0) {
      failed_ = peer.rank;
      failed_code_ = peer.in.code;
      peer.in.text[sizeof(peer.in.text) - 1] = '\0';
      failed_text_ = peer.in.text;
    }
    peer.is_gone = peer.in.kind != kAlive;
    if (peer.is_gone) return;
    mpi_.irecv(&peer.in, sizeof(Message), mpi_.type_byte, peer.rank, kTag, mpi_.world,
               &peer.receiving);
  }
}

void LifeSigns::send(Peer& peer, double now) {
  if (peer.is_sending) {
    int done = 0;
    if (mpi_.test(&peer.sending, &done, mpi_.status_ignore) != 0 || done == 0) return;
    peer.is_sending = false;
    peer.knows_end = peer.out.kind != kAlive;
  }
  if (peer.knows_end || now - peer.sent_s < kSendSeconds) return;
  peer.out = own_;
  // Process 0 forwards to all others the signal that it has received from another process.
  peer.out.signal = signal_ != 0 ? signal_ : rank_ == 0 ? heard_signal_ : 0;
  peer.sent_s = now;
  peer.is_sending = mpi_.isend(&peer.out, sizeof(Message), mpi_.type_byte, peer.rank, kTag,
                               mpi_.world, &peer.sending) == 0;
}

void LifeSigns::tick() {
  const double now = now_s();
  if (now - last_tick_s_ < kLookSeconds) return;
  const bool slept = now - last_tick_s_ > kSleptSeconds;
  last_tick_s_ = now;
  for (Peer& peer : peers_) {
    receive(peer, now);
    send(peer, now);
    if (slept) peer.heard_s = now;
    if (!peer.is_gone && silent_ < 0 && now - peer.heard_s > patience_s_) silent_ = peer.rank;
  }
}

bool LifeSigns::all_gone() const {
  return std::ranges::all_of(peers_,
                             [](const Peer& peer) { return peer.is_gone && peer.knows_end; });
}

}  // namespace convscope
