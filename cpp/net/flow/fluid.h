// Fluids in motion: members join an unknown of the solver, progress at its level, and end.
//
// All members of an unknown share its row and bound, so they have one level at all times. An unknown has a clock of its own that
// runs at its level; a member of size s and weight w ends when that clock has gone s / w further. So a change of rates moves one
// clock and one entry of the queue of ends an unknown, however many members it has.
//
// Ends that lie together are one event with one solve: those no later than `tolerance` times the age of what ends first (and of
// each further one: nobody's share is kept longer than that after it has ended). Each has its own exact end; only what others gain
// from it comes that little later. The default joins what differs by rounding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "net/flow/heap.h"
#include "net/flow/rate_memory.h"
#include "net/flow/solver.h"

namespace wt::net::flow {

inline constexpr double kTolerance = 1e-9;

class Fluid {
 public:
  Fluid(const Demands& demands, const Unknowns& unknowns, std::span<const double> capacity, std::vector<std::uint8_t> passive,
        double tolerance, std::size_t members);

  [[nodiscard]] double now() const { return now_; }
  // When the next member ends at the present rates; kNever: none will.
  [[nodiscard]] double next_end() const { return ends_.empty() ? kNever : std::max(now_, ends_.top().time); }
  [[nodiscard]] std::size_t active() const { return active_; }
  // Something has changed since the last settle().
  [[nodiscard]] bool changed() const { return changed_; }

  void advance(double to) { now_ = std::max(now_, to); }
  // `size` > 0 in units, `weight` > 0; `member` is the caller's, and may come again once it has ended.
  void join(std::int32_t member, std::int32_t unknown, double size, double weight);
  void set_capacity(std::int32_t link, double capacity);
  // Solves for the new rates. Everything that happens at one time comes before it.
  void settle();
  // Takes what ends next, up to `until`; done(member, end) returns a time that no further end of this event may lie behind.
  template <class Done>
  void end_next(double until, Done&& done);

  [[nodiscard]] const Solver& solver() const { return solver_; }
  // Rates of weights that were met before are not solved for again, from the beginning on if it is asked for there; not with bins.
  void remember_rates(std::span<const double> capacity) { memory_.emplace(solver_, clocks_.size(), capacity); }
  [[nodiscard]] double level(std::int32_t unknown) const { return memory_ ? memory_->level(unknown) : solver_.level(unknown); }
  // The link that stopped it, or kOwnBound.
  [[nodiscard]] std::int32_t stopped_by(std::int32_t unknown) const {
    return memory_ ? memory_->stopped_by(unknown) : solver_.stopped_by(unknown);
  }
  // Bytes, busy and full seconds of each link so far.
  [[nodiscard]] const std::vector<Meter::Link>& metered();
  // Their bytes over time, from the beginning if it is asked for there.
  void keep_bins() { solver_.meter().keep_bins(); }
  [[nodiscard]] const std::vector<Meter::OverTime>& over_time();
  // An unknown whose members stand still, or kOwnBound if all move.
  [[nodiscard]] std::int32_t stalled() const;

 private:
  struct Clock {
    double time = 0.0;    // of its members
    double at = 0.0;      // when it showed that
    double weight = 0.0;  // of all members
    std::int32_t root = -1;
    std::int32_t members = 0;
    bool dirty = false;
  };
  struct Member {
    double target = 0.0, born = 0.0, weight = 1.0;
    std::int32_t left = -1, right = -1;
  };
  struct Late {
    std::int32_t unknown;
    double weight, end;
  };

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  void touch(std::int32_t unknown);
  void run_to(Clock& clock, double level, double time) {
    if (time > clock.at) clock.time += level * (time - clock.at);
    clock.at = std::max(clock.at, time);
  }
  [[nodiscard]] std::int32_t merge(std::int32_t a, std::int32_t b);
  [[nodiscard]] double end_of(std::int32_t unknown) const;
  template <class Rates>
  std::span<const Solver::Moved> solve(Rates& rates);

  Solver solver_;
  std::optional<RateMemory> memory_;
  TimeHeap ends_;
  double tolerance_;
  double now_ = 0.0;
  std::size_t active_ = 0;
  bool changed_ = false;
  std::vector<Clock> clocks_;
  std::vector<Member> members_;
  std::vector<std::int32_t> dirty_;
  std::vector<Late> late_;
};

template <class Done>
void Fluid::end_next(double until, Done&& done) {
  constexpr double kRounding = 1e-14;
  double window = kNever, last = now_;
  for (bool first = true; !ends_.empty(); first = false) {
    const std::int32_t c = ends_.top().id;
    const double at = std::max(now_, ends_.top().time);
    if (at > (first ? until : window)) break;
    Clock& clock = clocks_[index(c)];
    const double level = this->level(c);
    touch(c);
    ends_.erase(c);
    // members that end at the very same time need no place in the queue
    for (double end = at; end == at; end = end_of(c)) {
      const std::int32_t m = clock.root;
      const Member member = members_[index(m)];
      clock.root = merge(member.left, member.right);
      clock.weight = --clock.members == 0 ? 0.0 : clock.weight - member.weight;
      --active_;
      last = std::max(last, end);
      late_.push_back({c, member.weight * level, end});
      const double kept = std::max(tolerance_ * (end - member.born), kRounding * end);
      window = std::min({window, end + kept, std::max(end, done(m, end)), std::max(end, until)});
      if (clock.root < 0) break;
    }
    if (clock.root >= 0) ends_.set(c, end_of(c));
  }
  now_ = last;
  std::erase_if(late_, [this](const Late& l) { return l.end >= now_; });
  for (const Late& l : late_)
    if (memory_)
      memory_->give_back(l.unknown, l.weight, l.end, now_);
    else
      solver_.each_link(l.unknown, [&](std::int32_t link, double demand) {
        solver_.meter().give_back(index(link), demand * l.weight, l.end, now_);
      });
  late_.clear();
}

}  // namespace wt::net::flow
