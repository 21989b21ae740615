// What stages of a pipeline do turn by turn, as instances of a program: a turn receives, runs a pass or a pair, and sends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace wt::exec {

using Longs = std::span<const std::int64_t>;

// n actions in the order of their stages, each stage's in a row. A turn is an action, or two where the first is `paired`.
struct Actions {
  Longs table;   // [n, 4] kind, virtual stage, micro batch, whether it is paired with the next one
  Longs stage;   // [n]
  Longs tmpl;    // [n] template of a turn's run, -1 for none; at its first action
  Longs group;   // [n] the recorded pass that the action is, -1 for none
  Longs gather;  // [n] of an action that is one: where its gathers begin among `Recorded::gathers`
};

// Meetings with other stages.
struct Meetings {
  Longs send_key, receive_key;        // [stages, virtual stages, 2] of micro batch 0, by whether it is a gradient; -1 for none
  Longs send_stream, receive_stream;  // [virtual stages, 2]
  std::span<const double> seconds;    // [2]
  Longs way;                          // [kinds] 1 if an action of the kind moves a gradient, 0 an activation, -1 nothing
  std::int64_t cat_wait, cat_transfer;
  std::int64_t receive_flags;
  bool senders_wait;  // a run waits for the sends of the turn before
};

// G passes of several instances that are written like each other, K instances in all. Waits: instances of the pass from 0 on; -2 is
// the first of an action's gathers, -3 the second.
struct Recorded {
  Longs start;       // [G + 1] first instance
  Longs tmpl;        // [K]
  Longs task;        // [K] label
  Longs of_pass;     // [K] whether it is of the action's micro batch, else of none
  Longs wait_start;  // [K + 1]
  Longs waits;
  Longs last;     // [G] the last run
  Longs gathers;  // instances of the action's stage
  Longs before;   // [stages] instances that the stage has before these turns
};

// Labels of instances.
struct Tasks {
  Longs of_kind;  // [kinds]
  std::int64_t pair, send, receive;
};

// I instances, T turns, V meetings, numbered as if each stage's began where the one's before end.
struct Turns {
  std::vector<std::int32_t> rows;         // [I, 4] template, times, flags, number of waits
  std::vector<std::int32_t> labels;       // [I, 3] task, micro batch, virtual stage
  std::vector<std::int32_t> waits;        // negative: instances before these turns
  std::vector<std::int64_t> waits_start;  // [I + 1]
  std::vector<std::int32_t> meetings;     // [V, 4] stream, categories of waiting and of the transfer, 1
  std::vector<std::int64_t> keys;         // [V, 2] key, 2
  std::vector<double> seconds;            // [V]
  std::vector<std::int64_t> meets_start;  // [I + 1]
  std::vector<std::int64_t> start;        // [T + 1] first instance
  std::vector<std::int64_t> done;         // [T] last run
  std::vector<std::int64_t> moved;        // [T, 2] receives, sends
  std::vector<std::int64_t> base;         // [n] first instance of the action's run
};

// Order in a turn: receives, runs, sends. The first run waits for the receives, then for the sends of the stage's turn before;
// sends wait for the last run. A turn that is neither a run nor recorded leaves a row -1. Throws wt::Error for columns that do not
// fit.
Turns write_turns(const Actions& actions, const Meetings& meetings, const Recorded& recorded, const Tasks& tasks);

}  // namespace wt::exec
