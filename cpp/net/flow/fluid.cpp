#include "net/flow/fluid.h"

#include <utility>

namespace wt::net::flow {

Fluid::Fluid(const Demands& demands, const Unknowns& unknowns, std::span<const double> capacity, std::vector<std::uint8_t> passive,
             double tolerance, std::size_t members)
    : solver_(demands, unknowns, capacity, std::move(passive)),
      ends_(unknowns.size()),
      tolerance_(tolerance),
      clocks_(unknowns.size()),
      members_(members) {}

// Its clock shows the present from here on.
void Fluid::touch(std::int32_t unknown) {
  Clock& clock = clocks_[index(unknown)];
  changed_ = true;
  if (clock.dirty) return;
  clock.dirty = true;
  dirty_.push_back(unknown);
}

// A skew heap by target; equal targets by member, so that the order does not depend on history.
std::int32_t Fluid::merge(std::int32_t a, std::int32_t b) {
  std::int32_t root = -1;
  std::int32_t* hook = &root;
  while (a >= 0 && b >= 0) {
    const Member &x = members_[index(a)], &y = members_[index(b)];
    if (y.target < x.target || (y.target == x.target && b < a)) std::swap(a, b);
    *hook = a;
    Member& top = members_[index(a)];
    std::swap(top.left, top.right);
    hook = &top.left;
    a = *hook;
  }
  *hook = a >= 0 ? a : b;
  return root;
}

void Fluid::join(std::int32_t member, std::int32_t unknown, double size, double weight) {
  Clock& clock = clocks_[index(unknown)];
  touch(unknown);
  if (clock.members == 0)
    clock.time = 0.0, clock.at = now_;
  else
    run_to(clock, level(unknown), now_);
  if (index(member) >= members_.size()) members_.resize(index(member) + 1);
  members_[index(member)] = Member{clock.time + size / weight, now_, weight, -1, -1};
  clock.root = merge(clock.root, member);
  clock.weight += weight;
  ++clock.members;
  ++active_;
}

void Fluid::set_capacity(std::int32_t link, double capacity) {
  changed_ = true;
  if (memory_) {
    memory_->at(now_);
    memory_->set_capacity(link, capacity);
  } else {
    solver_.at(now_);
    solver_.set_capacity(link, capacity);
  }
}

double Fluid::end_of(std::int32_t unknown) const {
  const Clock& clock = clocks_[index(unknown)];
  const double left = members_[index(clock.root)].target - clock.time;
  if (left <= 0.0) return clock.at;
  const double level = this->level(unknown);
  return level > 0.0 ? clock.at + left / level : kNever;
}

template <class Rates>
std::span<const Solver::Moved> Fluid::solve(Rates& rates) {
  rates.at(now_);
  for (const std::int32_t c : dirty_) {
    Clock& clock = clocks_[index(c)];
    run_to(clock, rates.level(c), now_);
    rates.set_weight(c, clock.members == 0 ? 0.0 : clock.weight);
  }
  rates.solve();
  return rates.moved();
}

void Fluid::settle() {
  if (!changed_) return;
  const auto moved = memory_ ? solve(*memory_) : solve(solver_);
  const bool many = (moved.size() + dirty_.size()) * 8 > ends_.size();
  const auto queue = [&](std::int32_t c) {
    if (clocks_[index(c)].members == 0)
      ends_.erase(c);
    else if (many)
      ends_.put(c, end_of(c));
    else
      ends_.set(c, end_of(c));
  };
  for (const Solver::Moved& m : moved) {
    if (clocks_[index(m.unknown)].dirty) continue;
    run_to(clocks_[index(m.unknown)], m.before, now_);
    queue(m.unknown);
  }
  for (const std::int32_t c : dirty_) {
    clocks_[index(c)].dirty = false;
    queue(c);
  }
  if (many) ends_.order();
  dirty_.clear();
  changed_ = false;
}

const std::vector<Meter::Link>& Fluid::metered() {
  if (memory_) {
    memory_->at(now_);
    memory_->settle_meter();
  } else {
    solver_.at(now_);
    solver_.settle_meter();
  }
  return solver_.meter().links();
}

const std::vector<Meter::OverTime>& Fluid::over_time() {
  static_cast<void>(metered());
  return solver_.meter().bins();
}

std::int32_t Fluid::stalled() const {
  for (std::size_t c = 0; c < clocks_.size(); ++c)
    if (clocks_[c].members > 0 && level(static_cast<std::int32_t>(c)) == 0.0) return static_cast<std::int32_t>(c);
  return kOwnBound;
}

}  // namespace wt::net::flow
