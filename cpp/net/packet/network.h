// The packet engine as a network of the exec core: meetings launch plans, and the plans' packets meet on the links.
//
// A plan is a list of lanes that start together; it is over when the last of them is delivered. Each start of a key launches its
// plan anew, so a plan may be in flight many times at once. A key without a plan is answered at once with the seconds that its
// participants stated. One thread; the clock is picoseconds, so an end is exact to 1e-12 s.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "net/network.h"
#include "net/packet/part.h"

namespace wt::net::packet {

// Owned, since the network outlives the call that made it. Columns of graph, paths and lanes as in their headers.
struct PlanTable {
  std::vector<std::uint8_t> node_kind, link_up;
  std::vector<std::int32_t> node_site, link_from, link_to, endpoint, nics, rail;
  std::vector<double> link_rate, link_latency;
  std::vector<std::int16_t> link_axis;
  std::vector<std::int64_t> nic_start;
  std::vector<std::int64_t> path_start;
  std::vector<std::int32_t> path_links;
  std::vector<std::int32_t> src, dst, path, window, group;
  std::vector<std::int64_t> bytes, slice;
  std::vector<double> delay, rate, begin, hold;  // begin: after the launch of the plan
  std::vector<std::int64_t> dep_start, dep_lead;
  std::vector<std::int32_t> dep_lane;    // within the plan's own lanes
  std::vector<std::int64_t> plan_start;  // [P+1] into lanes
  std::vector<std::int64_t> key;         // keys of transfers
  std::vector<std::int32_t> key_plan;    // and the plan that each launches
};

struct PlanReport {
  Stats stats;
  std::vector<std::int64_t> link_data, link_control, link_peak;  // [L]
  std::vector<double> link_paused;
  std::vector<std::int64_t> starts;    // [P]
  std::vector<double> total, longest;  // [P] s from launch to delivery: sum, most
  Loads loads;                         // if they are counted; tags are plans
  double now = 0.0;
};

class PacketNetwork final : public Network {
 public:
  PacketNetwork(PlanTable table, const Options& options, const Faults& faults = {});
  PacketNetwork(const PacketNetwork&) = delete;
  PacketNetwork& operator=(const PacketNetwork&) = delete;

  std::optional<double> start(const Flow& flow) override;
  [[nodiscard]] double next_event() const override;
  std::optional<Completion> advance() override;

  // Handles what is still about when all plans are delivered (last ACKs, timers), so that report() counts it. Nothing starts after
  // it.
  void finish();

  // Called every few milliseconds of work; may throw to stop.
  void on_pulse(std::function<void()> beat) { pulse_ = std::move(beat); }
  // All links that packets of a plan may take, some of them twice.
  [[nodiscard]] std::vector<std::int32_t> ways(std::int32_t plan) const;
  // Share of the transfers named that have been delivered.
  [[nodiscard]] double done() const {
    const std::size_t named = table_.key.size();
    return named == 0 ? 1.0 : (static_cast<double>(instances_.size()) - static_cast<double>(flying_)) / static_cast<double>(named);
  }
  [[nodiscard]] PlanReport report(bool with_loads = true) const;
  // [L] what the links carry, where it is counted.
  [[nodiscard]] const std::vector<LinkLoad>& loads() const { return world_.loads; }

 private:
  struct Instance {
    std::int32_t plan = -1;
    std::int32_t flow = -1;
    std::uint32_t first = 0;  // pair
    Time begin = 0;
  };
  void collect();

  PlanTable table_;
  World world_;
  mutable Part part_;
  std::unordered_map<std::int64_t, std::int32_t> plan_of_;
  std::vector<Instance> instances_;
  std::vector<std::vector<std::uint32_t>> spare_;  // by plan: first pairs of instances whose last packet is over
  std::deque<Completion> ends_;
  std::vector<std::int64_t> starts_;
  std::vector<double> total_, longest_;
  std::function<void()> pulse_;
  std::int64_t beats_ = 0;
  std::int64_t flying_ = 0;  // instances that are not delivered yet
  bool reuse_ = true;
};

}  // namespace wt::net::packet
