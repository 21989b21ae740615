#include "net/packet/skip.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/check.h"

namespace wt::net::packet {

Skipper::Skipper(World& world, Part& part) : link_bytes(world.links.size(), 0), w_(world), part_(part) {
  if (!w_.faults.flaps.empty() || !w_.faults.detours.empty() || w_.options.sample > 0)
    fail("packet engine: steady states cannot be skipped in runs with flaps, detours or series");
  choose();
}

// The pace is read off the first lane of several slices that is not done.
void Skipper::choose() {
  for (std::size_t i = 0; i < w_.gates.size(); ++i) {
    if (w_.gates[i].slices < 4 * window_ || w_.gates[i].open == w_.gates[i].slices || w_.senders[i].hops == 0) continue;
    pace_of(static_cast<std::uint32_t>(i));
    return;
  }
  pace_of(UINT32_MAX);
}

double Skipper::share() const {
  const auto all = static_cast<double>(std::accumulate(w_.lanes.bytes.begin(), w_.lanes.bytes.end(), std::int64_t{0}));
  return all > 0 ? skipped_bytes_ / all : 0.0;
}

// Whether all that runs goes at the pace of the chosen lane; its lanes.
bool Skipper::steady(std::vector<std::uint32_t>& lanes) const {
  const auto& marks = part_.marks();
  const Part::Mark &a = marks[0], &b = marks[1], &c = marks[2], &d = marks[3];  // half a window apart
  const auto first = static_cast<double>(c.time - a.time), second = static_cast<double>(d.time - b.time);
  if (std::abs(first - second) > kTolerance * second) return false;
  std::vector<std::uint8_t> runs(w_.gates.size(), 0);
  for (std::uint32_t i = 0; i < w_.gates.size(); ++i) {
    if (w_.acked[i] != kForever) continue;
    if (w_.gates[i].begin > part_.now()) return false;          // something else is about to happen
    if (d.slices[i] == 0 && w_.senders[i].high == 0) continue;  // has not begun
    const std::int64_t early = c.slices[i] - a.slices[i], late = d.slices[i] - b.slices[i];
    if (std::abs(early - window_) > 1 || std::abs(late - window_) > 1 || std::abs(early + late - 2 * window_) > 1) return false;
    runs[i] = 1;
    lanes.push_back(i);
  }
  for (std::uint32_t i = 0; i < w_.gates.size(); ++i) {
    if (w_.acked[i] != kForever || runs[i] != 0) continue;
    for (std::int64_t e = w_.lanes.dep_start[i]; e < w_.lanes.dep_start[i + 1]; ++e)
      if (w_.lanes.dep_lead[e] != kAll && runs[w_.lanes.dep_lane[e]] != 0) return false;  // it waits for a certain slice
  }
  return true;
}

bool Skipper::look() {
  if (part_.marks().size() < 4) {
    if (part_.pace_lane() == UINT32_MAX || w_.gates[part_.pace_lane()].open == w_.gates[part_.pace_lane()].slices) choose();
    return false;
  }
  if (part_.marks().back().time == judged_) return false;
  judged_ = part_.marks().back().time;
  std::vector<std::uint32_t> lanes;
  if (!steady(lanes)) {
    if (++failed_ < kPatience) return false;
    failed_ = 0;
    window_ *= 2;  // the pattern may take longer to repeat
    choose();
    return false;
  }
  std::int64_t k = INT64_MAX;
  for (const std::uint32_t i : lanes) k = std::min(k, w_.gates[i].slices - w_.gates[i].open - 1);  // the last slice may be shorter
  if (k < window_) return false;
  const auto& marks = part_.marks();
  const Time pace = marks[3].time - marks[1].time, before = marks[2].time - marks[0].time;
  for (const std::uint32_t i : lanes) {
    const auto packets = static_cast<std::uint32_t>(k) * w_.senders[i].per;
    w_.gates[i].slices -= k;
    w_.senders[i].total -= packets;
    w_.receivers[i].total -= packets;
    const std::int64_t bytes = k * w_.lanes.slice[i];
    skipped_bytes_ += static_cast<double>(bytes);
    for (std::uint32_t h = w_.senders[i].hop; h < w_.senders[i].hop + w_.senders[i].hops; ++h)
      link_bytes[w_.way[h] & ~World::kFirst] += bytes + std::int64_t{packets} * w_.options.header;
  }
  const auto time = static_cast<Time>(static_cast<double>(pace) / static_cast<double>(window_) * static_cast<double>(k) + 0.5);
  skipped_ += time;
  error_ += std::abs(static_cast<double>(pace - before)) / static_cast<double>(pace) * static_cast<double>(time);
  part_.later(time);
  window_ = kFirstWindow;
  choose();
  return true;
}

}  // namespace wt::net::packet
