#include "net/replay/episode.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

namespace wt::net::replay {

Episode merged(const Episode& a, const Episode& b) {
  if (b.begin < a.begin) return merged(b, a);
  Episode m;
  m.begin = a.begin;
  m.again = std::max(a.again, b.again);
  m.wide = a.wide || b.wide;
  m.exposed = a.exposed || b.exposed;
  m.shift = a.shift + b.shift;
  m.worst = std::max(a.worst, b.worst);
  const Time later = b.begin - a.begin;
  std::vector<std::int32_t> name_a(a.launches.size()), name_b(b.launches.size());
  std::size_t i = 0, k = 0;
  while (i < a.events.size() || k < b.events.size()) {
    bool first = k == b.events.size();
    if (!first && i < a.events.size()) {
      const std::int32_t x = a.events[i], y = b.events[k];
      const auto rank = [](const Episode& of, std::int32_t event, Time shift) {
        return std::tuple(of.time_of(event) + shift, event >= 0, of.launch(event >= 0 ? event : ~event).plan);
      };
      first = rank(a, x, 0) <= rank(b, y, later);
    }
    const Episode& from = first ? a : b;
    const std::int32_t event = first ? a.events[i++] : b.events[k++];
    std::vector<std::int32_t>& name = first ? name_a : name_b;
    if (event < 0) {
      m.events.push_back(~name[static_cast<std::size_t>(~event)]);
      continue;
    }
    Launch launch = from.launch(event);
    if (!first) {
      launch.offset += later;
      if (launch.delivered >= 0) launch.delivered += later;
    }
    const auto number = static_cast<std::int32_t>(m.launches.size());
    name[static_cast<std::size_t>(event)] = number;
    m.events.push_back(number);
    m.launches.push_back(launch);
  }
  for (const std::int32_t f : a.flying) m.flying.push_back(name_a[static_cast<std::size_t>(f)]);
  for (const std::int32_t f : b.flying) m.flying.push_back(name_b[static_cast<std::size_t>(f)]);
  return m;
}

bool walk(Memory& memory, Episode& episode, bool extend) {
  std::int32_t node = 0;
  Time shift = 0, shortest = kForever;
  bool known = true;
  for (const std::int32_t event : episode.events) {
    const Time at = episode.time_of(event);
    std::int32_t next = Memory::kNone;
    if (event >= 0) {
      const std::int32_t plan = episode.launch(event).plan;
      const Memory::Match found = known ? memory.match(node, plan, at, shortest) : Memory::Match{};
      next = found.node;
      if (next != Memory::kNone) {
        shift += found.shift;
        shortest = std::min(shortest, memory.fastest(plan));
      }
    } else if (known && memory[node].ends == ~event && std::abs(memory[node].end - at) <= memory.allowed(shortest)) {
      next = memory[node].after;
      shift += std::abs(memory[node].end - at);
    }
    if (next == Memory::kNone) {
      if (!extend) return false;
      known = false;
      next = event >= 0 ? memory.add_start(node, episode.launch(event).plan, at)
                        : memory.add_end(node, ~event, at, episode.shift + shift);
    }
    node = next;
  }
  episode.node = node;
  episode.shift += shift;
  episode.shortest = shortest;
  return true;
}

}  // namespace wt::net::replay
