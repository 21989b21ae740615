// Faults that come while RUN goes on.
#include "faults/replica.h"

#include <algorithm>

namespace wt::faults {

namespace {

constexpr std::int64_t kMostFaults = 10'000'000;

}  // namespace

Replica::Replica(const Task& task, std::span<const Kind> kinds, Random random)
    : task_(task),
      kinds_(kinds),
      random_(random),
      places_(task.spares, task.spare_repair, task.queue),
      count_(kinds.size(), 0),
      budget_(kMostFaults) {
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    rate_run_ += kinds[k].rate;
    if (kinds[k].in_recovery) rate_recovery_ += kinds[k].rate;
    if (kinds[k].gap.mean > 0.0) gaps_.push_back({kinds[k].gap.draw(random_), k});
  }
}

void Replica::run() {
  recover(kNobody, true);
  while (!ended()) step();
  part(Part::useful) = work_;  // the sum of its changes, without their rounding
}

// RUN until the next fault, detection of a slow place, or end.
void Replica::step() {
  Timer soonest{rate_run_ > 0.0 ? now_ + random_.exponential() / rate_run_ : kNone, kNobody};
  for (const std::vector<Timer>* timers : {&gaps_, &again_}) {
    const Timer timer = next(*timers, false);
    if (timer.at < soonest.at) soonest = timer;
  }
  const Timer detected = next(slow_, false);
  const double until = std::min({soonest.at, detected.at, task_.horizon});
  if (until > now_) train(until - now_);
  if (done() || until >= task_.horizon) {
    if (!done()) now_ = task_.horizon;
    return;
  }
  now_ = std::max(now_, until);
  if (detected.at <= soonest.at) {
    std::erase_if(slow_, [&](const Timer& one) { return one.at == detected.at && one.kind == detected.kind; });
    stop(detected.kind);
    return;
  }
  const std::size_t kind = soonest.kind == kNobody ? struck(rate_run_, false) : soonest.kind;
  arrived(kind);
  fault(kind);
}

void Replica::fault(std::size_t kind) {
  const Kind& it = kinds_[kind];
  if (!it.restarts) return pause(kind);
  if (it.slows > 1.0) {
    slow_.push_back({now_ + it.detect.draw(random_), kind});
    return;
  }
  if (it.saves_first) {
    if (!spend(Part::detect, it.detect.draw(random_))) {
      if (struck_ == kNobody) return;
      lose();
      return recover(struck_, false);
    }
    return stop(kind);
  }
  lose();
  if (it.replaces) ++broken_;
  recover(kind, false);
}

// RUN ends for a fault that is already detected.
void Replica::stop(std::size_t kind) {
  const Kind& it = kinds_[kind];
  if (it.replaces) ++broken_;
  if (!it.saves_first) {
    lose();
    return recover(kind, true);
  }
  if (!save_and_flush()) {
    if (struck_ == kNobody) return;
    lose();
    return recover(struck_, false);
  }
  recover(kind, true);
}

// A mark at the present place, waited for until it is durable.
bool Replica::save_and_flush() {
  struck_ = kNobody;
  if (!spend(Part::save, flush_left_ + task_.save)) return false;
  if (!spend(Part::save, task_.flush)) return false;
  durable_ = saved_ = work_;
  saving_ = false;
  save_left_ = flush_left_ = 0.0;
  return true;
}

void Replica::pause(std::size_t kind) {
  struck_ = kNobody;
  if (spend(Part::detect, kinds_[kind].detect.draw(random_)) && spend(Part::repair, kinds_[kind].repair.draw(random_))) return;
  if (struck_ == kNobody) return;
  lose();
  recover(struck_, false);
}

// The kind of a Poisson fault, by rate.
std::size_t Replica::struck(double rate, bool recovering) {
  double left = random_.uniform() * rate;
  std::size_t last = 0;
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    if (kinds_[k].rate <= 0.0 || (recovering && !kinds_[k].in_recovery)) continue;
    last = k;
    left -= kinds_[k].rate;
    if (left < 0.0) break;
  }
  return last;
}

Replica::Timer Replica::next(const std::vector<Timer>& timers, bool recovering) const {
  Timer soonest{kNone, kNobody};
  for (const Timer& timer : timers) {
    if (timer.at < soonest.at && !(recovering && !kinds_[timer.kind].in_recovery)) soonest = timer;
  }
  return soonest;
}

// Counts a fault and, if it came by a timer, takes or renews that.
void Replica::arrived(std::size_t kind) {
  ++count_[kind];
  --budget_;
  for (Timer& timer : gaps_) {
    if (timer.kind == kind && timer.at <= now_) timer.at = now_ + kinds_[kind].gap.draw(random_);
  }
  std::erase_if(again_, [&](const Timer& one) { return one.kind == kind && one.at <= now_; });
}

}  // namespace wt::faults
