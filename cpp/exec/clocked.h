// Executes the program of every rank in order of time, operator by operator, beside a network with a clock.
//
// The rules are those of engine.h, and so are the times wherever the network answers with the seconds stated. What differs is how
// they are found. Operators with a number in Templates::live have their end from the network, and the network has to hear of
// their begin before its clock passes that; so the next event of all ranks and of the network is always the one that happens
// first. Because operators start one by one, none waits for streams that only others of its instance need.
//
// Compute tax: computing advances at 1 - tax exactly while communication that was issued before it, in program order, is in
// flight, however long the network takes over it.
//
// Bits. Ranks meet only in the network and at a rendezvous, which takes the latest of its posts. Calls of one instant are handed
// to the network by key. So the order of ranks changes nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <queue>
#include <vector>

#include "exec/book.h"

namespace wt::exec {

class Clocked final : Book {
 public:
  Clocked(const Program& program, net::Network& network);
  Timeline run();

 private:
  // An operator or rendezvous that the host has enqueued.
  struct Item {
    std::uint32_t event;
    std::int32_t instance, repeat, op;
    Host host;
  };
  // A stream: what is enqueued on it, and what runs.
  struct Line {
    std::deque<Item> items;
    std::uint32_t event = kNoEvent;
    std::int32_t instance = -1;
    std::int32_t op = -1;  // -1: a rendezvous
    double begin = 0.0, seconds = 0.0;
    double longer = 1.0;                         // of a live call: factor on what the network says
    double left = 0.0, since = 0.0, rate = 1.0;  // of computing with a tax: seconds at full rate that are left since then
    std::uint32_t version = 0;                   // of what is scheduled for it
    bool busy = false;
    bool tried = false;  // its first item is scheduled to be looked at
  };
  // How far the host of a rank has come, and what is in flight there.
  struct Course {
    std::int32_t repeat = 0, op = 0;
    std::uint32_t event = 0;              // next to enqueue
    std::uint32_t awaited = kNoEvent;     // the host waits for this event's end
    double base = 0.0, held = 0.0;        // host at the instance's begin; that it has waited for operators of the instance
    std::int64_t queued = 0;              // items on all lines
    std::uint64_t waiting = 0;            // streams whose first item waits for an end
    std::uint64_t computing = 0;          // streams on which something that the tax slows runs
    std::vector<std::uint32_t> flights;   // events whose communication is in flight
    std::uint32_t earliest = kNoEvent;    // of these
    bool walking = false, woken = false;  // inside walk(); scheduled to go on
  };
  // What operators of an instance wait for: another instance, or the repetition before, which has a category.
  struct Gated {
    double at = 0.0;
    std::uint32_t event = kNoEvent;
    std::int32_t instance = -1, category = -1;
    bool known = false;
  };
  enum class What : std::uint8_t { kEnd, kTry, kWalk, kKnown };
  struct Event {
    double time;
    std::int64_t order;
    std::int32_t rank;  // kKnown: the id of the flow
    std::uint32_t version;
    What what;
    std::uint8_t stream;
    bool operator>(const Event& o) const { return time > o.time || (time == o.time && order > o.order); }
  };
  struct Place {
    std::int32_t rank, stream;
  };
  struct Start {
    std::int64_t key;
    net::Flow flow;
  };
  struct Choice {  // what bound a start
    double start;
    Cause cause;
    std::int32_t inner;  // operator that it waited for, plus one
  };

  // the host
  void walk(Rank& rank);
  bool enqueue(Rank& rank);  // the next event; false: the host has to wait, or is done
  bool open(Rank& rank);     // the next instance
  bool wait_for_queue(const Rank& rank, std::uint32_t event, Host& host) const;

  // starts and ends
  void look(Rank& rank, std::int32_t stream);
  bool choose(Rank& rank, std::int32_t stream, Choice& choice);
  void begin(Rank& rank, std::int32_t stream, const Choice& choice);
  void begin_op(Rank& rank, std::int32_t stream, const Item& item, double start);
  void note(Rank& rank, const Item& item, std::int32_t stream, const Choice& choice);
  void post(const Item& item, double start);
  void end(Rank& rank, std::int32_t stream, double at);
  void complete(std::int32_t id, double at);
  void finish(Rank& rank, std::int32_t i);
  void wake(Rank& rank);

  // the tax
  void fly(Rank& rank, std::uint32_t event, double at);
  void land(Rank& rank, std::uint32_t event, double at);
  void settle(Rank& rank, double at);

  // events
  void schedule(double time, What what, std::int32_t rank, std::int32_t stream, std::uint32_t version);
  [[nodiscard]] double next_own();
  void handle(const Event& event);
  void drain();
  void hand_over();

  Line& line(const Rank& rank, std::int32_t stream) {
    return lines_[static_cast<std::size_t>(rank.index) * streams_count_ + static_cast<std::size_t>(stream)];
  }
  Course& course(const Rank& rank) { return courses_[static_cast<std::size_t>(rank.index)]; }

  double now_ = 0.0;
  std::vector<Line> lines_;
  std::vector<Course> courses_;
  std::vector<Gated> gated_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t orders_ = 0;
  std::vector<Place> todo_;         // streams to look at
  std::vector<Start> starts_;       // that the network has not heard of
  std::vector<Place> calls_;        // live operators by flow id, behind those of the keys
  std::vector<std::int32_t> free_;  // of calls_
};

}  // namespace wt::exec
