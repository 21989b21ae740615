// Executes the program of every rank on in-order streams.
//
// Rules. An operator starts at max(stream free, gate of its instance, ends of the operators it waits for, host has enqueued it).
// A rendezvous posts by the same rule, begins when the last participant has posted, and holds its stream from post to end.
// The host of a rank enqueues in program order and stops only at a kHostSync instance, or when it is host_window operators
// ahead of the device.
//
// Evaluation. A rank is walked in program order. An instance whose inputs are known is placed at once; one that depends on a
// rendezvous that has not ended is set aside with a count of what it waits for, and the walk goes on, as the host of a real
// rank would. So ranks form a Kahn network (per stream, not only per rank): any order of running them gives the same times, and
// a deadlock of the evaluation is a deadlock of the program. An instance is placed as a whole, so one that spans streams starts
// none of its operators before all of its streams are known.
//
// Compute tax. While communication of the rank is in flight (an operator with comm set, or a transfer from begin to end; not the
// wait before it), computing advances at 1 - tax. Computing instances of a rank are placed in program order, each once all
// communication issued before it has ended, and see exactly that; communication issued behind an operator that turns out to
// overlap it is ignored. Where every rank waits for that only (A computes beside a receive whose sender needs A's result), the
// instance with the earliest start goes first without the unknown transfer, which cannot have begun before it. Communication
// itself is not slowed by computing: state its seconds as they are beside computing.
//
// Recall. On a grid (grid.h) an instance that begins as an earlier one of its template did is not walked through: what became of
// that one is added to its anchor (recall.h, docs/decisions/0079-recalled-passes.md). Both ways give the same bits.
//
// Networks. Timing of a rendezvous comes from net::Network; see there how one with a clock of its own fits. A transfer that such
// a network has not ended yet slows computing for the seconds stated for it: what others do to the transfer changes its end, and
// the tax on what runs beside it only by the difference.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "exec/book.h"
#include "exec/program.h"
#include "exec/recall.h"
#include "exec/timeline.h"
#include "net/network.h"

namespace wt::exec {

// Checks and runs. Throws wt::Error for a wrong program and for a deadlock.
[[nodiscard]] Timeline run(const Program& program, net::Network& network);

class Engine final : Book {
 public:
  Engine(const Program& program, net::Network& network);
  Timeline run();

 private:
  struct Edge {
    std::int32_t next, target;
  };

  // admission, in program order
  [[nodiscard]] bool can_admit(Rank& rank);
  void admit(Rank& rank);
  void wait_for(std::int32_t source, std::int32_t target);
  void advance_host(Rank& rank, std::int32_t i);
  // With a window: event e enters the queue once event e - window has started.
  void wait_for_queue(const Rank& rank, std::uint32_t event, Host& host) const {
    if (event < window_ || !(rank.trail.start[event - window_] > host.at)) return;
    const double start = rank.trail.start[event - window_];
    host = Host{start, start, event - window_, -1, Cause::kWindow};
  }

  // placement
  void place(Rank& rank, std::int32_t i);
  void walk(Rank& rank, std::int32_t i);
  void walk_learning(Rank& rank, std::int32_t i);
  template <bool Tax, bool Window, Trailed Kept, bool Learn>
  void place_ops(Rank& rank, std::int32_t i);
  void post(Rank& rank, std::int32_t i);
  void set_off(std::int32_t key);
  void complete(std::int32_t key, double end);
  void finish(Rank& rank, std::int32_t i);
  [[nodiscard]] std::uint64_t streams_of(std::int32_t i) const;

  template <bool Learn>
  double taxed_end(Rank& rank, std::int32_t i, const Op& op, double start, double seconds);

  // instances that begin as another one did (recall.h)
  struct Shape {
    bool anchored = true;                // every operator begins behind the first one
    std::vector<std::int32_t> accounts;  // of busy time, in the rank's row
    std::int64_t tried = 0, spared = 0;  // instances that were looked up, and operators that were recalled
  };
  // What a walk that is learned from leaves, beside the state that it changes.
  struct Lesson {
    bool usable, felt;
    double latest_host;
    FirstOnCompute first;
    std::vector<double> busy, idle, stretch;  // accounts before it; idle time: behind the first operator on the compute stream
    std::vector<std::pair<double, double>> flights;
    void begin(std::size_t accounts, std::size_t categories) {
      usable = true, felt = false, latest_host = kNever, first = {};
      busy.resize(accounts), idle.resize(categories + 2), stretch.resize(categories), flights.clear();
    }
    void see_host(double latest, bool late) { felt = felt || late, latest_host = std::min(latest_host, latest); }
  };
  void name_outcome(std::int32_t i, std::int32_t number) {
    if (!outcome_.empty()) outcome_[static_cast<std::size_t>(i)] = number;
  }
  [[nodiscard]] bool recalls(const Rank& rank, std::int32_t i) const;
  [[nodiscard]] Shape& shape_of(std::int32_t i);
  [[nodiscard]] bool recall(Rank& rank, std::int32_t i);
  void replay(Rank& rank, std::int32_t i, const Recalled& known, const Gate& gate);
  void charge_first(Rank& rank, const State& self, const FirstOnCompute& first, const Gate& gate);
  void learn_first(const Rank& rank, const Op* ops, std::int32_t k, double start, double host, bool held);
  void learn(Rank& rank, std::int32_t i);
  [[nodiscard]] Recalled outcome_of(const Rank& rank, std::int32_t i, double host_begin);

  // scheduling
  void enqueue(Rank& rank);
  void drain();
  [[nodiscard]] bool computes(std::int32_t i) const { return row(i) < 0 && info(i).computes; }
  [[nodiscard]] bool next_computing_is_known(Rank& rank);
  struct Candidate {
    Rank* rank;
    std::int32_t instance;
    double start;
  };
  [[nodiscard]] std::vector<Candidate> held_by_the_tax();

  std::vector<Edge> edges_;
  std::vector<std::int32_t> queue_;
  bool recalls_;
  std::vector<std::int32_t> outcome_;
  std::int64_t recalled_ = 0;
  Recall recall_;
  std::vector<Shape> shapes_;  // by template
  Lesson lesson_;
  double anchor_ = 0.0;       // of the instance that was looked up last
  std::vector<double> ends_;  // scratch: ends of the operators of one repetition, from 1
};

}  // namespace wt::exec
