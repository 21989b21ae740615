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
// Networks. Timing of a rendezvous comes from net::Network; see there how one with a clock of its own fits. A transfer that such
// a network has not ended yet slows computing for the seconds stated for it: what others do to the transfer changes its end, and
// the tax on what runs beside it only by the difference.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/time.h"
#include "exec/flights.h"
#include "exec/program.h"
#include "exec/timeline.h"
#include "exec/validate.h"
#include "net/network.h"

namespace wt::exec {

// Checks and runs. Throws wt::Error for a wrong program and for a deadlock.
[[nodiscard]] Timeline run(const Program& program, net::Network& network);

inline constexpr std::uint32_t kNoEvent = 0xFFFFFFFFU;

// Host clock of a rank and what last held it up.
struct Host {
  double at = 0.0;
  double base_at = 0.0;                 // when it was last held up, 0 if never
  std::uint32_t base_event = kNoEvent;  // by which event of its rank
  std::int32_t base_instance = -1;      // by which synchronised instance
  Cause base_cause = Cause::kHost;      // kHost: that event's end (or the step's begin); kWindow: its start
};

enum class Status : std::uint8_t { kAhead, kPending, kReady, kPosted, kDone };

struct State {
  Host host;  // when the host reaches the instance
  double begin = 0.0, end = -1.0, transfer = kUnset;
  std::uint32_t first_event = 0, last_event = kNoEvent;
  std::int32_t events = 1;
  std::int32_t edges = -1;                    // head of the list of instances that wait for this one
  std::int32_t open = 0;                      // inputs that are not known yet
  std::int32_t parts_left = 0, binding = -1;  // of a rendezvous: parts in flight, key of the part that ended last
  std::int32_t category = 0;                  // of what ended last
  Status status = Status::kAhead;
};

struct Stream {
  double free = 0.0;
  std::uint32_t last_event = kNoEvent;
  std::int32_t last_user = -1;  // last instance in program order that was admitted to it
};

// Times of each event (operator or rendezvous) of a rank in program order, and what bound its start.
struct Trail {
  std::unique_ptr<double[]> start, end;
  std::unique_ptr<std::uint32_t[]> before;
  std::unique_ptr<Cause[]> cause;
};

struct Rank {
  std::int32_t index = 0, first = 0, last = 0;  // instances first .. last-1
  std::int32_t cursor = 0, low = 0;             // next to admit; first that has no start yet
  std::uint32_t events = 0;
  Host host;
  std::int32_t sync = -1, host_unknown = -1;  // instances that the host waits for: to end; to be placed
  std::vector<std::int32_t> ready;
  std::vector<std::int32_t> computing, communicating;  // with a tax: admitted instances in program order
  std::size_t next_computing = 0, first_open = 0;      // into them: the first that has no times yet
  Flights flights;
  Trail trail;
  bool queued = false;
};

struct Key {
  std::int32_t posted = 0;
  std::int32_t participants = 0;
  double begin = 0.0, seconds = 0.0;
  std::int64_t name = 0;
  bool estimated = false;  // its flight is known to the tax with the seconds stated, as the network had not ended it
};

class Engine {
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
  void settle_sync(Rank& rank);
  // With a window: event e enters the queue once event e - window has started.
  void wait_for_queue(const Rank& rank, std::uint32_t event, Host& host) const {
    if (event < window_ || !(rank.trail.start[event - window_] > host.at)) return;
    const double start = rank.trail.start[event - window_];
    host = Host{start, start, event - window_, -1, Cause::kWindow};
  }

  // placement
  void place(Rank& rank, std::int32_t i);
  template <bool Tax, bool Window, bool Trailed>
  void place_ops(Rank& rank, std::int32_t i);
  void post(Rank& rank, std::int32_t i);
  void set_off(std::int32_t key);
  void complete(std::int32_t key, double end);
  void finish(Rank& rank, std::int32_t i);
  struct Gate {
    double at;
    std::int32_t instance;
  };
  [[nodiscard]] Gate gate_of(const Rank& rank, std::int32_t i) const;
  [[nodiscard]] std::uint64_t streams_of(std::int32_t i) const;

  // accounts
  void charge(Rank& rank, double from, double to, std::int32_t instance);
  void charge_host(Rank& rank, double from, double to, const Host& host);
  void charge_idle(Rank& rank, double from, double to, Cause cause, const Host& host, std::int32_t inner,
                   std::int32_t gate_category, std::int32_t gate_instance);
  double taxed_end(Rank& rank, std::int32_t i, const Op& op, double start, double seconds);
  Sum& busy(const Rank& rank, int stream, int category) {
    return busy_[(static_cast<std::size_t>(rank.index) * streams_count_ + static_cast<std::size_t>(stream)) * categories_ +
                 static_cast<std::size_t>(category)];
  }
  Sum& idle(const Rank& rank, std::size_t cause) { return idle_[static_cast<std::size_t>(rank.index) * (categories_ + 2) + cause]; }

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
  [[noreturn]] void deadlock() const;

  // results
  [[nodiscard]] Timeline results();
  [[nodiscard]] Path critical_path(double makespan) const;
  void record(Record& out) const;

  Stream* streams_of_rank(const Rank& rank) { return streams_.data() + static_cast<std::size_t>(rank.index) * streams_count_; }
  State& state(std::int32_t i) { return states_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const State& state(std::int32_t i) const { return states_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] bool done(std::int32_t i) const { return state(i).status == Status::kDone; }
  [[nodiscard]] bool has_flag(std::int32_t i, std::uint8_t flag) const {
    return (program_.instances.flags[static_cast<std::size_t>(i)] & flag) != 0;
  }
  [[nodiscard]] std::int32_t row(std::int32_t i) const { return layout_.row[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const double* factors_of(std::int32_t i) const {
    const auto& scale = program_.instances.scale;
    return layout_.factors.data() + (scale.empty() ? 0 : std::ptrdiff_t{scale[static_cast<std::size_t>(i)]} * layout_.groups);
  }
  [[nodiscard]] const TemplateInfo& info(std::int32_t i) const {
    return layout_.templates[static_cast<std::size_t>(program_.instances.tmpl[static_cast<std::size_t>(i)])];
  }

  const Program& program_;
  net::Network& network_;
  Layout layout_;
  std::size_t streams_count_, categories_;
  std::uint32_t window_;
  double rate_;
  bool tax_;
  std::size_t remaining_;  // instances that are not done
  std::vector<State> states_;
  std::vector<Rank> ranks_;
  std::vector<Stream> streams_;
  std::vector<Key> keys_;
  std::vector<Edge> edges_;
  std::vector<std::int32_t> queue_;
  std::vector<double> ends_;  // scratch: ends of the operators of one repetition, from 1
  std::vector<Sum> busy_, idle_, stretch_;
};

}  // namespace wt::exec
