// From a fault back to RUN: detection, diagnosis, repair, another place, start, load. A fault on the way begins it anew.
#include <algorithm>

#include "faults/replica.h"

namespace wt::faults {

// `kind` kNobody: the first start of a run, which only takes its start.
void Replica::recover(std::size_t kind, bool detected) {
  while (!phases(kind, detected)) {
    if (ended() || struck_ == kNobody) return;
    kind = struck_;
    detected = false;
  }
  if (kind != kNobody && kinds_[kind].returns > 0.0 && random_.uniform() < kinds_[kind].returns) {
    again_.push_back({now_ + kinds_[kind].after.draw(random_), kind});
  }
}

bool Replica::phases(std::size_t kind, bool detected) {
  struck_ = kNobody;
  if (kind != kNobody) {
    const Kind& it = kinds_[kind];
    if (!detected && !spend(Part::detect, it.detect.draw(random_))) return false;
    double diagnosis = it.diagnose.draw(random_);
    if (it.automatic < 1.0 && random_.uniform() >= it.automatic) diagnosis += it.by_hand.draw(random_);
    if (!spend(Part::diagnose, diagnosis) || !spend(Part::repair, it.repair.draw(random_)) || !places()) return false;
  }
  return spend(Part::init, task_.init.draw(random_)) && (kind == kNobody || spend(Part::load, task_.load.draw(random_)));
}

// Other places for those that failed; false if a fault came first.
bool Replica::places() {
  places_.fail(broken_, now_, random_);
  broken_ = 0;
  const bool any = places_.needed() > 0;
  while (places_.needed() > 0) {
    if (!spend(Part::wait, places_.ready(now_, random_) - now_)) return false;
    if (places_.ready(now_, random_) > now_) continue;  // rounding
    places_.take();
  }
  return !any || spend(Part::wait, task_.swap.draw(random_));
}

// `seconds` of a recovery; false if a fault or the horizon cuts them short, with struck_ set in the first case.
bool Replica::spend(Part which, double seconds) {
  if (ended()) return false;
  Timer soonest{rate_recovery_ > 0.0 ? now_ + random_.exponential() / rate_recovery_ : kNone, kNobody};
  for (const std::vector<Timer>* timers : {&gaps_, &again_}) {
    const Timer timer = next(*timers, true);
    if (timer.at < soonest.at) soonest = timer;
  }
  const double end = std::min(now_ + seconds, task_.horizon);
  if (soonest.at >= end) {
    part(which) += end - now_;
    now_ = end;
    return now_ < task_.horizon;
  }
  const double at = std::max(soonest.at, now_);
  part(which) += at - now_;
  now_ = at;
  struck_ = soonest.kind == kNobody ? struck(rate_recovery_, true) : soonest.kind;
  arrived(struck_);
  if (kinds_[struck_].replaces) ++broken_;
  return false;
}

}  // namespace wt::faults
