// Long work that faults interrupt, with marks to fall back to: many runs of it, each from its own random stream.
//
// States: RUN -> DETECT -> DIAGNOSE -> REPAIR -> WAIT -> INIT -> LOAD -> RUN. Work done since the last durable mark is lost when
// RUN ends by a fault, and done again. Rules:
//  * After every `interval` of work RUN pauses for `save`; the mark is durable `flush` seconds later, during which work proceeds at
//    1 / (1 + drag). A mark that is not durable when a fault comes is lost. A save waits for the flush before it.
//  * A kind with a `rate` is a Poisson process; one with a `gap` comes again a drawn time after it came. Both run on wall time.
//  * Kinds with `in_recovery` also strike outside RUN; recovery then begins anew with the new kind's. Others wait for RUN.
//  * A kind that does not `restart` only pauses RUN for its detection and repair. One that `saves_first` marks its place before it
//    stops, so that nothing is lost. One that `slows` lets RUN go on at 1 / slows until it is detected, and stops it then.
//  * A kind that `replaces` needs another place to run on: a spare; else the first of a repaired one and one that the queue gives.
//    What a spare stands in for is repaired and becomes a spare; what the queue replaced does not come back.
//  * After a recovery the same fault comes again with probability `returns`, a drawn time `after`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "faults/law.h"

namespace wt::faults {

struct Kind {
  double rate = 0.0;  // 1/s
  Law gap;            // mean 0: none
  Law detect, diagnose, by_hand, repair;
  double automatic = 1.0;  // share of faults without `by_hand` added to the diagnosis
  double slows = 1.0;
  double returns = 0.0;
  Law after;
  bool replaces = false, restarts = true, saves_first = false, in_recovery = true;
};

struct Task {
  double work = 0.0;     // seconds of undisturbed RUN
  double horizon = 0.0;  // seconds at which a run is cut off
  double interval = 0.0, save = 0.0, flush = 0.0, drag = 0.0;
  std::int64_t spares = 0;
  Law swap, spare_repair, queue;  // queue.mean < 0: there is none
  Law init, load;
};

// Where wall time goes. `useful`: work that was not lost; `slow`: what RUN lost to slow places; `drag`: the same
// beside flushes.
enum class Part : std::uint8_t { useful, slow, save, drag, replay, detect, diagnose, repair, wait, init, load };
inline constexpr std::size_t kParts = 11;

struct Outcome {
  std::vector<double> wall;         // by run
  std::vector<double> parts;        // [run][Part]; a run's parts add up to its wall
  std::vector<std::int64_t> count;  // [run][kind]: faults that came
  std::vector<std::uint8_t> done;   // whether the work was finished before the horizon
};

// Runs `count` runs, numbered from `first`, on `threads` threads. A run depends on `seed` and its number alone.
Outcome run(const Task& task, std::span<const Kind> kinds, std::uint64_t seed, std::int64_t first, std::int64_t count, int threads);

}  // namespace wt::faults
