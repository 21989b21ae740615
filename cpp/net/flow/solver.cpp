#include "net/flow/solver.h"

#include <algorithm>
#include <cmath>

namespace wt::net::flow {

namespace {

constexpr double kSame = 1e-12;   // levels and loads that differ by less are equal but for rounding
constexpr double kFull = 1e-11;   // a link is full if it has less than this left
constexpr double kCancel = 1e-4;  // a remainder below this share of the whole is summed up again
constexpr double kCertify = 1e-9;
constexpr std::int64_t kPatience = 3;   // what an incremental sweep may look at, in entries of all that is active
constexpr std::int64_t kAlways = 1000;  // and this many beside
constexpr std::int32_t kMostSkips = 31;

}  // namespace

Solver::Solver(const Demands& demands, const Unknowns& unknowns, std::span<const double> capacity,
               std::vector<std::uint8_t> passive)
    : demands_(demands),
      bound_(unknowns.bound),
      passive_(std::move(passive)),
      unknown_(unknowns.size()),
      links_(capacity.size()),
      meter_(capacity.size()) {
  for (std::size_t l = 0; l < links_.size(); ++l) links_[l].capacity = links_[l].scale = capacity[l];
  for (std::size_t c = 0; c < unknowns.size(); ++c) {
    const auto r = static_cast<std::size_t>(unknowns.row[c]);
    unknown_[c].first = static_cast<std::size_t>(demands.start[r]);
    unknown_[c].links = static_cast<std::int32_t>(demands.start[r + 1] - demands.start[r]);
    each_link(static_cast<std::int32_t>(c), [&](std::int32_t l, double) { ++links_[index(l)].slot; });
  }
  std::int64_t total = 0;
  for (Link& link : links_) {
    const std::int64_t own = link.slot;
    link.slot = total;
    total += own;
  }
  slots_.resize(static_cast<std::size_t>(total));
  if (!demands_.demand.empty()) slot_demand_.resize(slots_.size());
}

// ---- who is on a link ----

// Drops the slots of what has gone.
void Solver::tidy(Link& l) {
  const auto first = static_cast<std::size_t>(l.slot);
  std::size_t kept = first;
  for (std::size_t i = first; i < first + index(l.listed); ++i) {
    if (unknown_[index(slots_[i].unknown)].stamp != slots_[i].stamp) continue;
    slots_[kept] = slots_[i];
    if (!slot_demand_.empty()) slot_demand_[kept] = slot_demand_[i];
    ++kept;
  }
  l.listed = static_cast<std::int32_t>(kept - first);
}

template <class Body>
void Solver::each_unknown(std::int32_t link, Body&& body) {
  Link& l = links_[index(link)];
  if (l.listed > l.live + l.live / 2 + 8) tidy(l);
  work_ += l.listed;
  const auto first = static_cast<std::size_t>(l.slot);
  const bool weighted = !slot_demand_.empty();
  for (std::size_t i = first; i < first + index(l.listed); ++i)
    if (const Slot s = slots_[i]; unknown_[index(s.unknown)].stamp == s.stamp) body(s.unknown, weighted ? slot_demand_[i] : 1.0);
}

void Solver::enter(std::int32_t link, std::int32_t unknown, double demand) {
  Link& l = links_[index(link)];
  const std::size_t next = index(link) + 1;
  const std::int64_t end = next < links_.size() ? links_[next].slot : static_cast<std::int64_t>(slots_.size());
  if (l.slot + l.listed == end) tidy(l);  // a slot for each unknown that could be here: some of them are of what has gone
  const auto at = static_cast<std::size_t>(l.slot + l.listed++);
  slots_[at] = {unknown, unknown_[index(unknown)].stamp};
  if (!slot_demand_.empty()) slot_demand_[at] = demand;
}

// ---- changes ----

Solver::Link& Solver::touch(std::int32_t link) {
  Link& l = links_[index(link)];
  if (l.epoch == epoch_) return l;
  l.epoch = epoch_;
  l.settled = 0;
  l.floor = l.peak = 0.0;
  l.committed = false;
  touched_.push_back(link);
  meter_link(index(link));
  return l;
}

// What rounding leaves of a load, on a link that is down, keeps no link busy.
void Solver::meter_link(std::size_t link) {
  const Link& l = links_[link];
  meter_.settle(link, l.load > kSame * l.scale ? l.load : 0.0, l.capacity, now_);
}

void Solver::remember(std::int32_t unknown) {
  if (moved_is_old_) {
    moved_.clear();
    moved_is_old_ = false;
  }
  if (unknown_[index(unknown)].seen == epoch_) return;
  unknown_[index(unknown)].seen = epoch_;
  moved_.push_back({unknown, unknown_[index(unknown)].level});
}

void Solver::forget_stop(std::int32_t unknown) {
  std::int32_t& by = unknown_[index(unknown)].stop;
  if (by == kOwnBound) return;
  Link& l = links_[index(by)];
  if (--l.stops == 0) l.full_at = kFree;
  by = kOwnBound;
}

void Solver::set_weight(std::int32_t unknown, double weight) {
  Unknown& u = unknown_[index(unknown)];
  if (u.weight == weight) return;
  remember(unknown);
  const bool was = u.weight > 0.0, is = weight > 0.0, was_free = was && u.level == kFree;
  if (was && !was_free) forget_stop(unknown);
  if (is != was) ++unknown_[index(unknown)].stamp;
  each_link(unknown, [&](std::int32_t link, double demand) {
    Link& l = touch(link);
    if (was_free) {
      l.free -= demand * u.weight;
      --l.open;
    } else if (was) {
      l.load -= demand * u.weight * u.level;
    }
    if (was && !is) --l.live;
    if (is) {
      if (!was) {
        enter(link, unknown, demand);
        ++l.live;
      }
      l.free += demand * weight;
      l.peak = std::max(l.peak, l.free);
      ++l.open;
    }
    if (l.open == 0) l.free = 0.0;
    if (l.open == l.live) l.load = 0.0;
  });
  entries_ += (static_cast<int>(is) - static_cast<int>(was)) * u.links;
  active_ += static_cast<std::size_t>(is) - static_cast<std::size_t>(was);
  open_ += static_cast<std::size_t>(is) - static_cast<std::size_t>(was_free);
  u.level = is ? kFree : 0.0;
  u.weight = weight;
}

void Solver::set_capacity(std::int32_t link, double capacity) {
  Link& l = touch(link);
  l.capacity = capacity;
  l.scale = std::max(l.scale, capacity);
}

void Solver::settle_meter() {
  for (std::size_t l = 0; l < links_.size(); ++l) meter_link(l);
}

// ---- the sweep ----

void Solver::solve() {
  if (moved_is_old_) moved_.clear();
  moved_is_old_ = false;
  ++stats_.solves;
  const bool idle = open_ == 0 && std::ranges::all_of(touched_, [this](std::int32_t l) { return enters_at(l) == kFree; });
  bool full = !idle && (open_ * 4 > active_ || skip_ > 0);
  if (full && skip_ > 0) --skip_;
  if (!full) {
    const bool finished = idle || sweep(kPatience * entries_ + kAlways);
    if (finished && plausible()) {
      ++stats_.incremental;
      if (!idle) skips_ = 0;
    } else {
      ++(finished ? stats_.fallbacks : stats_.abandoned);
      skip_ = skips_ = std::min(2 * skips_ + 1, kMostSkips);
      full = true;
    }
  }
  if (full) {
    ++stats_.full;
    if (open_ < active_) restart();
    (void)sweep(std::numeric_limits<std::int64_t>::max());
  }
  touched_.clear();
  moved_is_old_ = true;
  ++epoch_;
}

// Sets everything free.
void Solver::restart() {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& l = touch(static_cast<std::int32_t>(i));
    l.load = l.free = l.floor = 0.0;
    l.full_at = kFree;
    l.open = l.settled = l.stops = 0;
    l.committed = false;
  }
  for (std::size_t i = 0; i < unknown_.size(); ++i) {
    Unknown& u = unknown_[i];
    if (u.weight == 0.0) continue;
    const auto c = static_cast<std::int32_t>(i);
    remember(c);
    u.stop = kOwnBound;
    u.level = kFree;
    each_link(c, [&](std::int32_t link, double demand) {
      Link& l = links_[index(link)];
      l.free += demand * u.weight;
      ++l.open;
    });
  }
  for (Link& l : links_) l.peak = l.free;
  open_ = active_;
}

// False if it has looked at more than `budget` entries; then nothing that it leaves is of use.
bool Solver::sweep(std::int64_t budget) {
  level_ = 0.0;
  work_ = 0;
  for (const Moved& m : moved_)
    if (unknown_[index(m.unknown)].level == kFree) offer_bound(m.unknown);
  for (const std::int32_t l : touched_) offer_link(l);
  while (!queue_.empty() || !bounds_.empty()) {
    const double link_at = queue_.empty() ? kFree : queue_.front().level;
    const double bound_at = bounds_.empty() ? kFree : bounds_.front().level;
    const bool link_first = link_at < bound_at;
    std::vector<Entry>& from = link_first ? queue_ : bounds_;
    const Entry next = from.front();
    std::pop_heap(from.begin(), from.end(), later);
    from.pop_back();
    if (link_first) {
      take_link(next.id, next.level);
    } else if (unknown_[index(next.id)].level == kFree) {
      level_ = std::max(level_, next.level);
      stop(next.id, next.level, kOwnBound);
    }
    if (work_ > budget) {
      for (const Entry& e : queue_) links_[index(e.id)].queued = kFree;
      queue_.clear();
      bounds_.clear();
      return false;
    }
  }
  return true;
}

// The least level at which the link may fill up, given what stands on it and what is free; infinity: it does not.
double Solver::fills_at(const Link& l) const {
  if (l.open > 0) {
    const double left = l.capacity > 0.0 ? std::max(0.0, l.capacity - l.load) : 0.0;  // rounding must not move what stands still
    return std::max(l.floor, left / l.free);
  }
  return l.load > l.capacity + kFull * l.scale ? l.floor : kFree;
}

double Solver::enters_at(std::int32_t link) const {
  if (!passive_.empty() && passive_[index(link)] != 0) return kFree;
  const Link& l = links_[index(link)];
  const double fills = fills_at(l);
  return l.stops > 0 && !l.committed ? std::min(fills, l.full_at) : fills;
}

void Solver::offer_link(std::int32_t link) {
  const double at = enters_at(link);
  Link& l = links_[index(link)];
  if (at == kFree || l.queued <= at) return;
  l.queued = at;
  queue_.push_back({at, link});
  std::push_heap(queue_.begin(), queue_.end(), later);
}

void Solver::take_link(std::int32_t link, double at) {
  Link& l = links_[index(link)];
  if (l.queued != at) return;  // it has an earlier entry, which has been taken
  l.queued = kFree;
  const double fresh = enters_at(link);
  if (fresh == kFree) return;
  if (fresh > at * (1.0 + kSame)) return offer_link(link);
  const double fills = fills_at(l);
  if (l.stops > 0 && !l.committed && !(fills <= l.full_at * (1.0 + kFull))) {
    level_ = std::max(level_, l.full_at);
    if (l.open == 0 && l.load >= l.capacity - kFull * l.scale)
      l.committed = true;  // full as before
    else
      set_free(link);
    return offer_link(link);
  }
  // what stands higher than the level at which the link fills up makes room
  const bool others = l.live > l.open + l.settled;
  if (others || l.free < kCancel * l.peak || l.capacity - l.load < kCancel * l.capacity) {
    const double exact = root(link, std::max(level_, fills));
    if (exact > std::max(level_, fills) * (1.0 + kSame)) {
      l.floor = exact;
      return offer_link(link);
    }
  }
  level_ = std::max(level_, fills);
  fill_up(link);
}

// The level at which the link fills up if what stands on it gives way to that level; by Newton's steps from below, which
// end because each one passes at least one unknown.
double Solver::root(std::int32_t link, double from) {
  for (;;) {
    double fixed = 0.0, rising = 0.0;
    each_unknown(link, [&](std::int32_t unknown, double demand) {
      const Unknown& u = unknown_[index(unknown)];
      if (u.level <= from * (1.0 + kSame))
        fixed += demand * u.weight * u.level;
      else
        rising += demand * u.weight;
    });
    if (rising == 0.0) return from;
    const double next = (links_[index(link)].capacity - fixed) / rising;
    if (!(next > from * (1.0 + kSame))) return from;
    from = next;
  }
}

void Solver::fill_up(std::int32_t link) {
  const double level = level_;
  links_[index(link)].committed = true;
  each_unknown(link, [&](std::int32_t unknown, double) {
    const Unknown& u = unknown_[index(unknown)];
    if (u.level == kFree)
      stop(unknown, level, link);
    else if (u.level > level * (1.0 + kSame))
      lower(unknown, level, link);
  });
  Link& l = links_[index(link)];
  if (l.stops > 0) l.full_at = level;
}

// All that this link had stopped rises again from the level at which it stands.
void Solver::set_free(std::int32_t link) {
  each_unknown(link, [&](std::int32_t unknown, double) {
    Unknown& u = unknown_[index(unknown)];
    if (u.stop != link || u.level == kFree) return;
    remember(unknown);
    work_ += u.links;
    each_link(unknown, [&](std::int32_t other, double demand) {
      Link& l = touch(other);
      l.load -= demand * u.weight * u.level;
      l.free += demand * u.weight;
      l.peak = std::max(l.peak, l.free);
      l.floor = 0.0;
      if (++l.open == l.live) l.load = 0.0;
      if (other != link) offer_link(other);
    });
    u.level = kFree;
    u.stop = kOwnBound;
    ++open_;
    offer_bound(unknown);
  });
  Link& l = links_[index(link)];
  l.stops = 0;
  l.full_at = kFree;
}

void Solver::offer_bound(std::int32_t unknown) {
  const double bound = bound_[index(unknown)];
  if (!std::isfinite(bound)) return;
  bounds_.push_back({bound, unknown});
  std::push_heap(bounds_.begin(), bounds_.end(), later);
}

void Solver::stop(std::int32_t unknown, double level, std::int32_t by) {
  Unknown& u = unknown_[index(unknown)];
  each_link(unknown, [&](std::int32_t link, double demand) {
    Link& l = links_[index(link)];
    l.load += demand * u.weight * level;
    ++l.settled;
    l.free = --l.open == 0 ? 0.0 : l.free - demand * u.weight;
  });
  u.level = level;
  u.stop = by;
  if (by != kOwnBound) ++links_[index(by)].stops;
  --open_;
}

void Solver::lower(std::int32_t unknown, double level, std::int32_t by) {
  Unknown& u = unknown_[index(unknown)];
  remember(unknown);
  forget_stop(unknown);
  work_ += u.links;
  each_link(unknown, [&](std::int32_t link, double demand) {
    Link& l = touch(link);
    l.load += demand * u.weight * (level - u.level);
    ++l.settled;
    if (link != by) offer_link(link);
  });
  u.level = level;
  u.stop = by;
  ++links_[index(by)].stops;
}

// ---- certificates ----

bool Solver::plausible() const {
  if (open_ != 0) return false;
  for (const std::int32_t link : touched_) {
    const Link& l = links_[index(link)];
    if (l.load > l.capacity + kCertify * l.scale) return false;
  }
  for (const Moved& m : moved_) {
    const Unknown& u = unknown_[index(m.unknown)];
    if (u.weight == 0.0) continue;
    const std::int32_t by = unknown_[index(m.unknown)].stop;
    if (by == kOwnBound) {
      if (u.level < bound_[index(m.unknown)] * (1.0 - kCertify)) return false;
      continue;
    }
    const Link& l = links_[index(by)];  // nothing on it was left above full_at when it filled up
    if (l.load < l.capacity - kCertify * l.scale || std::abs(u.level - l.full_at) > kCertify * l.full_at) return false;
  }
  return true;
}

bool Solver::certified() const {
  std::vector<double> load(links_.size(), 0.0), highest(links_.size(), 0.0);
  for (std::size_t i = 0; i < unknown_.size(); ++i) {
    const Unknown& u = unknown_[i];
    if (u.weight == 0.0) continue;
    each_link(static_cast<std::int32_t>(i), [&](std::int32_t link, double demand) {
      load[index(link)] += demand * u.weight * u.level;
      highest[index(link)] = std::max(highest[index(link)], u.level);
    });
  }
  for (std::size_t l = 0; l < links_.size(); ++l)
    if (load[l] > links_[l].capacity * (1.0 + kCertify)) return false;
  for (std::size_t i = 0; i < unknown_.size(); ++i) {
    const Unknown& u = unknown_[i];
    if (u.weight == 0.0 || u.level >= bound_[i] * (1.0 - kCertify)) continue;
    bool stopped = false;
    each_link(static_cast<std::int32_t>(i), [&](std::int32_t link, double) {
      stopped = stopped || (load[index(link)] >= links_[index(link)].capacity * (1.0 - kCertify) &&
                            u.level >= highest[index(link)] * (1.0 - kCertify));
    });
    if (!stopped) return false;
  }
  return true;
}

}  // namespace wt::net::flow
