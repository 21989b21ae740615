#include "net/replay/inside.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/time.h"

namespace wt::net::replay {

Time picoseconds(double seconds) {
  if (!(seconds >= 0 && seconds < 9e6)) fail("replay: a time of ", seconds, " s; 0 to 9e6 s allowed");
  return static_cast<Time>(std::llround(seconds * 1e12));
}

void Inside::play(std::int32_t launch, Time at, const Flow& flow) {
  const Flow own{launch, flow.key, std::max(seconds(at), now_), flow.seconds, seconds(at + 1)};
  if (const auto end = network_->start(own)) known_.push({picoseconds(*end), launch});
}

Time Inside::next() const {
  const double event = network_->next_event();
  const Time inner = event == kNever ? kForever : picoseconds(event);
  return known_.empty() ? inner : std::min(inner, known_.top().at);
}

std::optional<End> Inside::advance() {
  const double event = network_->next_event();
  if (!known_.empty() && (event == kNever || known_.top().at <= picoseconds(event))) {
    const End end = known_.top();
    known_.pop();
    return end;
  }
  now_ = std::max(now_, event);
  const auto completion = network_->advance();
  if (!completion) return std::nullopt;
  return End{picoseconds(completion->end), completion->id};
}

}  // namespace wt::net::replay
