// Executes a graph of tasks on lanes: event by event, in order of time.
//
// Rules. A task is ready when all tasks that it depends on have ended. A ready task without a lane starts at once. A lane serves as
// many tasks at once as its width says: an ordered lane in the order of the tasks' numbers, another one in order of priority (the
// least first), ties in the order in which they became ready. A task holds its lane for `seconds` and ends `tail` after that. A
// task may also take one lane and give back another, so that a chain of tasks holds a lane from its first to its last.
//
// Meetings. Tasks may post on a channel; the n-th post of each slot of a channel belongs to its n-th meeting.
//   * collective: begins when all slots have posted and ends for all of them together;
//   * rendezvous: the same for a sender (slot 0) and a receiver (slot 1);
//   * eager: the sender takes its time from its own post on; the receiver ends when the message is there and it has posted;
//   * port: a server that takes one task after the other, in order of their posts.
// A meeting takes the longest of its participants' seconds, or what the network says for its key (net/network.h), or what a Model
// says, which may give each participant an end of its own.
//
// What cannot run (a cycle, a meeting that nobody joins) has no times: NaN. The caller says what it means.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "net/network.h"

namespace wt::dag {

enum class ChannelKind : std::uint8_t { kCollective, kRendezvous, kEager, kPort, kModel };

// Columns of N tasks; those that may be empty stand for their defaults.
struct Tasks {
  std::span<const double> seconds;
  std::span<const double> tail;           // none
  std::span<const std::int32_t> lane;     // -1: none
  std::span<const std::int32_t> release;  // lane given back at the end: `lane`
  std::span<const std::int64_t> priority;
  std::span<const std::int64_t> dep_start;  // [N+1]
  std::span<const std::int64_t> deps;
  std::span<const std::int32_t> channel;  // -1: none
  std::span<const std::int32_t> slot;
  std::span<const std::int64_t> key;  // of the network; negative: its own seconds
};

struct Lanes {
  std::span<const std::uint8_t> ordered;  // [L]
  std::span<const std::int32_t> width;    // [L], ordered lanes have 1
};

struct Channels {
  std::span<const std::uint8_t> kind;   // [C] ChannelKind
  std::span<const std::int32_t> slots;  // [C]
};

// Ends of a meeting's participants, by slot, from the times at which they posted.
using Model = std::function<void(std::int32_t channel, std::int64_t number, std::span<const double> posted, std::span<double> end)>;

struct Outcome {
  std::vector<double> start, end;   // [N] NaN: it never ran
  std::vector<double> begin;        // [N] when a meeting began to take its time; NaN for other tasks
  std::vector<std::int64_t> cause;  // [N] the task whose end let this one start, -1 none
  std::vector<std::int64_t> last;   // [N] of a meeting: the participant that posted last; -1 for other tasks
  std::int64_t done = 0;
};

// Throws wt::Error for columns that are wrong. `pulse` is called now and then and may throw.
[[nodiscard]] Outcome run(const Tasks& tasks, const Lanes& lanes, const Channels& channels, net::Network* network,
                          const Model& model, const std::function<void()>& pulse);

}  // namespace wt::dag
