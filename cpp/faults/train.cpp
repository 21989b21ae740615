// Progress of RUN between faults. Whole intervals between two saves are counted at once, so that the cost of a run is that of its
// faults and not of its saves.
#include <algorithm>
#include <cmath>

#include "faults/replica.h"

namespace wt::faults {

double Replica::pace() const {
  double slowest = 1.0;
  for (const Timer& one : slow_) slowest = std::max(slowest, kinds_[one.kind].slows);
  return 1.0 / slowest;
}

// RUN for `seconds` of wall time, or until the work is done.
void Replica::train(double seconds) {
  const double rate = pace();
  while (seconds > 0.0 && !done()) {
    if (saving_) {
      const double spent = std::min(seconds, save_left_);
      part(Part::save) += spent;
      now_ += spent;
      seconds -= spent;
      save_left_ -= spent;
      if (save_left_ <= 0.0) finish_save();
      continue;
    }
    if (work_ == saved_) whole_cycles(seconds, rate);
    const double left = std::min(saved_ + task_.interval, task_.work) - work_;
    const double speed = flush_left_ > 0.0 ? rate / (1.0 + task_.drag) : rate;
    double spent = std::min(seconds, left / speed);
    bool flushed = false;
    if (flush_left_ > 0.0 && flush_left_ <= spent) {
      spent = flush_left_;
      flushed = true;
    }
    const bool reached = !flushed && spent < seconds;
    work_for(spent, rate);
    now_ += spent;
    seconds -= spent;
    if (flush_left_ > 0.0) {
      flush_left_ = flushed ? 0.0 : flush_left_ - spent;
      if (flushed) durable_ = saved_;
    }
    if (reached) {
      work_ = std::min(saved_ + task_.interval, task_.work);
      if (done()) return;
      if (flush_left_ > 0.0) {  // the save waits for the flush before it
        const double waits = std::min(seconds, flush_left_);
        part(Part::save) += waits;
        now_ += waits;
        seconds -= waits;
        flush_left_ -= waits;
        if (flush_left_ > 0.0) return;
        durable_ = saved_;
      }
      saving_ = true;
      save_left_ = task_.save;
      if (save_left_ <= 0.0) finish_save();
    }
  }
}

// From just after a save, as many intervals as end within `seconds` and before the work does.
void Replica::whole_cycles(double& seconds, double rate) {
  const bool flushing = flush_left_ > 0.0;
  if (flushing != (task_.flush > 0.0) || (flushing && flush_left_ != task_.flush)) return;  // the first one after a recovery
  const double beside = task_.flush * rate / (1.0 + task_.drag);                            // work beside a flush
  if (beside > task_.interval) return;
  const double cycle = task_.flush + (task_.interval - beside) / rate + task_.save;
  const double fit = std::floor(std::min(seconds / cycle, (task_.work - work_) / task_.interval - 1e-9));
  if (fit < 1.0) return;
  part(Part::slow) += fit * cycle_slow_loss(rate, beside);
  part(Part::drag) += fit * task_.flush * rate * task_.drag / (1.0 + task_.drag);
  part(Part::save) += fit * task_.save;
  part(Part::useful) += fit * task_.interval;
  now_ += fit * cycle;
  seconds = std::max(0.0, seconds - fit * cycle);
  work_ += fit * task_.interval;
  saved_ = work_;
  durable_ = task_.flush > 0.0 ? work_ - task_.interval : work_;
  flush_left_ = task_.flush;
}

// What RUN loses to slow places in an interval: the wall time of its flush and of the rest, less what they take at full pace.
double Replica::cycle_slow_loss(double rate, double beside) const {
  return (task_.flush + (task_.interval - beside) / rate) * (1.0 - rate);
}

// Books `seconds` of RUN at a pace; flush_left_ says whether a flush goes on beside it.
void Replica::work_for(double seconds, double rate) {
  const double beside = flush_left_ > 0.0 ? task_.drag / (1.0 + task_.drag) : 0.0;
  const double gained = seconds * rate * (1.0 - beside);
  part(Part::slow) += seconds * (1.0 - rate);
  part(Part::drag) += seconds * rate * beside;
  part(Part::useful) += gained;
  work_ += gained;
}

void Replica::finish_save() {
  saving_ = false;
  save_left_ = 0.0;
  saved_ = work_;
  flush_left_ = task_.flush;
  if (task_.flush <= 0.0) durable_ = saved_;
}

// Falls back to the last durable mark.
void Replica::lose() {
  part(Part::useful) -= work_ - durable_;
  part(Part::replay) += work_ - durable_;
  work_ = saved_ = durable_;
  saving_ = false;
  save_left_ = flush_left_ = 0.0;
}

}  // namespace wt::faults
