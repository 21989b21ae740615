// Partitions in step: each simulates a window as long as nothing can reach it from the others, hands over, and meets them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "net/packet/crew.h"
#include "net/packet/part.h"

namespace wt::net::packet {

// Every 50 ms or so of a thread.
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

class Windows {
 public:
  // Called from the calling thread with the bytes that have arrived; true stops.
  using Poll = std::function<bool(std::int64_t)>;

  // `lookahead`: no partition reaches another in less. `few`: where the crew would have spared the calling thread fewer events of a
  // window of the last run, the calling thread runs alone.
  Windows(std::vector<std::unique_ptr<Part>>& parts, Time lookahead, Crew& crew, std::int64_t few = 0);

  // Runs all partitions on the crew until nothing is left to happen before `until`; one thread takes them one after the other in
  // each window, so that what a partition works with stays in the caches. False if `poll` stopped it. The first exception of a
  // partition (by number) is thrown again. Between two runs the caller may start lanes, from `until` on.
  bool run(Time until, const Poll& poll);
  [[nodiscard]] Time next() const;  // nothing happens before
  // An event was put into a partition.
  void wake(std::size_t part, Time at) { seats_[part].next = std::min(seats_[part].next, at); }

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
  static constexpr Time kStop = -1;

  void judge();
  [[nodiscard]] Time end_of_window(Time last, Time next) const { return std::min(std::max(last, next) + lookahead_, until_); }
  void run_alone();
  void run_crew();
  bool simulate(std::size_t part, Time limit, bool polls);
  void work(std::size_t self);
  Time run_window(std::size_t part, Time limit, std::size_t side, bool polls, Time next);
  void take_news();
  bool stops();

  std::vector<std::unique_ptr<Part>>& parts_;
  const Time lookahead_;
  Crew& crew_;
  const std::int64_t few_;
  std::vector<Desk> desks_;
  std::vector<Seat> seats_;
  Clock clock_;                       // of the calling thread
  std::int64_t known_ = 0;            // bytes that have arrived, as the calling thread knows
  std::vector<std::int64_t> events_;  // of partitions, so far
  std::int64_t windows_ = 0;          // of this run
  bool busy_ = false;                 // enough for the crew
  // of this run
  Time until_ = 0, limit_ = 0;  // of the run; of the last window
  std::uint32_t window_ = 0;    // the crew's next one
  const Poll* poll_ = nullptr;
  bool stopped_ = false;
  bool together_ = false;
};

}  // namespace wt::net::packet
