// The flow engine as a network of the exec core: meetings launch plans, and plans share the links.
//
// A plan is a list of variables that start together (each after its own delay); it ends when the last one is delivered. Each
// start of a key launches its plan anew, so a plan may be in flight many times at once; equal variables share one unknown of the
// solver. A key without a plan is answered at once with the seconds that its participants stated, as the closed form does.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "net/flow/compress.h"
#include "net/flow/fluid.h"
#include "net/flow/pulse.h"
#include "net/flow/run.h"
#include "net/flow/unknowns.h"
#include "net/network.h"

namespace wt::net::flow {

// Owned, since the network outlives the call that made it. Row r is that of variable r; empty columns stand for their defaults.
struct PlanTable {
  std::vector<double> capacity;         // [L] B/s
  std::vector<std::int64_t> row_start;  // [V+1]
  std::vector<std::int32_t> row_links;
  std::vector<double> demand;
  std::vector<std::int64_t> plan_start;                     // [P+1] into variables
  std::vector<double> size, weight, bound, latency, delay;  // [V]
  std::vector<std::int64_t> key;                            // keys of transfers
  std::vector<std::int32_t> key_plan;                       // and the plan that each launches
  std::vector<double> change_time;
  std::vector<std::int32_t> change_link;
  std::vector<double> change_capacity;
  std::vector<double>
      epochs;  // rising times: what is launched after the i-th of them takes the i+1-th of equal shares of the plans
};

struct PlanReport {
  LinkUse use;                                // up to the present
  std::vector<std::int64_t> starts;           // [P]
  std::vector<double> total, longest, alone;  // [P] s from launch to delivery: sum, most, and with nothing else on the links
  double now = 0.0;
  std::int64_t events = 0, unknowns = 0, constraints = 0, active_constraints = 0;
  SolverStats solver;
};

class FlowNetwork final : public Network {
 public:
  // `bins`: its report has bytes over time.
  explicit FlowNetwork(PlanTable table, double tolerance = kTolerance, bool bins = false);
  FlowNetwork(const FlowNetwork&) = delete;
  FlowNetwork& operator=(const FlowNetwork&) = delete;

  std::optional<double> start(const Flow& flow) override;
  [[nodiscard]] double next_event() const override;
  std::optional<Completion> advance() override;

  // Called about every 50 ms while it runs; may throw to stop.
  void on_pulse(std::function<void()> beat) { pulse_ = Pulse(std::move(beat)); }
  [[nodiscard]] PlanReport report();

 private:
  struct Instance {
    std::int32_t id = 0, plan = 0;
    double begin = 0.0, delivered = 0.0;
    std::int64_t left = 0;
  };
  struct Member {
    std::int32_t instance = 0, variable = 0;
  };
  struct Due {  // variable < 0: the launch of an instance, or its completion
    double time;
    std::int64_t order;
    std::int32_t instance, variable;
    bool operator>(const Due& o) const { return time > o.time || (time == o.time && order > o.order); }
  };
  using Queue = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

  void launch(std::int32_t instance);
  void begin(std::int32_t instance, std::int32_t variable);
  void deliver(std::int32_t instance, std::int32_t variable, double end);
  void fail_if_stalled() const;
  [[nodiscard]] double next_arrival() const;
  [[nodiscard]] double alone(Fluid& fluid, std::size_t plan) const;
  [[nodiscard]] Variables variables() const;

  const PlanTable table_;
  Compressed kinds_;
  Demands demands_;
  Grouped grouped_;
  Fluid fluid_;
  Pulse pulse_;
  double tolerance_;
  std::unordered_map<std::int64_t, std::int32_t> plan_of_;
  std::vector<Instance> instances_;
  std::vector<Member> members_;
  std::vector<std::int32_t> free_instances_, free_members_;
  Queue arrivals_, deliveries_;
  std::size_t change_ = 0;
  std::int64_t order_ = 0, events_ = 0;
  std::vector<std::int64_t> starts_;
  std::vector<double> total_, longest_;
};

}  // namespace wt::net::flow
