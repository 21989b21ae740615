// Threads that work together, over and over: they sleep while there is nothing to do.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace wt::net::packet {

// Spins for some microseconds if every thread can have a core, then sleeps: a shared machine does not pay for waiting. Where
// spinning was in vain, since another program has the core that a thread should have, it spins less the next time.
class Barrier {
 public:
  explicit Barrier(std::uint32_t n) : n_(n), most_(n <= std::thread::hardware_concurrency() ? 4000 : 0), spins_(most_) {}
  void meet() {
    const std::uint32_t phase = phase_.load(std::memory_order_acquire);
    if (count_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_) {
      count_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      phase_.notify_all();
      return;
    }
    const int spins = spins_.load(std::memory_order_relaxed);
    for (int i = 0; i < spins; ++i) {
      if (phase_.load(std::memory_order_acquire) != phase) {
        spins_.store(std::min(most_, spins + spins / 8 + 1), std::memory_order_relaxed);
        return;
      }
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    spins_.store(std::min(most_, std::max(spins / 2, 50)), std::memory_order_relaxed);
    phase_.wait(phase, std::memory_order_acquire);
  }

 private:
  const std::uint32_t n_;
  const int most_;
  std::atomic<int> spins_;
  alignas(64) std::atomic<std::uint32_t> count_{0};
  alignas(64) std::atomic<std::uint32_t> phase_{0};
};

class Crew {
 public:
  // The caller and `threads` - 1 more, which are made when they are first needed.
  explicit Crew(std::int32_t threads) : size_(static_cast<std::uint32_t>(threads)), barrier_(size_) {}
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew() {
    if (others_.empty()) return;
    work_ = nullptr;
    barrier_.meet();
  }

  [[nodiscard]] std::size_t size() const { return size_; }

  // Calls work(i) on each thread i, 0 being the caller, and returns when all are done. It may not throw.
  void run(const std::function<void(std::size_t)>& work) {
    while (others_.size() + 1 < size_) others_.emplace_back([this, i = others_.size() + 1] { follow(i); });
    work_ = &work;
    barrier_.meet();
    work(0);
    barrier_.meet();
  }
  // Within run(): until all threads have come here.
  void meet() { barrier_.meet(); }

 private:
  void follow(std::size_t self) {
    for (;;) {
      barrier_.meet();
      if (work_ == nullptr) return;
      (*work_)(self);
      barrier_.meet();
    }
  }

  const std::uint32_t size_;
  Barrier barrier_;
  const std::function<void(std::size_t)>* work_ = nullptr;
  std::vector<std::jthread> others_;  // last: they end before the rest
};

}  // namespace wt::net::packet
