#include "net/packet/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "base/check.h"

namespace wt::net::packet {

namespace {

// Spins for some microseconds if every thread can have a core, then sleeps: a shared machine does not pay for waiting.
class Barrier {
 public:
  explicit Barrier(std::uint32_t n) : n_(n), spins_(n <= std::thread::hardware_concurrency() ? 4000 : 0) {}
  void meet() {
    const std::uint32_t phase = phase_.load(std::memory_order_acquire);
    if (count_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_) {
      count_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      phase_.notify_all();
      return;
    }
    for (int i = 0; i < spins_; ++i) {
      if (phase_.load(std::memory_order_acquire) != phase) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    phase_.wait(phase, std::memory_order_acquire);
  }

 private:
  const std::uint32_t n_;
  const int spins_;
  alignas(64) std::atomic<std::uint32_t> count_{0};
  alignas(64) std::atomic<std::uint32_t> phase_{0};
};

constexpr Time kStop = -1;
constexpr std::int64_t kPartSlab = 1 << 18;

struct alignas(64) Desk {      // what a partition tells the others at the end of a window, one for even and one for odd windows
  std::array<Time, 2> next{};  // earliest moment at which anything may happen because of it; kStop: stop
  std::array<std::vector<std::vector<Mail>>, 2> out;
  std::exception_ptr error;
};

class Together {
 public:
  Together(std::vector<std::unique_ptr<Part>>& parts, Time lookahead, const std::function<bool()>& poll)
      : parts_(parts),
        lookahead_(lookahead),
        poll_(poll),
        barrier_(static_cast<std::uint32_t>(parts.size())),
        desks_(parts.size()) {
    for (Desk& d : desks_)
      for (auto& boxes : d.out) boxes.resize(parts.size());
  }

  void run() {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < parts_.size(); ++i) threads.emplace_back([this, i] { work(i); });
    work(0);
    threads.clear();
    for (const Desk& d : desks_)
      if (d.error) std::rethrow_exception(d.error);
  }

 private:
  void work(std::size_t self) {
    Part& part = *parts_[self];
    Desk& desk = desks_[self];
    Time limit = 0;
    for (std::size_t window = 0;; ++window) {
      const std::size_t side = window % 2;
      try {
        if (window > 0)
          for (const Desk& other : desks_) part.take(other.out[1 - side][self]);
        desk.next[side] = simulate(part, desk, side, limit, self == 0);
      } catch (...) {
        desk.error = std::current_exception();
        desk.next[side] = kStop;
      }
      barrier_.meet();
      Time next = kForever;
      for (const Desk& d : desks_) next = std::min(next, d.next[side]);
      if (next == kStop || next == kForever) return;
      limit = next + lookahead_;
    }
  }

  Time simulate(Part& part, Desk& desk, std::size_t side, Time limit, bool polls) {
    for (auto& box : desk.out[side]) box.clear();
    part.outbox.swap(desk.out[side]);
    while (part.run(limit, kPartSlab))
      if (polls && due() && poll_ && poll_()) return kStop;
    if (polls && due() && poll_ && poll_()) return kStop;
    Time next = part.hand_over(limit);
    part.outbox.swap(desk.out[side]);
    next = std::min(next, part.next_event());
    for (const auto& box : desk.out[side])
      for (const Mail& m : box) next = std::min(next, m.time);
    return next;
  }

  // Every 50 ms or so of the calling thread.
  bool due() {
    const auto now = std::chrono::steady_clock::now();
    if (now - polled_ < std::chrono::milliseconds(50)) return false;
    polled_ = now;
    return true;
  }

  std::vector<std::unique_ptr<Part>>& parts_;
  Time lookahead_;
  const std::function<bool()>& poll_;
  Barrier barrier_;
  std::vector<Desk> desks_;
  std::chrono::steady_clock::time_point polled_ = std::chrono::steady_clock::now();
};

}  // namespace

void run_together(std::vector<std::unique_ptr<Part>>& parts, Time lookahead, const std::function<bool()>& poll) {
  Together(parts, lookahead, poll).run();
}

}  // namespace wt::net::packet
