// Transfers that are in flight together and influence each other, from when the first starts until the last has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "net/replay/memory.h"

namespace wt::net::replay {

struct Launch {
  Flow flow;
  std::int32_t plan = 0;
  Time offset = 0;             // from the begin of the episode
  Time delivered = -1;         // offset at which the caller heard of its end
  bool remembered = false;     // from memory
  std::int32_t against = 0;    // transfers of other episodes on the way back of its links
  Time since = 0, beside = 0;  // clock from which that is so; seconds with some
};

struct Episode {
  Time begin = 0;
  std::int32_t node = 0;             // where it stands in memory
  std::vector<Launch> launches;      // by start
  std::vector<std::int32_t> events;  // in order: i for the start of launch i, ~i for its end
  std::vector<std::int32_t> flying;  // launches
  std::int32_t again = 0;            // times that it was simulated from its begin, since a transfer joined two
  bool exposed = false;              // to faults: simulated, and not remembered
  bool wide = false;                 // whatever starts belongs to it, so that this happens no more
  Time shortest = kForever;          // of the plans started
  Time shift = 0;                    // sum of how far its times were from those remembered
  Time worst = 0;                    // most that a completion may be off
  std::optional<Inside> inside;      // while it is simulated

  [[nodiscard]] Launch& launch(std::int32_t i) { return launches[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const Launch& launch(std::int32_t i) const { return launches[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Time time_of(std::int32_t event) const { return event >= 0 ? launch(event).offset : launch(~event).delivered; }
};

// One episode of two that a transfer joins. Events of the same picosecond: ends first, then starts by plan.
[[nodiscard]] Episode merged(const Episode& a, const Episode& b);

// Finds the node behind all events of an episode: walks as far as memory has it, and remembers the rest if `extend`.
// False, with the episode's node at the beginning, if memory has not all of it and is not to be extended.
bool walk(Memory& memory, Episode& episode, bool extend);

}  // namespace wt::net::replay
