// Full steps in which repeated patterns are not simulated again.
//
// A step launches the same plans thousands of times, mostly in the same few overlapping patterns. Replay stands before a network
// and remembers EPISODES: transfers that are in flight together and share links, from when the first starts while its links are
// idle until the last has ended. A transfer that shares links with several episodes makes one of them. As long as an episode does
// what a remembered one did, completions come from memory (memory.h). When it leaves all of them, a fresh network is given its
// starts so far at their true times, simulates the rest, and what it says is remembered as well.
//
// Starts match if they differ by no more than `tolerance` times the shortest duration of a plan that the episode has started;
// completions then are those of the remembered episode.
//
// What is approximate: times within the tolerance (counted, see Report); transfers without a link in common do not influence each
// other; and an episode begins on an idle network, so what others left there (last ACKs, state of pairs that are over) is
// forgotten. With tolerance 0 on a network where that holds, ends are those of the network itself, to the picosecond, the unit in
// which offsets are kept. Where something ends in the same picosecond as something starts, the end comes first.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "net/network.h"
#include "net/replay/episode.h"
#include "net/replay/memory.h"

namespace wt::net::replay {

struct Options {
  double tolerance = 0.01;
  double against = 0.0;  // share of its time that a transfer may lose to one on the way back of its links, which is left out
};

struct Report {
  std::int64_t episodes = 0, replayed = 0;  // replayed: from memory alone
  std::int64_t joined = 0;                  // episodes that a transfer made one with another
  std::int64_t simulations = 0;             // networks made: for new patterns, and again where a transfer joined or left memory
  std::int64_t patterns = 0, nodes = 0;     // different episodes; events remembered
  std::int64_t flows = 0, skipped = 0;      // launches of plans; those of replayed episodes
  std::int64_t played = 0;                  // launches given to networks, so some several times
  std::int64_t shifted = 0;                 // starts that matched, but not to the picosecond
  double shift_total = 0, shift_max = 0;    // s, of those
  // How far ends may be off: the sum of all shifts in their episode and in the one remembered, and `against` times the seconds in
  // which transfers of other episodes were on the way back of their links.
  double error_mean = 0, error_max = 0;      // s, over all flows
  double error_share = 0;                    // mean over all flows of that divided by the flow's duration
  double error_total = 0;                    // s, sum over episodes of the largest: what a chain of all episodes may be off
  double against_total = 0;                  // s of transfers beside others on the way back
  std::int64_t checked = 0;                  // completions from memory of episodes that were simulated after all
  double checked_mean = 0, checked_max = 0;  // s, how far they really were off
};

struct Launches {  // of a plan
  std::int64_t count = 0;
  double total = 0, longest = 0;  // s from begin to end
};

class Replay final : public Network {
 public:
  using Factory = std::function<std::unique_ptr<Network>(Time begin)>;  // a network with its clock at 0, for an episode
  using PlanOf = std::function<std::int32_t(const Flow&)>;              // equal plans take equal time; -1: takes the seconds stated
  using LinksOf = std::function<std::span<const std::int32_t>(std::int32_t plan)>;  // each once, from 0; empty function: all share
  // LinksOf for back_of: the links of the way back, where a transfer costs others `against`.
  using Over = std::function<void(Network&, std::int32_t pattern)>;  // a simulated episode is over; patterns count from 0

  using Exposed = std::function<bool(std::int32_t plan, Time at)>;  // faults may hit the plan from then on

  Replay(Factory factory, PlanOf plan_of, const Options& options = {}, Over over = {}, LinksOf links_of = {}, LinksOf back_of = {},
         Exposed exposed = {});

  // Times from which plans are exposed that were not before: what is in flight then is exposed too. Before the first start.
  void expose_from(std::vector<Time> times);

  std::optional<double> start(const Flow& flow) override;
  [[nodiscard]] double next_event() const override;
  std::optional<Completion> advance() override;

  [[nodiscard]] Report report() const;
  [[nodiscard]] std::int64_t flows() const { return report_.flows; }             // launched so far
  [[nodiscard]] const std::vector<std::int64_t>& uses() const { return uses_; }  // of each pattern, the simulated one included
  // When each episode began and which pattern it followed, in the order in which they ended.
  struct Use {
    std::int32_t pattern;
    Time begin;
  };
  [[nodiscard]] const std::vector<Use>& episodes() const { return closed_; }
  [[nodiscard]] const std::unordered_map<std::int32_t, Launches>& launches() const { return launches_; }
  [[nodiscard]] double now() const { return seconds(now_); }

 private:
  struct Pending {  // a flow that the clock has not reached
    Time begin;
    std::int32_t plan;
    std::int64_t order;
    Flow flow;
    bool operator>(const Pending& o) const { return std::tie(begin, plan, order) > std::tie(o.begin, o.plan, o.order); }
  };
  struct Link {
    std::int32_t users = 0;    // launches in flight
    std::int64_t episode = 0;  // theirs
  };
  using Live = std::map<std::int64_t, Episode>;

  [[nodiscard]] Time next_start() const { return pending_.empty() ? kForever : pending_.top().begin; }
  [[nodiscard]] Time next_end(const Episode& e) const;
  [[nodiscard]] std::span<const std::int32_t> links_of(std::int32_t plan) const;
  void take_start();
  Live::iterator episode_of(std::int32_t plan);  // that the plan joins
  [[nodiscard]] bool oppose(std::int32_t a, std::int32_t b);
  void meet(Live::iterator of, std::int32_t plan, std::int32_t change);  // the last launch there begins, or one ends
  Live::iterator join(Live::iterator a, Live::iterator b);
  void simulate(Episode& e);  // leaves memory
  void expose(Episode& e);    // simulates it, beside memory
  void check(const Episode& e, const End& end);
  std::optional<Completion> advance(Live::iterator e);
  Completion deliver_remembered(Live::iterator e);
  Completion deliver_simulated(Live::iterator e, const End& end);
  Completion deliver(Live::iterator e, std::int32_t number, std::int32_t after, Time error);
  void close(Episode& e);

  Factory factory_;
  PlanOf plan_of_;
  LinksOf links_of_, back_of_;
  Exposed exposed_;
  std::vector<Time> exposures_;  // the next one last
  double against_;
  Over over_;
  Memory memory_;
  std::vector<std::int64_t> uses_;
  std::vector<Use> closed_;

  std::priority_queue<Pending, std::vector<Pending>, std::greater<>> pending_;
  std::int64_t orders_ = 0, episodes_ = 0;
  Time now_ = 0;
  double last_end_ = 0;
  Live live_;
  std::vector<Link> links_;
  std::unordered_map<std::int64_t, bool> oppose_;  // by pair of plans

  std::unordered_map<std::int32_t, Launches> launches_;
  Report report_;
  double errors_ = 0, error_shares_ = 0, checks_ = 0;
};

}  // namespace wt::net::replay
