#include "net/packet/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
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

// Every 50 ms or so of the calling thread.
class Clock {
 public:
  bool due() {
    if (++asked_ % 16 != 0) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now - polled_ < std::chrono::milliseconds(50)) return false;
    polled_ = now;
    return true;
  }

 private:
  std::uint32_t asked_ = 0;
  std::chrono::steady_clock::time_point polled_ = std::chrono::steady_clock::now();
};

class Together {
 public:
  Together(std::vector<std::unique_ptr<Part>>& parts, std::int32_t threads, Time lookahead,
           const std::function<bool(std::int64_t)>& poll)
      : parts_(parts),
        lookahead_(lookahead),
        poll_(poll),
        desks_(static_cast<std::size_t>(threads)),
        seats_(parts.size()),
        barrier_(static_cast<std::uint32_t>(threads)) {
    for (std::size_t i = 0; i < parts.size(); ++i) seats_[i].next = parts[i]->not_before();
  }

  void run() {
    if (desks_.size() == 1) {
      run_alone();
    } else {
      std::vector<std::jthread> threads;
      for (std::size_t i = 1; i < desks_.size(); ++i) threads.emplace_back([this, i] { work(i); });
      work(0);
      threads.clear();
    }
    for (const Seat& s : seats_)
      if (s.error) std::rethrow_exception(s.error);
  }

 private:
  struct alignas(64) Seat {  // of a partition
    Time next = kForever;    // nothing happens in it before
    std::exception_ptr error;
    std::atomic<std::uint32_t> taken{0};    // windows in which a thread has taken it
    std::mutex lock;                        // of news
    std::array<std::vector<Mail>, 2> news;  // for even and for odd windows
  };
  struct alignas(64) Desk {                 // of a thread, for even and for odd windows
    std::array<Time, 2> next{};             // nothing happens before because of it; kStop: stop
    std::array<std::int64_t, 2> arrived{};  // bytes
  };

  // One thread needs no barriers: what a partition sends is known to the others at once, and is beyond the window.
  void run_alone() {
    Time limit = 0;
    for (;;) {
      Time next = kForever;
      for (const Seat& s : seats_) next = std::min(next, s.next);
      if (next == kForever) return;
      limit = std::max(limit, next) + lookahead_;
      for (std::size_t p = 0; p < parts_.size(); ++p) {
        if (seats_[p].next >= limit) continue;
        if (!simulate(p, limit, true)) return;
        for (const Mail& m : parts_[p]->news) {
          parts_[m.part]->take(m);
          seats_[m.part].next = std::min(seats_[m.part].next, m.time);
        }
      }
    }
  }

  // False to stop: its poll says so, or it threw.
  bool simulate(std::size_t p, Time limit, bool polls) {
    Part& part = *parts_[p];
    try {
      while (part.run(limit, kPartSlab))
        if (polls && stops()) return false;
      if (polls && stops()) return false;
      part.news.clear();
      seats_[p].next = part.hand_over(limit);
      seats_[p].next = std::min(seats_[p].next, part.not_before());
      return true;
    } catch (...) {
      seats_[p].error = std::current_exception();
      return false;
    }
  }

  void work(std::size_t self) {
    Time limit = 0;
    std::int64_t arrived = 0;
    const std::size_t first = self * parts_.size() / desks_.size();
    for (std::uint32_t window = 0;; ++window) {
      const std::size_t side = window % 2;
      Time next = kForever;
      // its own share first, then what others have not begun
      for (std::size_t i = 0; i < parts_.size() && next != kStop; ++i) {
        const std::size_t p = (first + i) % parts_.size();
        std::uint32_t before = window;
        if (!seats_[p].taken.compare_exchange_strong(before, window + 1, std::memory_order_relaxed)) continue;
        const std::int64_t bytes = parts_[p]->arrived();
        if (window == 0) {
          next = std::min(next, seats_[p].next);
        } else {
          next = run_window(p, limit, side, self == 0, next);
        }
        arrived += parts_[p]->arrived() - bytes;
      }
      desks_[self].next[side] = next;
      desks_[self].arrived[side] = arrived;
      barrier_.meet();
      next = kForever;
      for (const Desk& d : desks_) next = std::min(next, d.next[side]);
      if (next == kStop || next == kForever) return;
      if (self == 0) {
        known_ = 0;
        for (const Desk& d : desks_) known_ += d.arrived[side];
      }
      limit = std::max(limit, next) + lookahead_;
    }
  }

  // The smaller of `next` and what comes next because of a partition; kStop to stop.
  Time run_window(std::size_t p, Time limit, std::size_t side, bool polls, Time next) {
    Seat& seat = seats_[p];
    for (const Mail& m : seat.news[1 - side]) {
      parts_[p]->take(m);
      seat.next = std::min(seat.next, m.time);
    }
    seat.news[1 - side].clear();
    if (seat.next < limit) {
      if (!simulate(p, limit, polls)) return kStop;
      for (const Mail& m : parts_[p]->news) {
        const std::scoped_lock held(seats_[m.part].lock);
        seats_[m.part].news[side].push_back(m);
        next = std::min(next, m.time);
      }
    }
    return std::min(next, seat.next);
  }

  bool stops() {
    if (!clock_.due() || !poll_) return false;
    if (desks_.size() == 1) {
      known_ = 0;
      for (const auto& part : parts_) known_ += part->arrived();
    }
    return poll_(known_);
  }

  std::vector<std::unique_ptr<Part>>& parts_;
  Time lookahead_;
  const std::function<bool(std::int64_t)>& poll_;
  std::vector<Desk> desks_;
  std::vector<Seat> seats_;
  Barrier barrier_;
  Clock clock_;             // of the calling thread
  std::int64_t known_ = 0;  // bytes that have arrived, as the calling thread knows
};

}  // namespace

void run_together(std::vector<std::unique_ptr<Part>>& parts, std::int32_t threads, Time lookahead,
                  const std::function<bool(std::int64_t)>& poll) {
  Together(parts, std::min(threads, static_cast<std::int32_t>(parts.size())), lookahead, poll).run();
}

}  // namespace wt::net::packet
