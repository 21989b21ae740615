#include "net/packet/windows.h"

#include <algorithm>

namespace wt::net::packet {

namespace {

constexpr std::int64_t kPartSlab = 1 << 18;

}  // namespace

Windows::Windows(std::vector<std::unique_ptr<Part>>& parts, Time lookahead, Crew& crew, std::int64_t few)
    : parts_(parts),
      lookahead_(lookahead),
      crew_(crew),
      few_(few),
      desks_(crew.size()),
      seats_(parts.size()),
      events_(parts.size()) {
  for (std::size_t i = 0; i < parts.size(); ++i) seats_[i].next = parts[i]->not_before();
}

bool Windows::run(Time until, const Poll& poll) {
  until_ = until;
  poll_ = &poll;
  windows_ = 0;
  if (next() < until) {
    together_ = crew_.size() > 1 && (few_ == 0 || busy_);
    if (together_) {
      run_crew();
    } else {
      run_alone();
    }
    judge();
  }
  for (const Seat& s : seats_)
    if (s.error) std::rethrow_exception(s.error);
  return !stopped_;
}

Time Windows::next() const {
  Time next = kForever;
  for (const Seat& s : seats_) next = std::min(next, s.next);
  return next;
}

// Whether the crew is worth its meetings, by the events of this run.
void Windows::judge() {
  std::int64_t all = 0, most = 0;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const std::int64_t events = parts_[p]->stats.events - events_[p];
    events_[p] += events;
    all += events;
    most = std::max(most, events);
  }
  busy_ = all - std::max(most, all / static_cast<std::int64_t>(crew_.size())) >= few_ * windows_;
}

// One thread needs no barriers: what a partition sends is known to the others at once, and is beyond the window.
void Windows::run_alone() {
  for (Time first = next(); first < until_; first = next()) {
    limit_ = end_of_window(limit_, first);
    ++windows_;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (seats_[p].next >= limit_) continue;
      if (!simulate(p, limit_, true)) {
        stopped_ = true;
        return;
      }
      for (const Mail& m : parts_[p]->news) {
        parts_[m.part]->take(m);
        seats_[m.part].next = std::min(seats_[m.part].next, m.time);
      }
    }
  }
}

void Windows::run_crew() {
  limit_ = end_of_window(limit_, next());
  crew_.run([this](std::size_t self) { work(self); });
  take_news();
}

// False to stop: its poll says so, or it threw.
bool Windows::simulate(std::size_t p, Time limit, bool polls) {
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

// All threads find the same windows.
void Windows::work(std::size_t self) {
  Time limit = limit_;
  std::int64_t arrived = 0;
  std::uint32_t window = window_;
  const std::size_t first = self * parts_.size() / desks_.size();
  for (;; ++window) {
    const std::size_t side = window % 2;
    Time next = kForever;
    // its own share first, then what others have not begun
    for (std::size_t i = 0; i < parts_.size() && next != kStop; ++i) {
      const std::size_t p = (first + i) % parts_.size();
      std::uint32_t before = window;
      if (!seats_[p].taken.compare_exchange_strong(before, window + 1, std::memory_order_relaxed)) continue;
      const std::int64_t bytes = parts_[p]->arrived();
      next = run_window(p, limit, side, self == 0, next);
      arrived += parts_[p]->arrived() - bytes;
    }
    desks_[self].next[side] = next;
    desks_[self].arrived[side] = arrived;
    crew_.meet();
    next = kForever;
    for (const Desk& d : desks_) next = std::min(next, d.next[side]);
    if (next == kStop || next >= until_) {
      if (self != 0) return;
      // what is left for the calling thread: no other one reads these now
      stopped_ = next == kStop;
      break;
    }
    if (self == 0) {
      known_ = 0;
      for (const Desk& d : desks_) known_ += d.arrived[side];
    }
    limit = end_of_window(limit, next);
  }
  windows_ = window + 1 - window_;
  window_ = window + 1;
  limit_ = limit;
}

// The smaller of `next` and what comes next because of a partition; kStop to stop.
Time Windows::run_window(std::size_t p, Time limit, std::size_t side, bool polls, Time next) {
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

// What was sent in the last window.
void Windows::take_news() {
  for (std::size_t p = 0; p < parts_.size(); ++p)
    for (std::vector<Mail>& news : seats_[p].news) {
      for (const Mail& m : news) {
        parts_[p]->take(m);
        seats_[p].next = std::min(seats_[p].next, m.time);
      }
      news.clear();
    }
}

bool Windows::stops() {
  if (!clock_.due() || !*poll_) return false;
  if (!together_) {
    known_ = 0;
    for (const auto& part : parts_) known_ += part->arrived();
  }
  return (*poll_)(known_);
}

}  // namespace wt::net::packet
