// What both evaluators of a program keep: the state of its instances, streams and ranks, the accounts of where time went, and what
// is read off them behind a run.
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

inline constexpr std::uint32_t kNoEvent = 0xFFFFFFFFU;

// Host clock of a rank and what last held it up.
struct Host {
  double at = 0.0;
  double base_at = 0.0;                 // when it was last held up, 0 if never
  std::uint32_t base_event = kNoEvent;  // by which event of its rank
  std::int32_t base_instance = -1;      // by which synchronised instance
  Cause base_cause = Cause::kHost;      // kHost: that event's end (or the step's begin); kWindow: its start
};

enum class Status : std::uint8_t { kAhead, kPending, kReady, kPosted, kDone };  // kPosted: of a rendezvous

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

enum class Trailed : std::uint8_t { kNothing, kTimes, kCauses };  // what is kept of each event of a rank

// Times of each event (operator or rendezvous) of a rank in program order, and what bound its start. Null: nobody reads it.
struct Trail {
  double* start = nullptr;
  double* end = nullptr;
  std::unique_ptr<std::uint32_t[]> before;
  std::unique_ptr<Cause[]> cause;
};

struct Rank {
  std::int32_t index = 0, first = 0, last = 0;  // instances first .. last-1
  std::int32_t cursor = 0, low = 0;             // next that the host comes to; of the walk: first that has no start yet
  std::uint32_t events = 0;
  Host host;
  std::int32_t sync = -1, host_unknown = -1;  // instances that the host waits for: to end; to be placed
  Trail trail;
  // of the walk (engine.h)
  std::vector<std::int32_t> ready;
  std::vector<std::int32_t> computing, communicating;  // with a tax: admitted instances in program order
  std::size_t next_computing = 0, first_open = 0;      // into them: the first that has no times yet
  Flights flights;
  bool queued = false;
};

struct Key {
  std::int32_t posted = 0;
  std::int32_t participants = 0;
  double begin = 0.0, seconds = 0.0;
  std::int64_t name = 0;
  bool estimated = false;  // its flight is known to the tax with the seconds stated, as the network had not ended it
};

class Book {
 protected:
  // `times`: keeps start and end of every event whether or not anybody asks for them.
  Book(const Program& program, net::Network& network, bool times);
  void lay_out_trails(bool times);

  struct Gate {
    double at;
    std::int32_t instance;
  };
  [[nodiscard]] Gate gate_of(const Rank& rank, std::int32_t i) const;
  // The host goes on from a synchronised instance when that has ended.
  void settle_sync(Rank& rank);
  // A transfer that a rendezvous waits for has ended; true if it was the last one, which ends the rendezvous and frees its stream.
  [[nodiscard]] bool end_part(Rank& rank, std::int32_t i, std::int32_t key, double end);

  // accounts
  void charge(Rank& rank, double from, double to, std::int32_t instance);
  void charge_host(Rank& rank, double from, double to, const Host& host);
  // What the compute stream waited for until an operator began on it: the host, an operator of the same instance (`inner`, its
  // category), the gate of the repetition before (`gate_category`), or another instance.
  void charge_idle(Rank& rank, double from, double to, Cause cause, const Host& host, std::int32_t inner,
                   std::int32_t gate_category, std::int32_t gate_instance) {
    if (cause == Cause::kHost)
      charge_host(rank, from, to, host);
    else if (cause == Cause::kInner)
      idle(rank, static_cast<std::size_t>(inner)).add(to - from);
    else if (gate_category >= 0)
      idle(rank, static_cast<std::size_t>(gate_category)).add(to - from);
    else
      charge(rank, from, to, gate_instance);
  }
  // [streams, categories]
  Sum* busy_of(const Rank& rank) { return busy_.data() + static_cast<std::size_t>(rank.index) * streams_count_ * categories_; }
  Sum& busy(const Rank& rank, int stream, int category) {
    return busy_of(rank)[static_cast<std::size_t>(stream) * categories_ + static_cast<std::size_t>(category)];
  }
  Sum& idle(const Rank& rank, std::size_t cause) { return idle_[static_cast<std::size_t>(rank.index) * (categories_ + 2) + cause]; }
  Sum& stretch(const Rank& rank, int category) {
    return stretch_[static_cast<std::size_t>(rank.index) * categories_ + static_cast<std::size_t>(category)];
  }

  // results
  [[noreturn]] void deadlock() const;
  [[nodiscard]] Timeline results();
  [[nodiscard]] Path critical_path(double makespan) const;

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
  std::vector<double> rates_;  // [R] of computing beside communication
  bool tax_;
  std::size_t remaining_;  // instances that are not done
  std::vector<State> states_;
  std::vector<Rank> ranks_;
  std::vector<Stream> streams_;
  std::vector<Key> keys_;
  Record times_;              // of the trails: those of recorded ranks first
  std::size_t recorded_ = 0;  // how many these are
  std::vector<Sum> busy_, idle_, stretch_;
};

}  // namespace wt::exec
