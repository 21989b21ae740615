// Whole steps without simulating what has been seen before.
//
// A step launches the same plans thousands of times, mostly in the same few overlapping patterns. Replay stands before a network and
// remembers EPISODES: one begins when a flow starts while nothing is in flight, and ends when nothing is in flight any more. As long
// as an episode does what a remembered one did, completions come from memory. When it leaves all of them, a fresh network is given
// its starts so far at their true times, simulates the rest, and what it says is remembered as well.
//
// Memory is a tree of events. A node stands for all that has happened in an episode so far: starts (plan and time since its begin)
// and completions (which launch, when). From a node on, what comes next is either the one completion that was found to come next if
// nothing starts before it, or one of the starts that came there. Starts match if they differ by no more than `tolerance` times the
// shortest duration of a plan that the episode has started; completions then are those of the remembered episode.
//
// What is approximate: times within the tolerance (counted, see Report), and an episode begins on an idle network: what the one
// before it left (last ACKs, state of pairs that are over) is forgotten. With tolerance 0 on a network without such leftovers ends
// are those of the network itself, to the picosecond, the unit in which offsets are kept. Where something ends in the same
// picosecond as something starts, the end comes first.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "net/network.h"
#include "net/replay/inside.h"

namespace wt::net::replay {

struct Options {
  double tolerance = 0.01;
};

struct Report {
  std::int64_t episodes = 0, replayed = 0;  // replayed: from memory alone
  std::int64_t left = 0;                    // episodes simulated again from their begin after some answers from memory
  std::int64_t patterns = 0, nodes = 0;     // different episodes; events remembered
  std::int64_t flows = 0, skipped = 0;      // launches of plans; those of replayed episodes
  std::int64_t shifted = 0;                 // starts that matched, but not to the picosecond
  double shift_total = 0, shift_max = 0;    // s, of those
  // Of completions from memory: how far they may be off, taken as the sum of all shifts in their episode and in the one remembered.
  double error_mean = 0, error_max = 0;     // s
  double error_share = 0;                   // mean over them of that divided by the flow's duration
  double error_total = 0;                   // s, sum over episodes of the largest: what a step of episodes one after the other is off
  std::int64_t checked = 0;                 // completions from memory of episodes that were simulated after all
  double checked_mean = 0, checked_max = 0;  // s, how far they really were off
};

struct Launches {  // of a plan
  std::int64_t count = 0;
  double total = 0, longest = 0;  // s from begin to end
};

class Replay final : public Network {
 public:
  using Factory = std::function<std::unique_ptr<Network>()>;         // a network with its clock at 0
  using PlanOf = std::function<std::int32_t(const Flow&)>;           // equal plans take equal time; -1: takes the seconds stated
  using Over = std::function<void(Network&, std::int32_t pattern)>;  // a simulated episode is over; patterns count from 0

  Replay(Factory factory, PlanOf plan_of, const Options& options = {}, Over over = {});

  std::optional<double> start(const Flow& flow) override;
  [[nodiscard]] double next_event() const override;
  std::optional<Completion> advance() override;

  [[nodiscard]] Report report() const;
  [[nodiscard]] const std::vector<std::int64_t>& uses() const { return uses_; }  // of each pattern, the simulated one included
  [[nodiscard]] const std::unordered_map<std::int32_t, Launches>& launches() const { return launches_; }
  [[nodiscard]] double now() const;

 private:
  static constexpr std::int32_t kUnknown = -1;

  struct Pending {  // a flow that the clock has not reached
    Time begin;
    std::int32_t plan;
    std::int64_t order;
    Flow flow;
    bool operator>(const Pending& o) const { return std::tie(begin, plan, order) > std::tie(o.begin, o.plan, o.order); }
  };
  struct Launch {
    Flow flow;
    std::int32_t plan = 0;
    Time offset = 0;      // from the begin of the episode
    Time delivered = -1;  // offset at which the caller heard of its end
  };
  struct Node {
    std::int32_t ends = kUnknown;  // launch that ends next if nothing starts before
    std::int32_t after = kUnknown;  // node behind that
    std::int32_t pattern = kUnknown;  // where the episode is over
    Time end = 0;
    Time error = 0;  // what the recorded end may be off
  };
  struct Match {
    std::int32_t node = kUnknown;
    Time shift = 0;
  };

  [[nodiscard]] Time next_start() const { return pending_.empty() ? kForever : pending_.top().begin; }
  [[nodiscard]] Time next_end() const;  // of the present episode; the clock where memory ends, as leaving it is what comes next then
  [[nodiscard]] Match match(const Pending& p) const;
  std::int32_t new_node();
  void open(Time at);
  std::int32_t launch_next();  // the first of pending
  void remember_start(const Match& found);
  void simulate_start();
  void simulate();  // leaves memory
  void check(const End& end);
  Completion deliver_remembered();
  Completion deliver_simulated(const End& end);
  Completion deliver(std::int32_t number, std::int32_t after);
  void close();

  Factory factory_;
  PlanOf plan_of_;
  Options options_;
  Over over_;

  std::vector<Node> nodes_;
  std::map<std::tuple<std::int32_t, std::int32_t, Time>, std::int32_t> branches_;  // node, plan, offset of a start -> node behind it
  std::unordered_map<std::int32_t, Time> fastest_;                                 // of each plan, simulated
  std::vector<std::int64_t> uses_;

  std::priority_queue<Pending, std::vector<Pending>, std::greater<>> pending_;
  std::int64_t orders_ = 0;
  Time now_ = 0;
  double last_end_ = 0;

  // the present episode
  bool open_ = false;
  Time begin_ = 0;
  std::int32_t node_ = 0;
  std::vector<Launch> episode_;
  std::size_t flying_ = 0;
  Time shortest_ = kForever;
  Time shift_ = 0, worst_ = 0;
  std::int64_t answered_ = 0;
  std::optional<Inside> inside_;

  std::unordered_map<std::int32_t, Launches> launches_;
  Report report_;
  std::int64_t remembered_ = 0;  // completions from memory
  double errors_ = 0, error_shares_ = 0, checks_ = 0;
};

}  // namespace wt::net::replay
