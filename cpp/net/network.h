// The network determines how long a rendezvous takes; the exec core only states when it may begin.
//
// A network answers start() in one of two ways:
//   * at once, with the end (closed forms: the caller's seconds are final), or
//   * not yet (nullopt): the flow shares links with others, so its end depends on flows that are still to come.
// The core runs every rank as far as it can go. When all of them wait, it asks next_event() and lets the network advance() to
// its next completion, which sets ranks free again. A flow that starts after a completion at time t begins at t or later,
// because everything that could have begun sooner has been handed over already; so a network never has to turn its clock back.
// It must keep flows whose `begin` lies beyond its clock until the clock reaches them, and next_event() must count them.
// A flow or packet network looks up bytes and routes in tables of its own by `key`; the core knows neither.
#pragma once

#include <cstdint>
#include <optional>

namespace wt::net {

struct Flow {
  std::int32_t id = 0;   // dense, 0..number of keys
  std::int64_t key = 0;  // the caller's key
  double begin = 0.0;    // seconds: the last participant has posted
  double seconds = 0.0;  // the longest duration that a participant stated, without other traffic
  double clock = 0.0;    // the caller's: all that begins before has been handed over, and all that ended before is over
};

struct Completion {
  std::int32_t id = 0;
  double end = 0.0;
};

class Network {
 public:
  virtual ~Network() = default;
  // The end of the flow if it is known already, else nullopt and the end comes out of advance().
  virtual std::optional<double> start(const Flow& flow) = 0;
  // Time of the next completion or other event inside the network; kNever if nothing is in flight.
  [[nodiscard]] virtual double next_event() const = 0;
  // Moves to next_event(); a completion if that event was one.
  virtual std::optional<Completion> advance() = 0;
};

}  // namespace wt::net
