// Weighted max-min rates of unknowns over links, kept up to date as unknowns come, go and change weight and links change capacity.
//
// Level = rate / weight. Progressive filling raises the level of all unknowns together; a link that fills up stops those on it, an
// unknown that reaches its own bound stops alone. That is a sweep over levels, and a change affects only part of the sweep:
//   * new unknowns start free; all others keep their level;
//   * a link with a change enters the sweep at the level where it could fill up. Unknowns above the level at which it
//     fills up are lowered to it, and the links that this relieves enter the sweep at their own old level;
//   * a link that was full, is reached at its old level and is no longer full frees the unknowns that it had stopped.
// Levels below a change are not visited, so the cost is that of the links and unknowns whose level moves. The result is the
// same as that of a sweep from zero, which is done if a large share is new. E log L in all for E incidences and L links.
//
// If a change affects nearly everything (completions in random order under one bottleneck after the other), a sweep from zero
// is cheaper, and is done as soon as that is detected.
//
// After every incremental sweep a certificate is checked on all that changed (feasible; every unknown at its bound or stopped
// by a full link on which no level is higher); if rounding has broken it, the sweep is repeated from zero.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "net/flow/demand.h"
#include "net/flow/meter.h"

namespace wt::net::flow {

inline constexpr std::int32_t kOwnBound = -1;

// The distinct unknowns: a row of demands and the level at which its own bound stops it.
struct Unknowns {
  std::vector<std::int32_t> row;
  std::vector<double> bound;  // in levels; infinity: none, and then the row is not empty

  [[nodiscard]] std::size_t size() const { return row.size(); }
};

struct SolverStats {
  std::int64_t solves = 0, incremental = 0, full = 0;
  std::int64_t abandoned = 0;  // incremental ones that grew past the cost of a full one, which then was done
  std::int64_t fallbacks = 0;  // incremental ones whose certificate failed, likewise
};

class Solver {
 public:
  struct Moved {
    std::int32_t unknown;
    double before;  // its level until now; 0 if it is new
  };

  // `passive`: links that are measured but never stop anything (another one always fills up first); empty: none.
  Solver(const Demands& demands, const Unknowns& unknowns, std::span<const double> capacity, std::vector<std::uint8_t> passive);

  // Time of the changes that follow, for what the links are metered by.
  void at(double now) { now_ = now; }
  // 0: the unknown is gone. Weights and capacities take effect with solve().
  void set_weight(std::int32_t unknown, double weight);
  void set_capacity(std::int32_t link, double capacity);
  void solve();
  // The unknowns that the last solve() looked at.
  [[nodiscard]] std::span<const Moved> moved() const { return moved_; }

  [[nodiscard]] double level(std::int32_t unknown) const { return unknown_[index(unknown)].level; }
  [[nodiscard]] double weight(std::int32_t unknown) const { return unknown_[index(unknown)].weight; }
  // The link that stopped it, or kOwnBound.
  [[nodiscard]] std::int32_t stopped_by(std::int32_t unknown) const { return unknown_[index(unknown)].stop; }
  [[nodiscard]] double load(std::int32_t link) const { return links_[index(link)].load; }
  [[nodiscard]] const SolverStats& stats() const { return stats_; }
  [[nodiscard]] Meter& meter() { return meter_; }
  // Brings the meter of every link up to the present.
  void settle_meter();
  // Checks the whole solution from scratch: feasible, and every unknown has its reason. For tests.
  [[nodiscard]] bool certified() const;

  template <class Body>
  void each_link(std::int32_t unknown, Body&& body) const {
    const Unknown& u = unknown_[index(unknown)];
    const std::size_t last = u.first + static_cast<std::size_t>(u.links);
    if (demands_.demand.empty())
      for (std::size_t i = u.first; i < last; ++i) body(demands_.links[i], 1.0);
    else
      for (std::size_t i = u.first; i < last; ++i) body(demands_.links[i], demands_.demand[i]);
  }

 private:
  static constexpr double kFree = std::numeric_limits<double>::infinity();  // level of what is not stopped yet

  struct Unknown {
    double level = 0.0, weight = 0.0;
    std::size_t first = 0;          // of its row
    std::int32_t links = 0;         // in its row
    std::int32_t stop = kOwnBound;  // the link that stopped it
    std::uint32_t stamp = 0;        // counts its arrivals and departures
    std::uint32_t seen = 0;         // epoch in which it was last remembered
  };
  struct Link {
    double load = 0.0;                             // of what is not free
    double free = 0.0;                             // weight of what is free
    std::int32_t live = 0, open = 0, settled = 0;  // unknowns on it; those that are free; those stopped in this sweep
    std::uint32_t epoch = 0;
    double capacity = 0.0;
    double scale = 0.0;       // the most that its capacity was, for what rounding may leave
    double peak = 0.0;        // the most that `free` was in this sweep
    double full_at = kFree;   // level at which it filled up and stopped something
    double floor = 0.0;       // it does not fill up below
    double queued = kFree;    // its entry in the queue
    std::int64_t slot = 0;    // first of its slots
    std::int32_t listed = 0;  // slots in use, some of them by what has gone
    std::int32_t stops = 0;   // unknowns that it stopped
    bool committed = false;   // it has filled up in this sweep
  };
  struct Slot {
    std::int32_t unknown;
    std::uint32_t stamp;  // of the arrival that entered it
  };
  struct Entry {
    double level;
    std::int32_t id;
  };

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  static bool later(const Entry& a, const Entry& b) { return a.level > b.level || (a.level == b.level && a.id > b.id); }

  void tidy(Link& link);
  template <class Body>
  void each_unknown(std::int32_t link, Body&& body);  // (unknown, demand)
  void enter(std::int32_t link, std::int32_t unknown, double demand);
  Link& touch(std::int32_t link);
  void meter_link(std::size_t link);
  void remember(std::int32_t unknown);
  void forget_stop(std::int32_t unknown);

  [[nodiscard]] bool sweep(std::int64_t budget);
  void restart();
  void offer_link(std::int32_t link);
  void offer_bound(std::int32_t unknown);
  [[nodiscard]] double fills_at(const Link& link) const;
  [[nodiscard]] double enters_at(std::int32_t id) const;
  void take_link(std::int32_t id, double at);
  void set_free(std::int32_t link);
  [[nodiscard]] double root(std::int32_t link, double from);
  void fill_up(std::int32_t link);
  void stop(std::int32_t unknown, double level, std::int32_t by);
  void lower(std::int32_t unknown, double level, std::int32_t by);
  [[nodiscard]] bool plausible() const;

  const Demands demands_;
  const std::vector<double> bound_;
  std::vector<std::uint8_t> passive_;
  std::vector<Unknown> unknown_;
  std::vector<Link> links_;
  std::vector<Slot> slots_;
  std::vector<double> slot_demand_;  // empty where all demands are 1
  Meter meter_;
  SolverStats stats_;

  double now_ = 0.0;
  std::uint32_t epoch_ = 1;
  std::size_t active_ = 0;
  std::size_t open_ = 0;               // unknowns that are free
  std::int64_t entries_ = 0;           // of the rows of what is active
  std::int64_t work_ = 0;              // entries looked at in this sweep
  std::int32_t skip_ = 0, skips_ = 0;  // sweeps from zero still to come before an incremental one is tried again
  double level_ = 0.0;                 // of the sweep
  std::vector<std::int32_t> touched_;
  std::vector<Moved> moved_;
  bool moved_is_old_ = false;  // moved_ is that of the last solve()
  std::vector<Entry> queue_, bounds_;
};

}  // namespace wt::net::flow
