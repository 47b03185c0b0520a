// SPDX-License-Identifier: Apache-2.0
// process_group.cpp: the processes that train one network together. Requests for MPI are executed
// in order by a background thread, or by a thread that waits for a result.
#include "framework/distributed/process_group.h"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "framework/distributed/life_signs.h"
#include "framework/io/clean_text.h"

namespace convscope {
namespace {

constexpr const char* kName = "ranks";
constexpr int kTreeTag = 8;
constexpr std::int64_t kSumElements = std::int64_t{1} << 20;  // 4 MiB
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 28;     // per call: MPI counts with int
// MPI moves data only while it is polled. A thread that waits for a result polls continuously,
// because it has no other use for its core. The background thread polls several times in a row, and
// leaves the core to other work in between.
constexpr int kSpins = 20000;  // polls (some ms) before a waiting thread sleeps between polls
constexpr int kLooksInARow = 16;
// All processes may fail for the same reason. So process 0 waits kGraceSeconds after its failure
// for the failures of the others. Other processes wait kLongGraceSeconds after their failure,
// because process 0 may have to report it.
constexpr double kGraceSeconds = 1.5, kLongGraceSeconds = 5;

std::atomic<ProcessGroup*> current_group{nullptr};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the set of cores that this process may run on, as bytes; "" when it is unknown.
std::string own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return "";
  return {reinterpret_cast<const char*>(&cores), sizeof(cores)};
}
int core_count() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

std::string host_name() {
  char text[256] = {};
  if (gethostname(text, sizeof(text) - 1) != 0 || text[0] == '\0') return "unknown";
  return text;
}

void say_error(const std::string& sentence) {
  std::fprintf(stderr, "error: %s\n", clean_text(sentence).c_str());
  std::fflush(stderr);
}

}  // namespace

struct ProcessGroup::Impl {
  explicit Impl(ProcessGroup& owner) : group(owner) {}

  struct Failure {
    int exit_code = 1;
    std::string sentence;
  };
  // A job is a request of the caller. `begin` does all work of the job, or starts the MPI operation
  // `request`. In the second case, the background thread or a waiting thread polls `request` until
  // it completes, and calls `next`. `next` starts another MPI operation, or returns false to end
  // the job.
  struct Job {
    std::function<void()> begin;
    std::function<bool()> next;  // null: begin() does it all
  };

  void work();
  void serve();
  Ticket add(Job job);
  bool has_work();
  bool advance();
  void finish_job();
  void wait_here(Ticket ticket);
  void say_goodbye();
  void tick();
  [[noreturn]] void fail_together(const Failure& failure);
  [[noreturn]] void follow_failure();
  std::optional<Failure> own_failure();
  void check(int status, const char* what);
  void rest(int looks) const;
  void complete(MpiLibrary::Request& awaited, const char* what);
  void exchange_tree(float* data, std::int64_t count);
  [[noreturn]] void lost(int exit_code, const std::string& sentence);
  [[noreturn]] void end(int exit_code, bool orderly);

  ProcessGroup& group;
  const MpiLibrary* mpi = nullptr;
  // Only the thread that holds this mutex calls MPI: the background thread, or a thread that waits
  // for a result. The waiting thread already has a core, so it need not wake the background thread.
  std::mutex turn;
  std::optional<LifeSigns> life;
  std::optional<Job> current;
  MpiLibrary::Request request;
  std::vector<float> tree_buffer;
  bool may_share = false;  // MPI allows two threads to call it in turns
  // True with more processes than cores: a spinning process would occupy the core that another
  // process needs.
  std::atomic<bool> is_crowded{false};

  std::atomic<Ticket> done{0};
  std::mutex mutex;  // guards the members below; lock `turn` first
  std::condition_variable changed;
  std::deque<Job> jobs;
  Ticket queued = 0;
  bool closing = false;
  bool joined = false;
  std::exception_ptr refused;  // join() has failed
  std::function<void(int, const std::string&)> on_lost;
  std::optional<Failure> failing;  // this process has failed

  std::atomic<bool> is_waited_for{false};
  std::thread thread;
};

void ProcessGroup::Impl::check(int status, const char* what) {
  if (status == 0) return;
  char text[4096] = {};
  int length = 0;
  mpi->error_string(status, text, &length);
  lost(kLostExitCode,
       cat("[ranks] expected ", what, " to succeed, got from ", group.library_, ": ", text));
}

// Ends all processes because one is lost. Several processes may see the loss; the first to announce
// it prints one sentence and ends all.
void ProcessGroup::Impl::lost(int exit_code, const std::string& sentence) {
  std::function<void(int, const std::string&)> call;
  {
    const std::scoped_lock lock(mutex);
    call = on_lost;
  }
  say_error(sentence);
  if (call) call(exit_code, sentence);
  end(exit_code, /*orderly=*/false);
}

void ProcessGroup::Impl::end(int exit_code, bool orderly) {
  std::fflush(stdout);
  std::fflush(stderr);
  if (orderly) {
    mpi->finalize();
  } else {
    mpi->abort(mpi->world, exit_code);
  }
  _exit(exit_code);
}

void ProcessGroup::Impl::tick() {
  if (int (*const received)() noexcept = group.received_signal_) life->say_signal(received());
  life->tick();
  if (life->heard_signal() != 0) group.their_signal_ = life->heard_signal();
  if (const std::optional<Failure> own = own_failure()) fail_together(*own);
  if (life->failed_rank() >= 0) follow_failure();
  const int silent = life->silent_rank();
  if (silent >= 0) {
    // Process 0 receives the messages of all processes, so it reports a silent process. If process
    // 0 is silent, process 1 reports this. All other processes exit without a message.
    if (group.rank() > 1) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kGraceSeconds));
      _exit(kLostExitCode);
    }
    lost(kLostExitCode, cat("[ranks] expected a sign of life of ", group.name_of(silent),
                            " within ", kPatienceSeconds,
                            " seconds, got none: it was stopped or its host is gone; "
                            "`convscope run --resume` continues from the last checkpoint"));
  }
}

// Waits between two polls of MPI by sleeping. It never yields: Linux counts a yield as a used time
// slice, and another process then keeps the core for milliseconds. A sleeping thread is woken in
// time.
void ProcessGroup::Impl::rest(int looks) const {
  const bool is_urgent = is_waited_for.load(std::memory_order_relaxed);
  const int spins = !is_urgent ? 0 : is_crowded ? kLooksInARow : kSpins;
  if (looks >= spins && looks % kLooksInARow == 0) usleep(20);
}

void ProcessGroup::Impl::complete(MpiLibrary::Request& awaited, const char* what) {
  for (int looks = 0;; ++looks) {
    int is_done = 0;
    check(mpi->test(&awaited, &is_done, mpi->status_ignore), what);
    if (is_done != 0) return;
    tick();
    rest(looks);
  }
}

void ProcessGroup::Impl::exchange_tree(float* data, std::int64_t count) {
  for (int distance = 1; distance < group.size(); distance *= 2) {
    const int partner = group.rank() ^ distance;
    for (std::int64_t begin = 0; begin < count; begin += kMaxBytes / 4) {
      const std::int64_t part = std::min(kMaxBytes / 4, count - begin);
      tree_buffer.resize(static_cast<std::size_t>(part));
      MpiLibrary::Request receiving, sending;
      check(mpi->irecv(tree_buffer.data(), static_cast<int>(part), mpi->type_float, partner,
                       kTreeTag, mpi->world, &receiving),
            "a sum");
      check(mpi->isend(data + begin, static_cast<int>(part), mpi->type_float, partner, kTreeTag,
                       mpi->world, &sending),
            "a sum");
      complete(receiving, "a sum");
      complete(sending, "a sum");
      // a + b has the same bits as b + a.
      for (std::int64_t i = 0; i < part; ++i) data[begin + i] += tree_buffer[i];
    }
  }
}

// The background thread: joins the other processes, then executes requests.
void ProcessGroup::Impl::work() {
  prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);  // ns: its sleeps are short
  try {
    mpi = &open_mpi_library(group.environment_.mpi);
    group.library_ = mpi->name;
    int provided = 0;
    const int status = mpi->init_thread(nullptr, nullptr, mpi->thread_serialized, &provided);
    may_share = provided >= mpi->thread_serialized;
    if (status != 0) fail(ErrorKind::kUnavailable, kName, cat(mpi->name, " does not start"));
    mpi->comm_set_errhandler(mpi->world, mpi->errors_return);
    int rank = -1, size = -1;
    mpi->comm_rank(mpi->world, &rank);
    mpi->comm_size(mpi->world, &size);
    if (rank != group.rank() || size != group.size()) {
      fail(ErrorKind::kUnavailable, kName,
           cat("expected process ", group.rank(), " of ", group.size(), " because ",
               group.environment_.launcher, " says so, got process ", rank, " of ", size, " from ",
               mpi->name, "; launcher and library must belong together"));
    }
    life.emplace(*mpi, rank, size, kPatienceSeconds);
  } catch (const Error&) {
    const std::scoped_lock lock(mutex);
    refused = std::current_exception();
  }
  {
    const std::scoped_lock lock(mutex);
    joined = true;
  }
  changed.notify_all();
  if (refused) return;
  serve();
}

void ProcessGroup::Impl::serve() {
  while (true) {
    bool leaves = false;
    {
      std::unique_lock lock(mutex);
      const auto is_mine = [this] { return !(may_share && is_waited_for); };
      changed.wait_for(lock, std::chrono::milliseconds(100),
                       [&] { return (queued != done && is_mine()) || closing || failing; });
      leaves = closing && queued == done;
      if (queued != done && !is_mine() && !failing) continue;
    }
    if (leaves) return say_goodbye();
    {
      const std::scoped_lock lock(turn);
      tick();
      for (int looks = 0; looks < kLooksInARow && advance(); ++looks) {
      }
    }
    if (has_work()) usleep(20);
  }
}

bool ProcessGroup::Impl::has_work() {
  const std::scoped_lock lock(mutex);
  return queued != done;
}

// Polls the current job, or begins the next job. Returns false when no job is left.
bool ProcessGroup::Impl::advance() {
  if (!current) {
    {
      const std::scoped_lock lock(mutex);
      if (jobs.empty()) return false;
      current = std::move(jobs.front());
      jobs.pop_front();
    }
    current->begin();
    if (!current->next) finish_job();
    return true;
  }
  int is_done = 0;
  check(mpi->test(&request, &is_done, mpi->status_ignore), "a sum");
  if (is_done != 0 && !current->next()) finish_job();
  return true;
}

void ProcessGroup::Impl::finish_job() {
  current.reset();
  {
    const std::scoped_lock lock(mutex);
    ++done;
  }
  changed.notify_all();
}

// Waits until the request with this ticket is done. Meanwhile, the calling thread makes the MPI
// calls.
void ProcessGroup::Impl::wait_here(Ticket ticket) {
  is_waited_for = true;
  for (int looks = 0; done < ticket; ++looks) {
    if (std::unique_lock lock(turn, std::try_to_lock); lock.owns_lock()) {
      advance();
      if (looks % kLooksInARow == 0) tick();
    }
    rest(looks);
  }
  is_waited_for = false;
  if (has_work()) changed.notify_all();
}

// Waits until all processes leave, because MPI must not be finalised while another process still
// communicates.
void ProcessGroup::Impl::say_goodbye() {
  const std::scoped_lock lock(turn);
  life->say(LifeSigns::kBye, 0, "");
  while (!life->all_gone()) {
    tick();
    usleep(500);
  }
  mpi->finalize();
}

// Ends this process after its own failure. If all other processes fail or leave, too, each process
// finalises MPI. Otherwise, this process aborts the whole group.
void ProcessGroup::Impl::fail_together(const Failure& failure) {
  life->say(LifeSigns::kFailed, failure.exit_code, failure.sentence);
  const double start = now_s();
  const double patience = group.rank() == 0 ? kGraceSeconds : kLongGraceSeconds;
  while (!life->all_gone() && now_s() - start < patience) {
    life->tick();
    usleep(1000);
  }
  end(failure.exit_code, life->all_gone());
}

// Handles the failure of another process. All processes may fail for the same reason. In that case,
// this process soon reports its own failure.
void ProcessGroup::Impl::follow_failure() {
  const double start = now_s();
  while (now_s() - start < kGraceSeconds) {
    life->tick();
    usleep(1000);
    if (const std::optional<Failure> own = own_failure()) fail_together(*own);
  }
  // Only the other process has failed, so process 0 reports for it. Processes other than 0 just
  // exit.
  if (group.rank() != 0) _exit(life->failed_code());
  lost(life->failed_code(),
       cat(life->failed_text(), " (", group.name_of(life->failed_rank()), ")"));
}

std::optional<ProcessGroup::Impl::Failure> ProcessGroup::Impl::own_failure() {
  const std::scoped_lock lock(mutex);
  return failing;
}

// ---- requests of the process ----

ProcessGroup::ProcessGroup(const RankEnvironment& environment)
    : environment_(environment), impl_(std::make_unique<Impl>(*this)) {}

std::unique_ptr<ProcessGroup> ProcessGroup::join(const RankEnvironment& environment) {
  std::unique_ptr<ProcessGroup> group(new ProcessGroup(environment));
  Impl& impl = *group->impl_;
  impl.thread = std::thread([&impl] { impl.work(); });
  {
    std::unique_lock lock(impl.mutex);
    impl.changed.wait(lock, [&] { return impl.joined; });
  }
  if (impl.refused) {
    impl.thread.join();
    std::rethrow_exception(impl.refused);
  }
  const std::string host = host_name() + "\n";
  const std::string cores = own_cores();
  const auto pids = group->gather(cat(std::int64_t{getpid()}));
  const auto places = group->gather(host + cores);  // the cores of each host in use
  const std::scoped_lock lock(impl.mutex);
  group->pids_ = pids;
  for (const std::string& place : places) {
    group->hosts_.push_back(place.substr(0, place.find('\n')));
  }
  group->sharers_ = static_cast<int>(std::ranges::count(places, host + cores));
  impl.is_crowded = group->sharers_ > core_count();
  return group;
}

ProcessGroup::~ProcessGroup() {
  if (current_group == this) current_group = nullptr;
  if (!impl_->thread.joinable()) return;
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->closing = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

std::string ProcessGroup::name_of(int rank) const {
  const std::scoped_lock lock(impl_->mutex);
  const auto i = static_cast<std::size_t>(rank);
  if (i >= hosts_.size()) return cat("process ", rank, " of ", size());
  return cat("process ", rank, " of ", size(), ", host ", hosts_[i], ", pid ", pids_[i]);
}

ProcessGroup::Ticket ProcessGroup::Impl::add(Job job) {
  Ticket ticket = 0;
  {
    const std::scoped_lock lock(mutex);
    jobs.push_back(std::move(job));
    ticket = ++queued;
  }
  changed.notify_all();
  return ticket;
}

ProcessGroup::Ticket ProcessGroup::queue(std::function<void()> work) {
  return impl_->add({.begin = std::move(work), .next = {}});
}

void ProcessGroup::wait(Ticket ticket) {
  const double start = now_s();
  if (impl_->may_share) {
    impl_->wait_here(ticket);
  } else {
    std::unique_lock lock(impl_->mutex);
    impl_->is_waited_for = true;
    impl_->changed.wait(lock, [&] { return impl_->done >= ticket; });
    impl_->is_waited_for = false;
  }
  waited_s_ += now_s() - start;
}

ProcessGroup::Ticket ProcessGroup::queue_sum(float* data, std::int64_t count, float weight,
                                             SumOrder order) {
  Impl& impl = *impl_;
  const auto scale = [weight](float* part, std::int64_t elements) {
    if (weight == 1) return;
    for (std::int64_t i = 0; i < elements; ++i) part[i] *= weight;
  };
  if (order == SumOrder::tree || count == 0) {
    return queue([&impl, scale, data, count] {
      scale(data, count);
      impl.exchange_tree(data, count);
    });
  }
  // Sums the array in blocks of kSumElements, because a sum that exceeds the caches runs at a
  // quarter of the rate.
  const auto next = [&impl, scale, data, count, at = std::int64_t{0}]() mutable {
    if (at >= count) return false;
    const std::int64_t part = std::min(kSumElements, count - at);
    scale(data + at, part);
    const MpiLibrary& mpi = *impl.mpi;
    impl.check(mpi.iallreduce(mpi.in_place, data + at, static_cast<int>(part), mpi.type_float,
                              mpi.op_sum, mpi.world, &impl.request),
               "a sum");
    at += part;
    return true;
  };
  return impl.add({.begin = [&impl] { impl.current->next(); }, .next = next});
}

std::string ProcessGroup::broadcast(const std::string& bytes) {
  std::string out = rank() == 0 ? bytes : "";
  wait(queue([&] {
    const MpiLibrary& mpi = *impl_->mpi;
    const auto send = [&](void* data, std::int64_t count) {
      MpiLibrary::Request request;
      impl_->check(mpi.ibcast(data, static_cast<int>(count), mpi.type_byte, 0, mpi.world, &request),
                   "a broadcast");
      impl_->complete(request, "a broadcast");
    };
    auto size = static_cast<std::int64_t>(out.size());
    send(&size, sizeof(size));
    out.resize(static_cast<std::size_t>(size));
    for (std::int64_t at = 0; at < size; at += kMaxBytes) {
      send(out.data() + at, std::min(kMaxBytes, size - at));
    }
  }));
  return out;
}

std::vector<std::string> ProcessGroup::gather(const std::string& bytes) {
  std::vector<std::string> out(static_cast<std::size_t>(size()));
  wait(queue([&] {
    const MpiLibrary& mpi = *impl_->mpi;
    const auto all = [&](const void* data, std::int64_t count, void* to) {
      MpiLibrary::Request request;
      const auto n = static_cast<int>(count);
      impl_->check(
          mpi.iallgather(data, n, mpi.type_byte, to, n, mpi.type_byte, mpi.world, &request),
          "a message");
      impl_->complete(request, "a message");
    };
    const auto size_here = static_cast<std::int64_t>(bytes.size());
    std::vector<std::int64_t> sizes(out.size());
    all(&size_here, sizeof(size_here), sizes.data());
    const std::int64_t most = std::max<std::int64_t>(1, *std::ranges::max_element(sizes));
    std::string padded = bytes;
    padded.resize(static_cast<std::size_t>(most));
    std::string joined(out.size() * static_cast<std::size_t>(most), '\0');
    all(padded.data(), most, joined.data());
    for (std::size_t r = 0; r < out.size(); ++r) {
      out[r] =
          joined.substr(r * static_cast<std::size_t>(most), static_cast<std::size_t>(sizes[r]));
    }
  }));
  return out;
}

ProcessGroup::Ticket ProcessGroup::queue_sum(double* values, std::int64_t count) {
  Impl& impl = *impl_;
  const auto all = std::make_shared<std::vector<double>>(static_cast<std::size_t>(count * size()));
  return impl.add({.begin =
                       [&impl, all, values, count] {
                         const MpiLibrary& mpi = *impl.mpi;
                         const auto n = static_cast<int>(count);
                         impl.check(mpi.iallgather(values, n, mpi.type_double, all->data(), n,
                                                   mpi.type_double, mpi.world, &impl.request),
                                    "a sum");
                       },
                   .next =
                       [this, all, values, count] {
                         for (std::int64_t i = 0; i < count; ++i) {
                           double sum = 0;
                           for (int r = 0; r < size(); ++r) {
                             sum += (*all)[static_cast<std::size_t>(r * count + i)];
                           }
                           values[i] = sum;
                         }
                         return false;
                       }});
}

void ProcessGroup::sum(double* values, std::int64_t count) { wait(queue_sum(values, count)); }

double ProcessGroup::most(double value) {
  double out = value;
  for (const std::string& text : gather({reinterpret_cast<const char*>(&value), sizeof(value)})) {
    double other = 0;
    std::memcpy(&other, text.data(), sizeof(other));
    out = std::max(out, other);
  }
  return out;
}

void ProcessGroup::on_lost(std::function<void(int, const std::string&)> call) {
  const std::scoped_lock lock(impl_->mutex);
  impl_->on_lost = std::move(call);
}

void ProcessGroup::fail_all(int exit_code, const std::string& sentence) {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->failing = Impl::Failure{exit_code, sentence};
  }
  impl_->changed.notify_all();
  impl_->thread.join();  // the thread ends the process
  _exit(exit_code);
}

ProcessGroup* process_group() { return current_group; }
void set_process_group(ProcessGroup* group) { current_group = group; }

}  // namespace convscope
